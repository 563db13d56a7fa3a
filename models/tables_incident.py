"""Incidents and their stories."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, Integer, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Amount, Base, Utc


class IncidentRow(Base):
    """``core.incident.Incident``; at most one open per scope and cause. NULL money is unknown, not zero."""

    __tablename__ = "incident"
    __table_args__ = (
        Index("uq_incident_open", "scope", "cause", unique=True, postgresql_where=text("recovered_at IS NULL")),
        Index(None, "opened_at"),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    scope: Mapped[str] = mapped_column(String, nullable=False)
    cause: Mapped[str] = mapped_column(String, nullable=False)
    severity: Mapped[str] = mapped_column(String, nullable=False)  # notice | warning | page
    phase: Mapped[str] = mapped_column(String, nullable=False)
    shadow: Mapped[bool] = mapped_column(nullable=False)
    opened_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    told_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    seq: Mapped[int] = mapped_column(Integer, nullable=False)
    owner: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    breaker_id: Mapped[int | None] = mapped_column(BigInteger)
    recovered_at: Mapped[datetime | None] = mapped_column(Utc)
    acknowledged_by: Mapped[str] = mapped_column(String, nullable=False)
    acknowledged_at: Mapped[datetime | None] = mapped_column(Utc)
    assignee: Mapped[str] = mapped_column(String, nullable=False)
    at_risk: Mapped[Decimal | None] = mapped_column(Amount)
    at_risk_currency: Mapped[str | None] = mapped_column(String(3))
    trip_spend: Mapped[Decimal | None] = mapped_column(Amount)
    trip_cap: Mapped[Decimal | None] = mapped_column(Amount)
    trip_currency: Mapped[str | None] = mapped_column(String(3))
    trip_period: Mapped[str | None] = mapped_column(String)
    trip_period_end: Mapped[datetime | None] = mapped_column(Utc)
    overshoot: Mapped[Decimal | None] = mapped_column(Amount)  # in trip_currency
    overshoot_reason: Mapped[str] = mapped_column(Text, nullable=False)
    outcome: Mapped[str] = mapped_column(Text, nullable=False)


class IncidentMomentRow(Base):
    """One line of an incident's story (``core.incident.Moment``)."""

    __tablename__ = "incident_moment"
    incident_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("incident.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(Integer, primary_key=True)
    at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    kind: Mapped[str] = mapped_column(String, nullable=False)
    actor: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    phase: Mapped[str] = mapped_column(String, nullable=False)
    severity: Mapped[str] = mapped_column(String, nullable=False)
    shadow: Mapped[bool] = mapped_column(nullable=False)
    epoch: Mapped[int | None] = mapped_column(Integer)

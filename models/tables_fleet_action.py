"""What of the fleet may be acted on, which actuators are switched on, and every action with what stood there before."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, Integer, String, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class FleetTargetRow(Base):
    """A switch outside: whose it is, which actuator works it, under what address. A retired one is acted on no more."""

    __tablename__ = "fleet_target"
    __table_args__ = (
        Index("uq_fleet_target_standing", "actuator", "address", unique=True, postgresql_where=text("retired_at IS NULL")),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    scope: Mapped[str] = mapped_column(String, nullable=False)
    actuator: Mapped[str] = mapped_column(String, nullable=False)
    address: Mapped[str] = mapped_column(String, nullable=False)
    options: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    created_by: Mapped[str] = mapped_column(String, nullable=False)
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    retired_at: Mapped[datetime | None] = mapped_column(Utc)


class FleetSwitchRow(Base):
    """Whether an actuator may change anything; without a row it may not (dry run)."""

    __tablename__ = "fleet_switch"
    actuator: Mapped[str] = mapped_column(String, primary_key=True)
    enabled: Mapped[bool] = mapped_column(nullable=False)
    changed_by: Mapped[str] = mapped_column(String, nullable=False)
    changed_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)


class FleetActionRow(Base):
    """One action; ``before`` outlives crashes, so that it can be put back. See ``core.fleet.FleetAction``."""

    __tablename__ = "fleet_action"
    __table_args__ = (UniqueConstraint("breaker_id", "epoch", "target_id", "move"), Index(None, "state"))
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    breaker_id: Mapped[int] = mapped_column(BigInteger, nullable=False)
    epoch: Mapped[int] = mapped_column(Integer, nullable=False)
    target_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("fleet_target.id"), nullable=False)
    move: Mapped[str] = mapped_column(String, nullable=False)  # freeze | block | limit
    state: Mapped[str] = mapped_column(String, nullable=False)  # planned | applied | verified | reverted | drifted | failed
    before: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    wanted: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    planned_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    expires_at: Mapped[datetime | None] = mapped_column(Utc)
    tried_at: Mapped[datetime | None] = mapped_column(Utc)
    applied_at: Mapped[datetime | None] = mapped_column(Utc)
    verified_at: Mapped[datetime | None] = mapped_column(Utc)
    ended_at: Mapped[datetime | None] = mapped_column(Utc)
    end_asked_by: Mapped[str] = mapped_column(String, nullable=False)
    detail: Mapped[str] = mapped_column(Text, nullable=False)
    commands: Mapped[list[str]] = mapped_column(JSONB, nullable=False)

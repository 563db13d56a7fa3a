"""Closed periods, shared cost rules, and the money of a period that lies in no quarter hour. Kept versions are append-only."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Date, Identity, Index, Integer, Numeric, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Utc


class LedgerPeriodRow(Base):
    """A month of the reporting zone whose statement was sent: what changes later is posted in the first month still open."""

    __tablename__ = "ledger_period"
    period: Mapped[date] = mapped_column(Date, primary_key=True)  # its first day
    window_start: Mapped[datetime] = mapped_column(Utc, nullable=False)
    window_end: Mapped[datetime] = mapped_column(Utc, nullable=False)
    closed_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    closed_by: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    totals: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)  # money, windows by state, what was accepted


class PeriodVersionRow(Base):
    """One keeping of a period's lines: the whole set, in place of the version before."""

    __tablename__ = "period_version"
    period: Mapped[date] = mapped_column(Date, primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    digest: Mapped[str] = mapped_column(String, nullable=False)
    source: Mapped[str] = mapped_column(Text, nullable=False)  # the deliveries it rests on


class PeriodLineRow(Base):
    """Money of a month that lies in no quarter hour: shared cost by rule, cost no rule takes, billed GPUs nobody held."""

    __tablename__ = "period_line"
    __table_args__ = (Index("ix_period_line_version", "period", "version"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    period: Mapped[date] = mapped_column(Date, nullable=False)
    version: Mapped[int] = mapped_column(Integer, nullable=False)
    kind: Mapped[str] = mapped_column(String, nullable=False)  # shared | not_shared | unassigned | rounding
    name: Mapped[str] = mapped_column(String, nullable=False)  # of the rule; bucket and service; cluster/node
    cluster: Mapped[str] = mapped_column(String, nullable=False)
    namespace: Mapped[str] = mapped_column(String, nullable=False)
    model_id: Mapped[str] = mapped_column(String, nullable=False)
    org: Mapped[str] = mapped_column(String, nullable=False)
    team: Mapped[str] = mapped_column(String, nullable=False)
    currency: Mapped[str] = mapped_column(String, nullable=False)
    amount: Mapped[Decimal] = mapped_column(Numeric, nullable=False)


class SharedRuleRow(Base):
    """``core.shared_cost.SharedRule``. Never edited: it ends, and another begins."""

    __tablename__ = "shared_rule"
    __table_args__ = (CheckConstraint("valid_to IS NULL OR valid_to > valid_from", name="valid_span"),)
    name: Mapped[str] = mapped_column(String, primary_key=True)
    position: Mapped[int] = mapped_column(Integer, nullable=False)  # lower takes first
    selector: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)  # buckets, service, resource_id, tag
    method: Mapped[str] = mapped_column(String, nullable=False)  # weight | even | fixed
    target: Mapped[str] = mapped_column(String, nullable=False)  # deployment | tenant
    shares: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)  # fixed: part by deployment or tenant, as text
    valid_from: Mapped[date] = mapped_column(Date, nullable=False)
    valid_to: Mapped[date | None] = mapped_column(Date)
    owner: Mapped[str] = mapped_column(String, nullable=False)
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    created_by: Mapped[str] = mapped_column(String, nullable=False)

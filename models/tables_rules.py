"""Rules, what each last measured of each scope, and their alerts."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Boolean, Float, Identity, Index, Integer, String, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Amount, Base, Utc


class RuleRow(Base):
    """A rule's versions; the one in force has no end. ``body`` is ``core.rules.rule_as``."""

    __tablename__ = "rule"
    __table_args__ = (Index("uq_rule_in_force", "name", unique=True, postgresql_where=text("retired_at IS NULL")),)
    name: Mapped[str] = mapped_column(String, primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    body: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    made_by: Mapped[str] = mapped_column(String, nullable=False)
    made_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    retired_at: Mapped[datetime | None] = mapped_column(Utc)


class RuleStateRow(Base):
    """A rule on one scope: its fold, the baseline it is judged by, and the last verdict."""

    __tablename__ = "rule_state"
    rule: Mapped[str] = mapped_column(String, primary_key=True)
    scope: Mapped[str] = mapped_column(String, primary_key=True)
    basis: Mapped[str] = mapped_column(String, nullable=False)  # rule version and decision prices the baseline is of
    baseline: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    baseline_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    firing: Mapped[bool] = mapped_column(Boolean, nullable=False)
    epoch: Mapped[int] = mapped_column(Integer, nullable=False)
    window_end: Mapped[datetime | None] = mapped_column(Utc)
    since: Mapped[datetime | None] = mapped_column(Utc)
    firing_since: Mapped[datetime | None] = mapped_column(Utc)
    clear_since: Mapped[datetime | None] = mapped_column(Utc)
    no_data_since: Mapped[datetime | None] = mapped_column(Utc)
    verdict: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    shown: Mapped[str] = mapped_column(String, nullable=False)  # OK | WARNING | ALERT | NO_DATA


class DecisionPriceRow(Base):
    """The unit rates rules price a deployment's work with, the same for history and now, held until price or way of weighing
    change (``key``)."""

    __tablename__ = "decision_price"
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    since: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    ended_at: Mapped[datetime | None] = mapped_column(Utc)
    key: Mapped[str] = mapped_column(String, nullable=False)
    currency: Mapped[str] = mapped_column(String(3), nullable=False)
    source: Mapped[str] = mapped_column(String, nullable=False)
    targets: Mapped[int] = mapped_column(Integer, nullable=False)
    units: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)  # decimals as text, see core.running


class AlertRow(Base):
    """One firing of a rule on a scope, from ``fired_at`` until ``recovered_at``; (rule, scope, epoch) is its key."""

    __tablename__ = "alert"
    __table_args__ = (UniqueConstraint("rule", "scope", "epoch"), Index("ix_alert_fired_at", "fired_at"))
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    rule: Mapped[str] = mapped_column(String, nullable=False)
    scope: Mapped[str] = mapped_column(String, nullable=False)
    epoch: Mapped[int] = mapped_column(Integer, nullable=False)
    severity: Mapped[str] = mapped_column(String, nullable=False)  # notice | warning | page
    tier: Mapped[int] = mapped_column(Integer, nullable=False)
    shadow: Mapped[bool] = mapped_column(Boolean, nullable=False)
    window_start: Mapped[datetime] = mapped_column(Utc, nullable=False)  # of the first window that fired
    fired_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    recovered_at: Mapped[datetime | None] = mapped_column(Utc)
    value: Mapped[float] = mapped_column(Float, nullable=False)
    threshold: Mapped[float] = mapped_column(Float, nullable=False)
    usual: Mapped[float | None] = mapped_column(Float)
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    at_risk: Mapped[Decimal | None] = mapped_column(Amount)  # of the windows that fired, an estimate; NULL: not known
    currency: Mapped[str] = mapped_column(String, nullable=False)
    why: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    person: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    person_said: Mapped[str] = mapped_column(String, nullable=False, server_default="")  # acknowledged | ignored
    person_reason: Mapped[str] = mapped_column(Text, nullable=False, server_default="")
    person_at: Mapped[datetime | None] = mapped_column(Utc)

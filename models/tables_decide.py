"""Budgets, breakers, limits, the outbox and the audit chain."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Identity, Index, Integer, SmallInteger, String, Text, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Amount, Base, Utc


class BudgetRow(Base):
    """A plan (amount) and, only where a person typed one, a hard limit (cap). A change is a new version.

    ``scope`` is "tenant:ORG/TEAM/PROJECT/USER" (trailing parts left out) or "deployment:CLUSTER/NAMESPACE/MODEL".
    """

    __tablename__ = "budget"
    __table_args__ = (
        CheckConstraint("amount > 0", name="amount_positive"),
        CheckConstraint("cap IS NULL OR cap > 0", name="cap_positive"),
        UniqueConstraint("scope", "period", "version"),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    scope: Mapped[str] = mapped_column(String, nullable=False)
    period: Mapped[str] = mapped_column(String, nullable=False)  # core.windows.PERIODS
    version: Mapped[int] = mapped_column(Integer, nullable=False)
    zone: Mapped[str] = mapped_column(String, nullable=False)
    amount: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    cap: Mapped[Decimal | None] = mapped_column(Amount)
    currency: Mapped[str] = mapped_column(String(3), nullable=False)
    cost_basis: Mapped[str] = mapped_column(String, nullable=False)  # allocation | usage
    owner: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    fiscal_start: Mapped[int] = mapped_column(SmallInteger, nullable=False, server_default="1")  # month of quarters and years
    rollover: Mapped[bool] = mapped_column(nullable=False, server_default="false")
    created_by: Mapped[str] = mapped_column(String, nullable=False)
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    retired_at: Mapped[datetime | None] = mapped_column(Utc)


class CapIncreaseRow(Base):
    """A temporary raise of a cap, with an approver, a reason and an end."""

    __tablename__ = "cap_increase"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    scope: Mapped[str] = mapped_column(String, nullable=False)
    period: Mapped[str] = mapped_column(String, nullable=False)
    extra: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    currency: Mapped[str] = mapped_column(String(3), nullable=False)
    starts_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    expires_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    approver: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)


class ExemptionRow(Base):
    """A scope no breaker refuses until it expires."""

    __tablename__ = "exemption"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    scope: Mapped[str] = mapped_column(String, nullable=False)
    owner: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    expires_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class StandingLimitRow(Base):
    """Limits that need no trip: max_prompt_tokens, max_output_tokens, max_concurrent_long, tokens_per_min."""

    __tablename__ = "standing_limit"
    __table_args__ = (UniqueConstraint("scope", "name"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    scope: Mapped[str] = mapped_column(String, nullable=False)  # tenant:… | deployment:… | service_tier:P2
    name: Mapped[str] = mapped_column(String, nullable=False)
    value: Mapped[int] = mapped_column(BigInteger, nullable=False)
    mode: Mapped[str] = mapped_column(String, nullable=False)  # warn | enforce
    updated_by: Mapped[str] = mapped_column(String, nullable=False)
    updated_at: Mapped[datetime] = mapped_column(Utc, nullable=False)


class BreakerRow(Base):
    """One breaker per scope. ``epoch`` grows with each change of phase; (id, epoch) keys every effect."""

    __tablename__ = "breaker"
    __table_args__ = (UniqueConstraint("scope"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    scope: Mapped[str] = mapped_column(String, nullable=False)
    phase: Mapped[str] = mapped_column(String, nullable=False)  # closed | warned | degraded | open
    epoch: Mapped[int] = mapped_column(Integer, nullable=False)
    enforced: Mapped[bool] = mapped_column(nullable=False)  # false = shadow
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    since: Mapped[datetime] = mapped_column(Utc, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False, server_default="")
    state: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    paused_until: Mapped[datetime | None] = mapped_column(Utc)


class BreakerEventRow(Base):
    __tablename__ = "breaker_event"
    __table_args__ = (UniqueConstraint("breaker_id", "epoch"), Index(None, "at"))
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    breaker_id: Mapped[int] = mapped_column(BigInteger, nullable=False)
    epoch: Mapped[int] = mapped_column(Integer, nullable=False)
    at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    from_phase: Mapped[str] = mapped_column(String, nullable=False)
    to_phase: Mapped[str] = mapped_column(String, nullable=False)
    shadow: Mapped[bool] = mapped_column(nullable=False)
    actor: Mapped[str] = mapped_column(String, nullable=False)
    reason: Mapped[str] = mapped_column(Text, nullable=False)
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)


class OutboxRow(Base):
    """An effect to carry out once: written with the decision, delivered after it."""

    __tablename__ = "outbox"
    __table_args__ = (UniqueConstraint("key"), Index(None, "state", "next_at"))
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    key: Mapped[str] = mapped_column(String, nullable=False)
    kind: Mapped[str] = mapped_column(String, nullable=False)
    payload: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    state: Mapped[str] = mapped_column(String, nullable=False)  # pending | done | failed
    attempts: Mapped[int] = mapped_column(Integer, nullable=False, server_default="0")
    next_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    last_error: Mapped[str] = mapped_column(Text, nullable=False, server_default="")
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    done_at: Mapped[datetime | None] = mapped_column(Utc)


class PolicyVersionRow(Base):
    """Each published policy (unsigned body); guards' copies are signed with their own keys on the way out."""

    __tablename__ = "policy_version"
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    issued_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    expires_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    entries: Mapped[list[Any]] = mapped_column(JSONB, nullable=False)
    digest: Mapped[str] = mapped_column(String, nullable=False)
    identity: Mapped[dict[str, Any] | None] = mapped_column(JSONB)  # the identity rules for guards, NULL when there are none


class GuardRow(Base):
    """A registered guard. Its signing keys are kept encrypted or as references; see ADR 0004."""

    __tablename__ = "guard"
    __table_args__ = (UniqueConstraint("name"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(String, nullable=False)
    kind: Mapped[str] = mapped_column(String, nullable=False)  # gateway | engine
    scope: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    created_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    last_seen_at: Mapped[datetime | None] = mapped_column(Utc)
    last_version: Mapped[int | None] = mapped_column(BigInteger)


class AuditRow(Base):
    """Hash chain: hash = sha256(prev_hash + canonical JSON of the row). A trigger forbids update and delete."""

    __tablename__ = "audit"
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    actor: Mapped[str] = mapped_column(String, nullable=False)
    action: Mapped[str] = mapped_column(String, nullable=False)
    subject: Mapped[str] = mapped_column(String, nullable=False)
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)
    prev_hash: Mapped[str] = mapped_column(String, nullable=False)
    hash: Mapped[str] = mapped_column(String, nullable=False)


class HeartbeatRow(Base):
    """The last sign of life of each long-running part, with what it says of itself."""

    __tablename__ = "heartbeat"
    name: Mapped[str] = mapped_column(String, primary_key=True)
    at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)

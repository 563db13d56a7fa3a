"""Capacity, rates and the ledger. Ledger rows are append-only: a late fact is a new version."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Identity, Index, Integer, SmallInteger, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Amount, Base, Utc


class NodeServiceRow(Base):
    """``gpu_count`` GPUs of ``gpu_type`` on ``node`` are reserved for a deployment in [in_service_from, in_service_to)."""

    __tablename__ = "node_service"
    __table_args__ = (CheckConstraint("gpu_count > 0", name="gpu_count_positive"),)
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    target: Mapped[str] = mapped_column(String, nullable=False)
    node: Mapped[str] = mapped_column(String, nullable=False)
    cluster: Mapped[str] = mapped_column(String, nullable=False)
    namespace: Mapped[str] = mapped_column(String, nullable=False)
    model_id: Mapped[str] = mapped_column(String, nullable=False)
    gpu_type: Mapped[str] = mapped_column(String, nullable=False)
    gpu_count: Mapped[int] = mapped_column(Integer, nullable=False)
    source: Mapped[str] = mapped_column(String, nullable=False)
    in_service_from: Mapped[datetime] = mapped_column(Utc, nullable=False)
    in_service_to: Mapped[datetime | None] = mapped_column(Utc)


class RateRow(Base):
    """A dated price. Never edited: a change is a new row. A missing rate is unknown, never zero."""

    __tablename__ = "rate"
    __table_args__ = (CheckConstraint("price >= 0", name="price_not_negative"), Index(None, "kind", "sku", "valid_from"))
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    kind: Mapped[str] = mapped_column(String, nullable=False)  # core.rates.RateKind
    sku: Mapped[str] = mapped_column(String, nullable=False)  # GPU type, node name, region …
    price: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    currency: Mapped[str] = mapped_column(String(3), nullable=False)
    charge_basis: Mapped[str] = mapped_column(String, nullable=False)  # billed | effective | list | contracted
    source: Mapped[str] = mapped_column(String, nullable=False)
    valid_from: Mapped[datetime] = mapped_column(Utc, nullable=False)
    valid_to: Mapped[datetime | None] = mapped_column(Utc)
    imported_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    band: Mapped[str] = mapped_column(String, nullable=False, server_default="")  # core.tariff.Band as text; '' always


class LedgerWindowRow(Base):
    """One version of one closed quarter hour of one deployment."""

    __tablename__ = "ledger_window"
    __table_args__ = (
        Index("ix_ledger_window_unpriced", "window_start", postgresql_where=text("capacity_cost IS NULL")),
        Index("ix_ledger_window_start", "window_start"),
        # What was closed again since a period was closed: rows lie in this order, so the index is a few pages.
        Index("ix_ledger_window_closed", "closed_at", postgresql_using="brin"),
        # The last unit rates of a deployment that has long been idle, on every loader commit.
        Index(
            "ix_ledger_window_running",
            "cluster",
            "namespace",
            "model_id",
            "window_start",
            "version",
            postgresql_where=text("jsonb_typeof(detail -> 'running') = 'object'"),
        ),
    )
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    window_start: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    state: Mapped[str] = mapped_column(String, nullable=False)  # provisional | trued_up | final
    currency: Mapped[str] = mapped_column(String(3), nullable=False)
    capacity_cost: Mapped[Decimal | None] = mapped_column(Amount)  # null: a rate is unknown
    used_cost: Mapped[Decimal | None] = mapped_column(Amount)
    utilisation_ppm: Mapped[int | None] = mapped_column(Integer)
    utilisation_source: Mapped[str] = mapped_column(String, nullable=False)
    weight_source: Mapped[str] = mapped_column(String, nullable=False)
    price_source: Mapped[str] = mapped_column(String, nullable=False)
    engine_prompt_tokens: Mapped[int | None] = mapped_column(BigInteger)
    engine_generation_tokens: Mapped[int | None] = mapped_column(BigInteger)
    gateway_input_tokens: Mapped[int] = mapped_column(BigInteger, nullable=False)
    gateway_output_tokens: Mapped[int] = mapped_column(BigInteger, nullable=False)
    detail: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)  # fit, weights, over_explained, missing …
    closed_at: Mapped[datetime] = mapped_column(Utc, nullable=False)
    charged_cost: Mapped[Decimal | None] = mapped_column(Amount)  # the part of capacity_cost that bills say
    estimate_cost: Mapped[Decimal | None] = mapped_column(Amount)  # of a billed window: what rates say


class LedgerLineRow(Base):
    """One named part of a window's capacity cost. The lines of (window, version) sum to capacity_cost exactly."""

    __tablename__ = "ledger_line"
    __table_args__ = (
        Index("ix_ledger_line_window", "window_start", "cluster", "namespace", "model_id", "version"),
        Index("ix_ledger_line_tenant", "org", "team", "project", "user_id", "window_start"),
    )
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    cluster: Mapped[str] = mapped_column(String, nullable=False)
    namespace: Mapped[str] = mapped_column(String, nullable=False)
    model_id: Mapped[str] = mapped_column(String, nullable=False)
    window_start: Mapped[datetime] = mapped_column(Utc, nullable=False)
    version: Mapped[int] = mapped_column(Integer, nullable=False)
    kind: Mapped[str] = mapped_column(String, nullable=False)  # served | wasted | unattributed | idle | starting
    token_kind: Mapped[str] = mapped_column(String, nullable=False, server_default="")  # input | input_cached | output | ''
    org: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    team: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    project: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    user_id: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    key_id: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    service_tier: Mapped[str] = mapped_column(String, nullable=False, server_default="")
    workload_class: Mapped[int] = mapped_column(SmallInteger, nullable=False, server_default="0")
    tokens: Mapped[int] = mapped_column(BigInteger, nullable=False, server_default="0")
    requests: Mapped[int] = mapped_column(BigInteger, nullable=False, server_default="0")
    cost: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    allocated: Mapped[Decimal] = mapped_column(Amount, nullable=False)  # with idle and starting borne by the work
    trueup_cost: Mapped[Decimal] = mapped_column(Amount, nullable=False, server_default="0")  # of cost: bill less rates
    trueup_allocated: Mapped[Decimal] = mapped_column(Amount, nullable=False, server_default="0")


class LedgerDayRow(Base):
    """Sums of the newest versions' lines by UTC day, kept in the same transaction as each version (budgets read it)."""

    __tablename__ = "ledger_day"
    __table_args__ = (Index("ix_ledger_day_tenant", "org", "team", "project", "user_id", "day"),)
    day: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    org: Mapped[str] = mapped_column(String, primary_key=True)
    team: Mapped[str] = mapped_column(String, primary_key=True)
    project: Mapped[str] = mapped_column(String, primary_key=True)
    user_id: Mapped[str] = mapped_column(String, primary_key=True)
    service_tier: Mapped[str] = mapped_column(String, primary_key=True)
    kind: Mapped[str] = mapped_column(String, primary_key=True)
    currency: Mapped[str] = mapped_column(String(3), primary_key=True)
    cost: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    allocated: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    trueup_cost: Mapped[Decimal] = mapped_column(Amount, nullable=False, server_default="0")
    trueup_allocated: Mapped[Decimal] = mapped_column(Amount, nullable=False, server_default="0")


class LineSums:
    """What lines summed hold beside the keys that tell whose they are; ``lines`` counts those summed, 0 once all were taken out
    again."""

    kind: Mapped[str] = mapped_column(String, primary_key=True)
    token_kind: Mapped[str] = mapped_column(String, primary_key=True)
    currency: Mapped[str] = mapped_column(String(3), primary_key=True)
    lines: Mapped[int] = mapped_column(BigInteger, nullable=False)
    tokens: Mapped[int] = mapped_column(BigInteger, nullable=False)
    requests: Mapped[int] = mapped_column(BigInteger, nullable=False)
    cost: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    allocated: Mapped[Decimal] = mapped_column(Amount, nullable=False)
    trueup_cost: Mapped[Decimal] = mapped_column(Amount, nullable=False, server_default="0")
    trueup_allocated: Mapped[Decimal] = mapped_column(Amount, nullable=False, server_default="0")


class _LineSum(LineSums):
    """Every key of a line."""

    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    org: Mapped[str] = mapped_column(String, primary_key=True)
    team: Mapped[str] = mapped_column(String, primary_key=True)
    project: Mapped[str] = mapped_column(String, primary_key=True)
    user_id: Mapped[str] = mapped_column(String, primary_key=True)
    key_id: Mapped[str] = mapped_column(String, primary_key=True)
    service_tier: Mapped[str] = mapped_column(String, primary_key=True)
    workload_class: Mapped[int] = mapped_column(SmallInteger, primary_key=True)


class LedgerLineDayRow(_LineSum, Base):
    """Sums of the newest versions' lines by UTC day, kept in the same transaction as each version (pages read it)."""

    __tablename__ = "ledger_line_day"
    day: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class LedgerLineMonthRow(_LineSum, Base):
    """The same by UTC month."""

    __tablename__ = "ledger_line_month"
    month: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class _KindSum(LineSums):
    """Deployment, kind and token kind of a line."""

    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)


class LedgerKindDayRow(_KindSum, Base):
    """The same by UTC day without whom it served: what a question that names no tenant reads."""

    __tablename__ = "ledger_kind_day"
    day: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class LedgerKindHourRow(_KindSum, Base):
    """The same by hour: the edges of such a question, and days of zones that differ from UTC by whole hours."""

    __tablename__ = "ledger_kind_hour"
    hour: Mapped[datetime] = mapped_column(Utc, primary_key=True, sort_order=-1)


class LedgerWindowDayRow(Base):
    """Newest versions of closed windows by UTC day and what they rest on; ``last`` is the start of the latest of them."""

    __tablename__ = "ledger_window_day"
    day: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    currency: Mapped[str] = mapped_column(String(3), primary_key=True)
    price_source: Mapped[str] = mapped_column(String, primary_key=True)
    utilisation_source: Mapped[str] = mapped_column(String, primary_key=True)
    weight_source: Mapped[str] = mapped_column(String, primary_key=True)
    state: Mapped[str] = mapped_column(String, primary_key=True)
    windows: Mapped[int] = mapped_column(BigInteger, nullable=False)
    engine_in: Mapped[int] = mapped_column(BigInteger, nullable=False)
    engine_out: Mapped[int] = mapped_column(BigInteger, nullable=False)
    gateway_in: Mapped[int] = mapped_column(BigInteger, nullable=False)
    gateway_out: Mapped[int] = mapped_column(BigInteger, nullable=False)
    last: Mapped[datetime] = mapped_column(Utc, nullable=False)


class RunningRateRow(Base):
    """The unit rates an open quarter hour is estimated with, frozen at first need so that its running cost never falls."""

    __tablename__ = "running_rate"
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    window_start: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    currency: Mapped[str] = mapped_column(String(3), nullable=False)
    source: Mapped[str] = mapped_column(String, nullable=False)
    units: Mapped[dict[str, Any]] = mapped_column(JSONB, nullable=False)  # decimals as text, see core.running


class LedgerHeadRow(Base):
    """The newest version of each closed window (so that readers need no window function)."""

    __tablename__ = "ledger_head"
    cluster: Mapped[str] = mapped_column(String, primary_key=True)
    namespace: Mapped[str] = mapped_column(String, primary_key=True)
    model_id: Mapped[str] = mapped_column(String, primary_key=True)
    window_start: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    version: Mapped[int] = mapped_column(Integer, nullable=False)

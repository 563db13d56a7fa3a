"""Answers of the read routes. Grouping keys stand in a row only when `by` asked for them."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, Field

from api.schemas.breakers import BreakerOut
from api.schemas.budgets import BudgetOut
from api.schemas.meta import Meta
from api.schemas.types import AmountOut, CostBasis, Time


class Keys(BaseModel):
    """Grouping keys, present as asked for."""

    quarter_hour: Time | None = None
    minute: Time | None = None
    hour: Time | None = None
    day: Time | date | None = Field(None, description="Day in the reporting zone: its date, or the instant it begins.")
    deployment: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    model_id: str | None = None
    org: str | None = None
    team: str | None = None
    project: str | None = None
    user: str | None = None
    key_id: str | None = None
    key_alias: str | None = Field(None, description="Beside `key_id`: what its gateway calls the key, '' where not known.")
    service_tier: str | None = None
    status: str | None = None
    usage_source: str | None = None
    workload_class: int | None = None
    kind: str | None = None
    token_kind: str | None = None


class UsageRow(Keys):
    requests: int
    errors: int
    aborted: int
    refused: int
    estimated: int = Field(description="Requests whose counts the gateway estimated.")
    missing: int = Field(description="Requests without any counts: their tokens are not in this row.")
    operations: int = Field(description="What was asked, however many attempts (retries, fallbacks) it took.")
    attempts: int = Field(description="Requests sent to a model; equal to `requests`.")
    attempts_end_unknown: int = Field(
        description="Failed attempts which may or may not have been tried again: at most so many operations more."
    )
    input_uncached: int
    input_cache_read: int
    input_cache_write_5m: int
    input_cache_write_1h: int
    output: int
    output_reasoning: int = Field(description="Part of output.")
    wasted_input: int = Field(description="Part of the input: what failed or was left by its caller.")
    wasted_output: int = Field(description="Part of output: what failed or was left by its caller.")


class UsageOut(BaseModel):
    rows: list[UsageRow]
    total_rows: int
    meta: Meta


class TokenSums(BaseModel):
    input: int
    input_cached: int
    output: int


class UnitCostRow(Keys):
    """`cost` is everything the group bears on this basis; the usage basis leaves idle and starting time out."""

    currency: str
    basis: CostBasis
    requests: int
    tokens: TokenSums
    cost: AmountOut | None
    cost_without_tokens: AmountOut | None = Field(
        description="Part of `cost` of quarter hours without work: in blended and per request, in the price of no token kind."
    )
    wasted_cost: AmountOut | None
    unattributed_cost: AmountOut | None
    idle_cost: AmountOut | None
    starting_cost: AmountOut | None
    input_per_mtok: AmountOut | None
    input_cached_per_mtok: AmountOut | None
    output_per_mtok: AmountOut | None
    blended_per_mtok: AmountOut | None
    per_request: AmountOut | None
    reasons: dict[str, str] = Field(description="Field -> why it is null.")
    meta: Meta


class UnitCostOut(BaseModel):
    rows: list[UnitCostRow]
    total_rows: int
    meta: Meta


class LedgerRow(Keys):
    """Lines summed. `cost` is the work's own (usage basis), `allocated` with idle and starting time borne by the work; over all
    lines of a deployment each adds up to its capacity cost exactly."""

    currency: str
    tokens: int
    requests: int
    cost: AmountOut
    allocated: AmountOut


class LedgerOut(BaseModel):
    rows: list[LedgerRow]
    total_rows: int
    meta: Meta


class LedgerWindowOut(BaseModel):
    """One version of one closed quarter hour of one deployment."""

    deployment: str
    window_start: Time
    version: int
    state: str = Field(description="provisional (by rates), trued_up (by bills) or final (by invoices).")
    currency: str
    charged_cost: AmountOut | None = Field(description="The part of the capacity cost that bills say; null: none is billed.")
    estimate_cost: AmountOut | None = Field(description="Of a billed quarter hour: what rates alone say; null: they do not tell.")
    capacity_cost: AmountOut | None = Field(description="null: a price or the inventory is unknown; `detail.reason` says which.")
    used_cost: AmountOut | None
    utilisation_ppm: int | None
    utilisation_source: str
    weight_source: str
    price_source: str
    engine_prompt_tokens: int | None
    engine_generation_tokens: int | None
    gateway_input_tokens: int
    gateway_output_tokens: int
    detail: dict[str, Any]
    closed_at: Time


class LedgerWindowsOut(BaseModel):
    windows: list[LedgerWindowOut]
    total_rows: int


class CoverageReason(BaseModel):
    """How much of engine minus gateway it is: positive where the engines did more; null where that cannot be told."""

    name: str = Field(examples=["parallel_answers", "unfinished", "estimated_stream", "unattributed", "over_explained"])
    tokens_in: int | None
    tokens_out: int | None
    requests: int | None
    known: str = Field(description="How this is known.")
    rests_in: int | None = Field(None, description="Gateway tokens that rest on it (estimates, failed rows).")
    rests_out: int | None = None
    count: int | None = Field(None, description="How often (engine_reset).")
    seconds: float | None = Field(None, description="How long (scrape_gap).")


class CoverageRow(Keys):
    engine_prompt_tokens: int | None = Field(description="null: no engine was scraped.")
    engine_generation_tokens: int | None
    gateway_input_tokens: int
    gateway_output_tokens: int
    coverage: float | None = Field(description="Gateway tokens / engine tokens; null when the engine's are absent or zero.")
    difference_in: int | None = Field(description="Engine - gateway of deployments whose engines were seen.")
    difference_out: int | None
    reasons: list[CoverageReason] | None = Field(
        description="Their known tokens add up to the difference exactly; null: they were not looked for."
    )


class CoverageOut(BaseModel):
    rows: list[CoverageRow]
    total_rows: int
    meta: Meta


class AuditOut(BaseModel):
    seq: int
    at: Time
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]
    prev_hash: str
    hash: str


class AuditsOut(BaseModel):
    records: list[AuditOut]
    next: int | None = Field(description="Pass as `before` for the next page; null: that was all.")


class AuditVerdictOut(BaseModel):
    intact: bool
    records: int = Field(description="Records found good, from the first on.")
    last_hash: str
    broken_seq: int | None = Field(description="The first broken record.")
    reason: str


class QuarantineCount(BaseModel):
    field: str
    reason: str
    records: int
    last_at: Time


class FaultOut(BaseModel):
    kind: str
    source: str
    window_start: Time
    window_end: Time
    detail: dict[str, Any]
    noticed_at: Time


class QualityOut(BaseModel):
    quarantined: list[QuarantineCount]
    faults: list[FaultOut]
    faults_total: int
    meta: Meta


class SeriesPoint(BaseModel):
    """Spend in one hour or day of the reporting zone."""

    start: Time
    end: Time
    cost: AmountOut | None = Field(description="null: unknown there, see `reason`.")
    currency: str | None
    state: Literal["closed", "estimate", "unknown"]
    reason: str = ""


class Compared(BaseModel):
    """A figure now and in the period before, each null with a reason when undefined."""

    now: AmountOut | None
    now_reason: str
    before: AmountOut | None
    before_reason: str


class OverviewOut(BaseModel):
    """The Overview page in one answer. `period` is the reporting month unless `from` and `to` were given."""

    spend: AmountOut | None
    spend_reason: str = Field(description="Why it is null, or what is missing from it.")
    spend_state: Literal["estimate", "provisional"]
    spend_before: AmountOut | None = Field(description="The period before, up to the same elapsed time.")
    spend_before_reason: str
    unit_cost_per_mtok: Compared = Field(description="Blended cost of a million tokens.")
    idle_share: str | None = Field(description="Idle cost / capacity cost of the closed windows.")
    idle_reason: str
    tokens_input: int
    tokens_output: int
    requests: int
    budgets: list[BudgetOut]
    breakers_not_closed: list[BreakerOut]
    series: list[SeriesPoint]
    series_step: Literal["hour", "day"]
    meta: Meta

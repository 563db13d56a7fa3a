"""Who the used cost of a window belongs to: weights of work per token kind, and an exact split (design 4.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Literal, NamedTuple

from core.money import CONTEXT, ZERO, split

LineKind = Literal["served", "wasted", "unattributed", "idle", "starting"]
TokenKind = Literal["input", "input_cached", "output", ""]

CACHED_SHARE = Decimal("0.1")
"""Without a fit the KV share of a cached token is not measurable; assumed a tenth of an uncached one (the field's list ratio)."""

LIST_INPUT, LIST_OUTPUT = Decimal(1), Decimal(2)
MIN_COMPUTED_TOKENS, MIN_GENERATED_TOKENS = 1_000, 100
"""Less work than this in a period says nothing about seconds per token."""


class LineKey(NamedTuple):
    """What a ledger line is about. Absent parts are ''; ``workload_class`` 0 is "not scored"."""

    kind: LineKind
    token_kind: TokenKind = ""
    org: str = ""
    team: str = ""
    project: str = ""
    user: str = ""
    key_id: str = ""
    service_tier: str = ""
    workload_class: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Sums of tokens and requests. ``input_uncached`` includes cache writes; ``kv_work_x2`` = Σ 2·output·(input + output/2)."""

    requests: int = 0
    input_uncached: int = 0
    input_cached: int = 0
    output: int = 0
    kv_work_x2: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.requests + other.requests,
            self.input_uncached + other.input_uncached,
            self.input_cached + other.input_cached,
            self.output + other.output,
            self.kv_work_x2 + other.kv_work_x2,
        )

    def tokens(self, kind: TokenKind) -> int:
        return {"input": self.input_uncached, "input_cached": self.input_cached, "output": self.output, "": 0}[kind]


@dataclass(frozen=True, slots=True)
class UsageSum:
    """One rollup row of a window: identity, outcome and work."""

    org: str
    team: str
    project: str
    user: str
    key_id: str
    service_tier: str
    workload_class: int
    status: str
    usage_source: str
    work: Work


@dataclass(frozen=True, slots=True)
class EngineTotals:
    """What the engines counted in the window; ``prompt_cached`` is part of ``prompt``."""

    prompt: int
    prompt_cached: int
    generation: int


@dataclass(frozen=True, slots=True)
class PeriodWork:
    """Engine seconds and tokens of a period, for the measured prefill : decode weights. Microseconds summed over requests."""

    name: str
    prefill_us: int
    decode_us: int
    computed_tokens: int
    generated_tokens: int

    def tells(self) -> bool:
        enough = self.computed_tokens >= MIN_COMPUTED_TOKENS and self.generated_tokens >= MIN_GENERATED_TOKENS
        return enough and self.prefill_us > 0 and self.decode_us > 0


@dataclass(frozen=True, slots=True)
class Weights:
    """Work per token (per KV token-step for ``kv``), in microseconds or, for list weights, in input tokens."""

    source: str
    input: Decimal
    input_cached: Decimal
    output: Decimal
    kv: Decimal = ZERO
    detail: Mapping[str, str] = field(default_factory=dict)

    def of(self, work: Work) -> dict[TokenKind, Decimal]:
        """Weight of each token kind. KV reading is borne by the tokens that lie in the cache, in proportion, so a cached token
        weighs its KV share and an uncached one that plus its prefill."""
        with localcontext(CONTEXT):
            kv_total = self.kv * work.kv_work_x2 / 2
            held_x2 = 2 * work.input_uncached + 2 * work.input_cached + work.output
            per_held = kv_total / held_x2 if held_x2 else ZERO
            return {
                "input": work.input_uncached * (self.input + 2 * per_held),
                "input_cached": work.input_cached * (self.input_cached + 2 * per_held),
                "output": work.output * (self.output + per_held),
            }

    def total(self, work: Work) -> Decimal:
        with localcontext(CONTEXT):
            return sum(self.of(work).values(), ZERO)


@dataclass(frozen=True, slots=True)
class Share:
    """A named part of the used cost."""

    key: LineKey
    tokens: int
    requests: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class Allocation:
    """Shares add up to the used cost exactly. ``over_explained``: gateway tokens beyond the engine's, by type (not costed)."""

    shares: tuple[Share, ...]
    weight_sum: Decimal
    unattributed: Work
    over_explained: Mapping[str, int]
    missing_requests: int
    refused_requests: int


def measured_weights(period: PeriodWork) -> Weights:
    """Prefill seconds per computed prompt token : decode seconds per generated token of the period."""
    with localcontext(CONTEXT):
        per_input = Decimal(period.prefill_us) / period.computed_tokens
        per_output = Decimal(period.decode_us) / period.generated_tokens
        detail = {"period": period.name, "cached": f"assumed {CACHED_SHARE} of uncached (KV share not measured)"}
        return Weights("measured prefill:decode seconds", per_input, per_input * CACHED_SHARE, per_output, detail=detail)


def list_weights() -> Weights:
    """1 : 2, the last resort when nothing was measured."""
    return Weights("list 1:2 (last resort)", LIST_INPUT, LIST_INPUT * CACHED_SHARE, LIST_OUTPUT)


def choose_weights(fit: Weights | None, periods: Sequence[PeriodWork]) -> Weights:
    """The accepted fit, else the first period that holds enough work, else list weights."""
    if fit is not None:
        return fit
    telling = next((p for p in periods if p.tells()), None)
    return measured_weights(telling) if telling else list_weights()


def allocate(used: Decimal, usage: Iterable[UsageSum], engine: EngineTotals | None, weights: Weights) -> Allocation:
    """Share ``used`` by weight over tenants' served and wasted work and the work no usage record explains.

    Unattributed per token type = max(0, engine − gateway); without engine counters it is unknown and no line is made.
    With nothing to weigh, all of ``used`` is one unattributed line. Sums are taken in the order of the lines' keys, so that the
    order of ``usage`` does not show even in the last of 50 digits.
    """
    rows = list(usage)
    work = _by_tenant(rows)
    missing = sum(r.work.requests for r in rows if r.usage_source == "missing" and r.status != "refused")
    refused = sum(r.work.requests for r in rows if r.status == "refused")
    gateway = sum((r.work for r in rows), Work())
    unattributed, over = _unexplained(gateway, engine)
    if any(unattributed.tokens(kind) for kind in ("input", "input_cached", "output")) or missing:
        bucket = LineKey("unattributed")
        work[bucket] = Work(missing, *_tokens_of(unattributed))
    weighed: dict[LineKey, Decimal] = {}
    counted: dict[LineKey, tuple[int, int]] = {}
    for key, sums in sorted(work.items()):
        _weigh(key, sums, weights, weighed, counted)
    with localcontext(CONTEXT):
        weight_sum = sum(weighed.values(), ZERO)
    if weight_sum <= 0 < used:
        lone = LineKey("unattributed")
        weighed, counted = {**weighed, lone: Decimal(1)}, {**counted, lone: counted.get(lone, (0, 0))}
    costs = split(used, weighed) if any(weighed.values()) else dict.fromkeys(weighed, ZERO)
    shares = tuple(Share(key, *counted[key], costs[key]) for key in sorted(weighed))
    return Allocation(shares, weight_sum, unattributed, over, missing, refused)


def _by_tenant(rows: Iterable[UsageSum]) -> dict[LineKey, Work]:
    """Served and wasted work by tenant; what a guard refused and what nobody counted is not a tenant's work."""
    found: dict[LineKey, Work] = {}
    for row in rows:
        if row.usage_source == "missing" or (row.status == "refused" and not _tokens_any(row.work)):
            continue
        key = LineKey(
            "served" if row.status == "ok" else "wasted", "",
            row.org, row.team, row.project, row.user, row.key_id, row.service_tier, row.workload_class,
        )  # fmt: skip
        found[key] = found.get(key, Work()) + row.work
    return found


def _unexplained(gateway: Work, engine: EngineTotals | None) -> tuple[Work, dict[str, int]]:
    if engine is None:
        return Work(), {}
    lacking_in = engine.prompt - gateway.input_uncached - gateway.input_cached
    lacking_out = engine.generation - gateway.output
    prompt, output = max(0, lacking_in), max(0, lacking_out)
    cached = min(prompt, max(0, engine.prompt_cached - gateway.input_cached))
    kv_x2 = output * gateway.kv_work_x2 // gateway.output if gateway.output else output * (2 * prompt + output)
    over = {name: -lack for name, lack in (("input", lacking_in), ("output", lacking_out)) if lack < 0}
    return Work(0, prompt - cached, cached, output, kv_x2), over


def _weigh(
    key: LineKey, work: Work, weights: Weights, weighed: dict[LineKey, Decimal], counted: dict[LineKey, tuple[int, int]]
) -> None:
    """One line per token kind that has tokens; the requests stand on the first of them, so that they add up once."""
    requests = work.requests
    for token_kind, weight in weights.of(work).items():
        tokens = work.tokens(token_kind)
        if tokens:
            line = LineKey(key.kind, token_kind, *key[2:])
            weighed[line], counted[line] = weight, (tokens, requests)
            requests = 0
    if requests:
        weighed[key], counted[key] = ZERO, (0, requests)


def _tokens_of(work: Work) -> tuple[int, int, int, int]:
    return work.input_uncached, work.input_cached, work.output, work.kv_work_x2


def _tokens_any(work: Work) -> bool:
    return bool(work.input_uncached or work.input_cached or work.output)

"""How well a deployment's engines are used: sums divided last, unknown with its reason.

Every figure comes from additive sums of ``core.engine_spread`` over the engines of a deployment and a step of time, so that a
day's figure is the day's own and no mean of means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal, localcontext

from core.memory_growth import MemoryGrowth
from core.money import CONTEXT

PLACES = Decimal("1e-6")
NOT_SEEN = "no engine page was read"
NO_NAME = "the engine's page has no such metric"
IDLE = "nothing ran"
NO_PLUGIN = "not measurable here: the engine does not tell PyTorch's memory (deploy/engine_plugin)"
NO_PAIRS = "too few windows at equal load to tell growth from use"
NOT_BY_STEP = "told for the whole time range only (step none)"


@dataclass(frozen=True, slots=True)
class EngineSums:
    """One engine in one step of time; names and units as in ``core.engine_spread``."""

    observed_us: int = 0
    busy_us: int = 0
    saturated_us: int = 0
    gap_us: int = 0
    running_us: int = 0
    waiting_us: int = 0
    kv_token_us: int = 0
    kv_seen_us: int = 0
    kv_full_us: int = 0
    kv_capacity_us: int = 0
    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    prompt_tokens_computed: int = 0
    generation_tokens: int = 0
    finished_generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    requests_finished: int = 0
    steps: int = 0
    iteration_tokens: int = 0
    preemptions: int = 0
    queue_us: int = 0
    prefill_us: int = 0
    decode_us: int = 0
    torch_seen_us: int = 0
    torch_reserved_mib_us: int = 0
    torch_allocated_mib_us: int = 0


SUMS: tuple[str, ...] = tuple(f.name for f in fields(EngineSums))


@dataclass(frozen=True, slots=True)
class GpuSums:
    """The deployment's GPUs in one step; names and units as in ``core.gpu_spread``."""

    memory_used_mib_us: int = 0
    memory_total_mib_us: int = 0
    memory_seen_us: int = 0
    power_uj: int = 0
    power_seen_us: int = 0
    energy_uj: int = 0
    energy_seen_us: int = 0


@dataclass(frozen=True, slots=True)
class Efficiency:
    """``values``: name -> figure or None; ``reasons``: why a figure is None; ``notes``: what makes a figure less sure."""

    engines: int
    values: Mapping[str, Decimal | None]
    reasons: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)


FIGURES: Mapping[str, str] = {
    "kv_use": "Share of the KV cache in use: time-weighted, engines weighted by capacity",
    "kv_use_max": "The fullest engine's time-weighted share of its KV cache",
    "hit_rate": "Prompt tokens found in the prefix cache / looked up",
    "busy_share": "Observed time with requests running / observed time",
    "batch_gap": "Observed time with nothing running / time with requests running",
    "running_mean": "Requests running at once on an engine, mean over observed time",
    "waiting_mean": "Requests waiting at once on an engine, mean over observed time",
    "saturated_share": "Observed time with requests waiting / observed time",
    "tokens_per_step": "Tokens worked on / engine steps",
    "batch_efficiency": "Tokens per step / max_num_batched_tokens",
    "queue_s": "Mean seconds a finished request waited",
    "prefill_s": "Request-seconds of prefill (they overlap in a batch)",
    "decode_s": "Request-seconds of decode (they overlap in a batch)",
    "prefill_ms_per_token": "Prefill request-milliseconds / computed prompt token",
    "decode_ms_per_token": "Decode request-milliseconds / token after a request's first",
    "output_tokens_per_busy_s": "Generated tokens / second with requests running",
    "memory_share": "GPU memory in use / GPU memory, time-weighted",
    "fragmentation": "GPU memory PyTorch holds and no tensor uses / held, time-weighted",
    "memory_growth_mib_h": "Growth of the memory tensors use, MiB an hour: median between windows of equal load, fastest engine",
    "power_w": "Mean electrical power of one of the deployment's GPUs",
    "preemptions": "Requests pushed out of the KV cache",
    "gap_s": "Engine-seconds no page tells of",
}
"""Every figure and what it means, in the order shown."""


def efficiency(
    engines: Sequence[EngineSums],
    *,
    max_batched_tokens: int | None = None,
    gpus: GpuSums | None = None,
    gpu_reason: str = "",
    growth: MemoryGrowth | None = None,
    growth_reason: str = NO_PAIRS,
) -> Efficiency:
    """The figures of one deployment in one step. ``max_batched_tokens``, ``gpus`` and ``growth`` None: not known."""
    whole = _total(engines)
    figures = _Figures()
    _occupancy(figures, engines, whole)
    _work(figures, whole, max_batched_tokens)
    _gpus(figures, gpus, gpu_reason or "not measured: no GPU exporter is read for the deployment's nodes")
    _torch(figures, whole, growth, growth_reason)
    figures.put("preemptions", Decimal(whole.preemptions))
    figures.put("gap_s", _ratio(whole.gap_us, 1_000_000))
    ordered = {name: figures.values[name] for name in FIGURES}
    return Efficiency(len(engines), ordered, figures.reasons, _notes(whole, growth))


def _total(engines: Sequence[EngineSums]) -> EngineSums:
    return EngineSums(*(sum(getattr(engine, name) for engine in engines) for name in SUMS))


class _Figures:
    def __init__(self) -> None:
        self.values: dict[str, Decimal | None] = {}
        self.reasons: dict[str, str] = {}

    def put(self, name: str, value: Decimal | None, reason: str = "") -> None:
        self.values[name] = value
        if value is None:
            self.reasons[name] = reason

    def share(self, name: str, part: int, whole: int, reason: str) -> None:
        self.put(name, _ratio(part, whole) if whole else None, reason)


def _occupancy(figures: _Figures, engines: Sequence[EngineSums], whole: EngineSums) -> None:
    observed = whole.observed_us
    no_kv = NO_NAME if observed else NOT_SEEN
    if whole.kv_capacity_us:
        figures.share("kv_use", whole.kv_token_us, whole.kv_capacity_us, "")
    else:
        figures.share("kv_use", whole.kv_full_us, whole.kv_seen_us, no_kv)
    fullest = [_ratio(engine.kv_full_us, engine.kv_seen_us) for engine in engines if engine.kv_seen_us]
    figures.put("kv_use_max", max(fullest, default=None), no_kv)
    figures.share("busy_share", whole.busy_us, observed, NOT_SEEN)
    figures.share("batch_gap", observed - whole.busy_us, whole.busy_us, IDLE if observed else NOT_SEEN)
    figures.share("running_mean", whole.running_us, observed, NOT_SEEN)
    figures.share("waiting_mean", whole.waiting_us, observed, NOT_SEEN)
    figures.share("saturated_share", whole.saturated_us, observed, NOT_SEEN)
    hits, looked_up = (
        (whole.prefix_hits, whole.prefix_queries)
        if whole.prefix_queries
        else (whole.prompt_tokens_cached, whole.prompt_tokens_cached + whole.prompt_tokens_computed)
    )
    figures.share("hit_rate", hits, looked_up, _no_work(whole, whole.prompt_tokens))


def _work(figures: _Figures, whole: EngineSums, max_batched_tokens: int | None) -> None:
    no_steps = _no_work(whole, whole.generation_tokens)
    figures.share("tokens_per_step", whole.iteration_tokens, whole.steps, no_steps)
    if max_batched_tokens:
        figures.share("batch_efficiency", whole.iteration_tokens, whole.steps * max_batched_tokens, no_steps)
    else:
        figures.put("batch_efficiency", None, "max_num_batched_tokens of its engines is not known")
    done = whole.requests_finished
    for name, total_us in (("prefill_s", whole.prefill_us), ("decode_s", whole.decode_us)):
        known = bool(total_us or not whole.prompt_tokens)
        figures.put(name, _ratio(total_us, 1_000_000) if known and _seen(whole) else None, _no_work(whole, whole.prompt_tokens))
    figures.share("queue_s", whole.queue_us, done * 1_000_000, "no request finished")
    computed = whole.prompt_tokens_computed if whole.prefill_us else 0
    figures.share("prefill_ms_per_token", whole.prefill_us, computed * 1000, _no_work(whole, whole.prompt_tokens))
    finished = whole.finished_generation_tokens or whole.generation_tokens
    later = max(0, finished - done) if whole.decode_us else 0
    figures.share("decode_ms_per_token", whole.decode_us, later * 1000, _no_work(whole, whole.generation_tokens))
    reason = IDLE if whole.observed_us else NOT_SEEN
    figures.share("output_tokens_per_busy_s", whole.generation_tokens * 1_000_000, whole.busy_us, reason)


def _gpus(figures: _Figures, gpus: GpuSums | None, reason: str) -> None:
    if gpus is None:
        figures.put("memory_share", None, reason)
        figures.put("power_w", None, reason)
        return
    figures.share("memory_share", gpus.memory_used_mib_us, gpus.memory_total_mib_us, NO_NAME)
    drawn, seen = (gpus.energy_uj, gpus.energy_seen_us) if gpus.energy_seen_us else (gpus.power_uj, gpus.power_seen_us)
    figures.share("power_w", drawn, seen, NO_NAME)


def _torch(figures: _Figures, whole: EngineSums, growth: MemoryGrowth | None, growth_reason: str) -> None:
    if not whole.torch_seen_us:
        reason = NO_PLUGIN if _seen(whole) else NOT_SEEN
        figures.put("fragmentation", None, reason)
        figures.put("memory_growth_mib_h", None, reason)
        return
    held, used = whole.torch_reserved_mib_us, whole.torch_allocated_mib_us
    if used > held:
        figures.put("fragmentation", None, "the page says more memory in use than held")
    else:
        figures.share("fragmentation", held - used, held, "PyTorch held no memory")
    figures.put("memory_growth_mib_h", None if growth is None else growth.mib_per_hour, growth_reason)


def _seen(whole: EngineSums) -> bool:
    return bool(whole.observed_us or whole.gap_us)


def _no_work(whole: EngineSums, did: int) -> str:
    return NOT_SEEN if not _seen(whole) else NO_NAME if did else IDLE


def _notes(whole: EngineSums, growth: MemoryGrowth | None) -> dict[str, str]:
    notes = {}
    if whole.preemptions:
        notes["hit_rate"] = "unreliable: requests were pushed out and looked up again; engines before 0.11.1 count that as hits"
    if whole.kv_seen_us and not whole.kv_capacity_us:
        notes["kv_use"] = "plain mean over engines: their KV capacity is not known"
    if growth is not None:
        notes["memory_growth_mib_h"] = f"by {growth.windows} windows over {growth.hours.normalize():f} hours"
    return notes


def _ratio(part: int, whole: int) -> Decimal:
    with localcontext(CONTEXT):
        return (Decimal(part) / whole).quantize(PLACES)

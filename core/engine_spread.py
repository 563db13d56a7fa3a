"""What happened between two neighbouring scrapes of one engine, in whole numbers, spread over minutes.

Measures of an interval ``(a, b]`` (all additive; unit in the name; names equal ``models.tables_usage.ENGINE_MEASURES``):

==================  ==================================================================================================
counters            increase of each canonical counter (``core.engine.COUNTERS``); after a reset the new value. A page
                    without the name adds nothing; the increase falls into the interval where the name is back. A value
                    lower than before in the same process (half a sum was missing) adds nothing until it is passed.
observed_us         elapsed time, when both ends say how many requests run and the interval is no gap
gap_us              elapsed time otherwise: the silence is longer than ``gap_threshold_ms``, the engine restarted in it,
                    a stranger process answered, or ``running`` is missing at an end. observed_us + gap_us = elapsed.
busy_us             observed time with running > 0: all of it when requests run at both ends, half when at one. At
                    neither: min(elapsed, increase of inference_us), the run time of what came and went in between;
                    half when that counter is missing and prompt, generation or step counters moved; else none.
saturated_us        observed time with waiting > 0: all, half or none of it by the two ends
running_us          observed time x mean of running at the two ends (request-microseconds)
waiting_us          the same of waiting
kv_token_us         observed time x mean KV tokens held at the two ends (KV use x capacity)
kv_token_steps      mean KV tokens held x steps of the interval, observed time only
kv_seen_us          observed time with KV use known at both ends
kv_full_us          that time x mean share of the KV cache in use: kv_full_us / kv_seen_us is the plain mean over engines
kv_capacity_us      observed time x KV capacity in tokens: kv_token_us / kv_capacity_us is the capacity-weighted mean
torch_seen_us       observed time with PyTorch's memory known at both ends (``deploy/engine_plugin``)
torch_reserved_     that time x mean MiB PyTorch's allocator holds on the GPUs of the engine's page, and those of them that
mib_us, torch_      tensors use; several engines on one page cannot be told apart: the first carries all of it
allocated_mib_us
samples             scrapes placed in this minute (the first of an engine too)
resets              restarts noticed by the scrape in this minute
==================  ==================================================================================================

Unknown is visible, not zero: ``prompt_tokens - prompt_tokens_cached - prompt_tokens_computed`` is the prompt whose split
the engine does not tell; ``generation_tokens`` > 0 with ``steps`` = 0, or ``running_us`` > 0 with ``kv_token_us`` = 0,
means that the page has no such name. Tokens of a gap did happen: they are spread over it, beside its ``gap_us``.
"""

from __future__ import annotations

from typing import Literal

from core.engine import COUNTERS, GAUGES
from core.spread import MAX_SPREAD_MS, MOST, Known, Labels, Minutes, Reading, bucket, gap_threshold_ms, spread
from core.windows import MINUTE_MS

MEASURES: tuple[str, ...] = (
    *COUNTERS, "observed_us", "busy_us", "saturated_us", "gap_us", "running_us", "waiting_us",
    "kv_token_us", "kv_token_steps", "kv_seen_us", "kv_full_us", "kv_capacity_us",
    "torch_seen_us", "torch_reserved_mib_us", "torch_allocated_mib_us", "samples", "resets",
)  # fmt: skip
INDEX = {name: position for position, name in enumerate(MEASURES)}
MOVED_MS = 1_000
"""A start or creation stamp is the same within this, later beyond it: a new process."""

TORCH = slice(GAUGES.index("torch_reserved_mib"), GAUGES.index("torch_allocated_mib") + 1)
TOKENS = (INDEX["prompt_tokens"], INDEX["generation_tokens"])
Passage = Literal["same", "restarted", "fell", "stranger"]
"""Between two samples: one process ran on; a stamp says that it restarted; a token counter fell, so it restarted; or the later
page comes from a process that started before the one seen, so several answer at one address and nothing can be said."""


def passage(a: Reading, base: Known, b: Reading) -> Passage:
    """Only the token counters tell a restart by value (any counter where a page has neither): each is one series of the page,
    while a sum over several series falls when one of them is missing."""
    stamps = ((a.started_ms, b.started_ms), (a.created_ms, b.created_ms))
    known = [(old, new) for old, new in stamps if old is not None and new is not None]
    if any(new > old + MOVED_MS for old, new in known):
        return "restarted"
    if any(new < old - MOVED_MS for old, new in known):
        return "stranger"
    pairs = [(old, new) for old, new in zip(base, b.counters, strict=True) if old is not None and new is not None]
    tokens = [(base[i], b.counters[i]) for i in TOKENS if base[i] is not None and b.counters[i] is not None]
    return "fell" if any(new < old for old, new in tokens or pairs) else "same"  # type: ignore[operator]


def origin(a: Reading, base: Known, b: Reading) -> Known:
    """What to count b from: a's values; zero after a restart; unknown when b's process lived before we watched it."""
    found = passage(a, base, b)
    if found == "same":
        return base
    born = born_ms(b)
    unseen = found == "restarted" and born is not None and b.watched_ms is not None and born < min(a.at_ms, b.watched_ms)
    return (None if unseen or found == "stranger" else 0,) * len(base)


def carry(a: Reading, base: Known, b: Reading) -> Known:
    """The counters known at b. A name absent on its page, or lower though the process is the same, keeps the value it had."""
    return tuple(
        old if new is None else new if old is None else max(old, new)
        for old, new in zip(origin(a, base, b), b.counters, strict=True)
    )


def born_ms(reading: Reading) -> int | None:
    """When this engine's counters were zero, where the page tells."""
    return reading.created_ms if reading.created_ms is not None else reading.started_ms


def add_first(minutes: Minutes, b: Reading) -> None:
    """The first sample ever seen: a baseline, or everything since its birth when it was born while we watched."""
    _bucket(minutes, b.at_ms // MINUTE_MS * MINUTE_MS, b.labels)[INDEX["samples"]] += 1
    born = born_ms(b)
    if born is None or b.watched_ms is None or not b.watched_ms <= born <= b.at_ms:
        return
    start = max(born, b.at_ms - MAX_SPREAD_MS)
    totals = {i: value for i, value in enumerate(b.counters) if value}
    _spread(minutes, b.labels, {**totals, INDEX["gap_us"]: (b.at_ms - start) * 1000}, start, b.at_ms)


def add_interval(minutes: Minutes, a: Reading, base: Known, b: Reading) -> None:
    """Add what happened in ``(a, b]``. ``base`` is what ``carry`` knows at a."""
    found = passage(a, base, b)
    at_minute = _bucket(minutes, b.at_ms // MINUTE_MS * MINUTE_MS, b.labels)
    at_minute[INDEX["samples"]] += 1
    at_minute[INDEX["resets"]] += int(found in ("restarted", "fell"))
    grown = _grown(origin(a, base, b), b.counters)
    start = max(a.at_ms, b.at_ms - MAX_SPREAD_MS)
    born = born_ms(b) if found == "restarted" else None
    _spread(minutes, b.labels, grown, born if born is not None and start < born <= b.at_ms else start, b.at_ms)
    runs_known = a.gauges[0] is not None and b.gauges[0] is not None
    if found == "same" and runs_known and b.at_ms - a.at_ms <= gap_threshold_ms(a, b):
        times = _observed(a, b, grown, b.at_ms - start)
    else:
        times = {INDEX["gap_us"]: (b.at_ms - start) * 1000}
    _spread(minutes, b.labels, times, start, b.at_ms)


def _grown(base: Known, now: Known) -> dict[int, int]:
    """Increase per counter index, those that grew."""
    return {
        i: new - old
        for i, (old, new) in enumerate(zip(base, now, strict=True))
        if old is not None and new is not None and new > old
    }


def _observed(a: Reading, b: Reading, grown: dict[int, int], elapsed_ms: int) -> dict[int, int]:
    r0, w0, *_ = a.gauges
    r1, w1, *_ = b.gauges
    elapsed_us = elapsed_ms * 1000
    times = {"observed_us": elapsed_us, "busy_us": _busy_us(r0 or 0, r1 or 0, grown, b, elapsed_us)}
    times["running_us"] = ((r0 or 0) + (r1 or 0)) * elapsed_us // 2
    if w0 is not None and w1 is not None:
        times["saturated_us"] = elapsed_us * (int(w0 > 0) + int(w1 > 0)) // 2
        times["waiting_us"] = (w0 + w1) * elapsed_us // 2
    times |= _kv_times(a, b, grown, elapsed_us) | _torch_times(a, b, elapsed_us)
    return {INDEX[name]: value for name, value in times.items() if 0 < value <= MOST}


def _kv_times(a: Reading, b: Reading, grown: dict[int, int], elapsed_us: int) -> dict[str, int]:
    _r0, _w0, use0, capacity0, *_ = a.gauges
    _r1, _w1, use1, capacity1, *_ = b.gauges
    if use0 is None or use1 is None:
        return {}
    times = {"kv_seen_us": elapsed_us, "kv_full_us": (use0 + use1) * elapsed_us // 2_000_000}
    if capacity0 is not None and capacity1 is not None:
        held = use0 * capacity0 + use1 * capacity1
        times["kv_token_us"] = held * elapsed_us // 2_000_000
        times["kv_token_steps"] = held * grown.get(INDEX["steps"], 0) // 2_000_000
        times["kv_capacity_us"] = (capacity0 + capacity1) * elapsed_us // 2
    return times


def _torch_times(a: Reading, b: Reading, elapsed_us: int) -> dict[str, int]:
    reserved0, allocated0 = a.gauges[TORCH]
    reserved1, allocated1 = b.gauges[TORCH]
    if reserved0 is None or allocated0 is None or reserved1 is None or allocated1 is None:
        return {}
    held, used = ((reserved0 + reserved1) * elapsed_us // 2, (allocated0 + allocated1) * elapsed_us // 2)
    return {"torch_seen_us": elapsed_us, "torch_reserved_mib_us": held, "torch_allocated_mib_us": used}


def _busy_us(r0: int, r1: int, grown: dict[int, int], b: Reading, elapsed_us: int) -> int:
    if r0 or r1:
        return elapsed_us if r0 and r1 else elapsed_us // 2
    inference = INDEX["inference_us"]
    if b.counters[inference] is not None:
        return min(elapsed_us, grown.get(inference, 0))
    moved = any(INDEX[name] in grown for name in ("prompt_tokens", "generation_tokens", "steps"))
    return elapsed_us // 2 if moved else 0


def _bucket(minutes: Minutes, minute_ms: int, labels: Labels) -> list[int]:
    return bucket(minutes, minute_ms, labels, len(MEASURES))


def _spread(minutes: Minutes, labels: Labels, totals: dict[int, int], lo_ms: int, hi_ms: int) -> None:
    spread(minutes, labels, totals, lo_ms, hi_ms, len(MEASURES))

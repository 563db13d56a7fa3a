"""What happened between two neighbouring readings of one GPU, in whole numbers, spread over minutes.

Measures of an interval ``(a, b]`` (all additive; names equal ``models.tables_gpu.GPU_MEASURES``):

======================  ==============================================================================================
energy_uj               increase of the GPU's own energy counter; after a reset the new value; a gap's energy is in it
energy_seen_us          elapsed time whose energy that is
observed_us, gap_us     elapsed time between readings near enough to tell / too far apart (``gap_threshold_ms``) or with a
                        counter that fell; together they are the elapsed time
X_us of X_seen_us       engine_active, sm_active, util: observed time with the share known at both ends, and that time x the
                        mean of the two shares. X_us / X_seen_us is the mean share; unknown (no X_seen_us) is not zero.
power_uj, power_seen_us the same of the power gauge: energy by sampled power, for GPUs without a counter
memory_used_mib_us,     observed time x mean MiB, where both are known at both ends (``memory_seen_us``)
memory_total_mib_us
samples, resets         readings placed in this minute, the first too; counter resets noticed in it
======================  ==============================================================================================
"""

from __future__ import annotations

from core.gpu import GPU_COUNTERS, GPU_GAUGES
from core.spread import MAX_SPREAD_MS, MOST, Known, Minutes, Reading, bucket, gap_threshold_ms, spread
from core.windows import MINUTE_MS

SHARES: tuple[str, ...] = ("engine_active", "sm_active", "util")
MEASURES: tuple[str, ...] = (
    *GPU_COUNTERS, "energy_seen_us", "observed_us", "gap_us",
    *(f"{name}{part}" for name in SHARES for part in ("_us", "_seen_us")),
    "power_uj", "power_seen_us", "memory_used_mib_us", "memory_total_mib_us", "memory_seen_us", "samples", "resets",
)  # fmt: skip
INDEX = {name: position for position, name in enumerate(MEASURES)}
WIDTH = len(MEASURES)
_GAUGE = {name: position for position, name in enumerate(GPU_GAUGES)}


def add_first(minutes: Minutes, b: Reading) -> None:
    """The first reading ever is a baseline: the GPU drew power long before anybody watched."""
    bucket(minutes, b.at_ms // MINUTE_MS * MINUTE_MS, b.labels, WIDTH)[INDEX["samples"]] += 1


def carry(a: Reading, base: Known, b: Reading) -> Known:
    """The counters known at b. A name absent on its page keeps the value it had; a lower one is a new start."""
    return tuple(old if new is None else new for old, new in zip(base, b.counters, strict=True))


def add_interval(minutes: Minutes, a: Reading, base: Known, b: Reading) -> None:
    """Add what happened in ``(a, b]``. ``base`` is what ``carry`` knows at a."""
    pairs = [(old, new) for old, new in zip(base, b.counters, strict=True) if old is not None and new is not None]
    fell = any(new < old for old, new in pairs)
    row = bucket(minutes, b.at_ms // MINUTE_MS * MINUTE_MS, b.labels, WIDTH)
    row[INDEX["samples"]] += 1
    row[INDEX["resets"]] += int(fell)
    start = max(a.at_ms, b.at_ms - MAX_SPREAD_MS)
    elapsed_us = (b.at_ms - start) * 1000
    totals = {i: new - old if new >= old else new for i, (old, new) in enumerate(pairs)}
    if pairs:
        totals[INDEX["energy_seen_us"]] = elapsed_us
    if fell or b.at_ms - a.at_ms > gap_threshold_ms(a, b):
        totals[INDEX["gap_us"]] = elapsed_us
    else:
        totals[INDEX["observed_us"]] = elapsed_us
        totals |= {INDEX[name]: value for name, value in _means(a, b, elapsed_us).items() if value <= MOST}
    spread(minutes, b.labels, {i: value for i, value in totals.items() if value}, start, b.at_ms, WIDTH)


def _means(a: Reading, b: Reading, elapsed_us: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in SHARES:
        both = _both(a, b, f"{name}_ppm")
        if both is not None:
            found |= {f"{name}_us": both * elapsed_us // 2_000_000, f"{name}_seen_us": elapsed_us}
    power_mw = _both(a, b, "power_mw")
    if power_mw is not None:
        found |= {"power_uj": power_mw * elapsed_us // 2_000, "power_seen_us": elapsed_us}
    used, total = _both(a, b, "memory_used_mib"), _both(a, b, "memory_total_mib")
    if used is not None and total is not None:
        found |= {"memory_used_mib_us": used * elapsed_us // 2, "memory_total_mib_us": total * elapsed_us // 2}
        found["memory_seen_us"] = elapsed_us
    return found


def _both(a: Reading, b: Reading, gauge: str) -> int | None:
    """The sum of a gauge's two ends, None unless both are known."""
    first, last = a.gauges[_GAUGE[gauge]], b.gauges[_GAUGE[gauge]]
    return None if first is None or last is None else first + last

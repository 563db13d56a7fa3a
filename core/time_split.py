"""How the reserved time of a deployment's GPUs was spent: used, idle, or with no engine on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from core.capacity import Capacity, NodeService, ServiceCost, TargetTime, TimeSplit
from core.gpu_use import BEFORE_RUNNING, LAST_RESORT, GpuUse, Share
from core.money import ZERO, split

RUNNING = "share of time with running > 0"


def split_time(
    capacity: Capacity,
    times: Sequence[TargetTime],
    *,
    gateway_busy_ppm: int,
    engine_worked: bool,
    gpus: Mapping[NodeService, GpuUse] | None = None,
) -> TimeSplit:
    """Share each service's cost by what its time was (ADR 0003 and 0005 give the order of sources).

    Time with no engine seen is *starting/unserved*. Time in a scrape gap is taken at the utilisation of the time observed in
    the same window. With no observed time at all, and yet usage records, what the GPUs did stands in, else the share of minutes
    in which the gateway saw tokens, named as the source. With neither, GPUs were reserved and no engine is known to have run: all
    of it is starting. One source for all services of a window.
    """
    by_service, unmatched = _pair(capacity.services, times)
    observed = any(t.observed_us for t in by_service.values() if t)
    blind_ppm = gateway_busy_ppm or (1_000_000 if engine_worked else 0)
    served = {c.service: _served_us(by_service[c.service], _us(c.span.duration), observed, blind_ppm) for c in capacity.services}
    better, shares = _by_gpus(served, gpus or {}, observed, engine_worked)
    used = idle = starting = ZERO
    busy_gpu_us = served_gpu_us = 0
    for item in capacity.services:
        span_us = _us(item.span.duration)
        served_us = served[item.service]
        share = shares.get(item.service)
        busy_us = share.of(served_us) if share else _busy_us(by_service[item.service], served_us, blind_ppm)
        parts = split(item.cost, {"busy": busy_us, "idle": served_us - busy_us, "starting": span_us - served_us})
        used, idle, starting = used + parts["busy"], idle + parts["idle"], starting + parts["starting"]
        busy_gpu_us += busy_us * item.service.gpu_count
        served_gpu_us += served_us * item.service.gpu_count
    ppm = busy_gpu_us * 1_000_000 // served_gpu_us if served_gpu_us else None
    notes: dict[str, object] = {"unmatched_targets": unmatched} if unmatched else {}
    gap_us = sum(t.gap_us for t in times)
    if gap_us:
        notes["gap_us"] = gap_us
    return TimeSplit(used, idle, starting, ppm, better or _source(observed, gateway_busy_ppm, engine_worked), notes)


def _served_us(time: TargetTime | None, span_us: int, observed: bool, blind_ppm: int) -> int:
    """Microseconds of a service with an engine on it."""
    if time is not None and time.observed_us:
        return min(span_us, time.observed_us + time.gap_us)
    return 0 if observed or not blind_ppm else span_us


def _busy_us(time: TargetTime | None, served_us: int, blind_ppm: int) -> int:
    if time is not None and time.observed_us:
        return min(served_us, served_us * time.busy_us // time.observed_us)
    return served_us * blind_ppm // 1_000_000


def _by_gpus(
    served: Mapping[NodeService, int], gpus: Mapping[NodeService, GpuUse], observed: bool, engine_worked: bool
) -> tuple[str, dict[NodeService, Share]]:
    """The best GPU share that every service with an engine has, and its name; '' and nothing when there is none.

    A GPU that did nothing while tokens were made is not the one that made them.
    """
    asked = [service for service, served_us in served.items() if served_us]
    for name, title in BEFORE_RUNNING if observed else (*BEFORE_RUNNING, LAST_RESORT):
        found = {s: gpus[s].shares[name] for s in asked if s in gpus and name in gpus[s].shares}
        if not found or len(found) < len(asked) or not all(share.explains(served[s]) for s, share in found.items()):
            continue
        if any(share.active_us for share in found.values()) or not engine_worked:
            return title, found
    return "", {}


def _source(observed: bool, gateway_busy_ppm: int, engine_worked: bool) -> str:
    if observed:
        return RUNNING
    if gateway_busy_ppm:
        return "minutes with gateway tokens (no engine observation)"
    if engine_worked:
        return "assumed 1 (engine counters moved in a scrape gap)"
    return "none: no engine seen"


def _pair(costs: Sequence[ServiceCost], times: Sequence[TargetTime]) -> tuple[dict[NodeService, TargetTime | None], list[str]]:
    """Engine time by service: of the same target; services left without share evenly the time of targets the inventory does not
    name (the same engines under another address), and those targets are reported."""
    by_target = {t.target: t for t in times}
    held_us: dict[str, int] = {}
    for cost in costs:
        held_us[cost.service.target] = held_us.get(cost.service.target, 0) + _us(cost.span.duration)
    known = held_us.keys()
    paired: dict[NodeService, TargetTime | None] = {
        c.service: _part(by_target.get(c.service.target), _us(c.span.duration), held_us[c.service.target]) for c in costs
    }
    lone = [t for t in sorted(times, key=lambda t: t.target) if t.target not in known]
    bare = [c.service for c in costs if paired[c.service] is None]
    if lone and bare:
        count = max(len(lone), len(bare))
        observed, busy, gap = (sum(getattr(t, name) for t in lone) // count for name in ("observed_us", "busy_us", "gap_us"))
        paired.update((service, TargetTime(service.target, observed, busy, gap)) for service in bare)
    return paired, [t.target for t in lone]


def _part(time: TargetTime | None, span_us: int, held_us: int) -> TargetTime | None:
    """A target declared in several spans of one window has its time shared over them."""
    if time is None or span_us == held_us:
        return time
    observed, busy, gap = (value * span_us // held_us for value in (time.observed_us, time.busy_us, time.gap_us))
    return TargetTime(time.target, observed, busy, gap)


def _us(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)

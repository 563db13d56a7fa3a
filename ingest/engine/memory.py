"""What was on a target's last page, to notice what a single page cannot show: what comes and goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from core.engine import EngineKey, EngineSample
from core.gpu import GpuSample
from ingest.engine.faults import Fault
from ingest.engine.parse import ParsedPage

SAME_PROCESS = timedelta(seconds=1)
HELD_FOR = timedelta(minutes=1)
"""A GPU silent for longer at the exporter that showed it may be taken from another one."""
SAY_AGAIN = timedelta(hours=1)
"""Unknown names are listed anew this often, so that it is known how long they were there."""


@dataclass(frozen=True, slots=True)
class _Seen:
    names: frozenset[str]
    started: datetime | None


@dataclass(frozen=True, slots=True)
class Checked:
    """The samples of a page to take, and what changed since the target's last page."""

    engines: list[EngineSample]
    gpus: list[GpuSample]
    faults: list[Fault]


class PageMemory:
    """One per ingest; not shared between threads."""

    def __init__(self) -> None:
        self._seen: dict[EngineKey, _Seen] = {}
        self._unmapped: dict[str, tuple[frozenset[str], datetime]] = {}
        self._holders: dict[tuple[str, str], tuple[str, datetime]] = {}

    def check(self, target: str, at: datetime, page: ParsedPage) -> Checked:
        """A sample whose process started before the one last seen is not taken: several processes answer at one address, and
        the difference of two engines' counters means nothing. Nor is a GPU that another exporter shows already."""
        found = Checked([], [], [])
        for sample in page.samples:
            seen = self._seen.get(sample.key)
            if seen is not None and _is_older(sample.process_started_at, seen.started):
                detail = {"hint": "scrape each engine at its own address, not through a load balancer"}
                found.faults.append(Fault("several_processes", target, at, _name(sample.key), detail))
                continue
            found.engines.append(sample)
            started = sample.process_started_at or (seen.started if seen else None)
            found.faults.extend(self._vanished(sample.key, at, {**sample.counters, **sample.gauges}, started))
        for gpu in page.gpus:
            holder = self._holder(gpu, target, at)
            if holder != target:
                found.faults.append(Fault("gpu_seen_twice", target, at, gpu.key.engine, {"gpu": gpu.gpu, "counted_at": holder}))
                continue
            found.gpus.append(gpu)
            found.faults.extend(self._vanished(gpu.key, at, {**gpu.counters, **gpu.gauges}, None))
        found.faults.extend([*self._gone(target, at, page), *self._new_unmapped(target, at, page)])
        return found

    def _holder(self, gpu: GpuSample, target: str, at: datetime) -> str:
        """The exporter whose readings of this GPU count."""
        key = (gpu.gpu, gpu.mig)
        holder, last = self._holders.get(key, (target, at))
        if holder != target and at - last <= HELD_FOR:
            return holder
        self._holders[key] = (target, max(last, at))
        return target

    def _vanished(self, key: EngineKey, at: datetime, values: Mapping[str, int], started: datetime | None) -> list[Fault]:
        seen, names = self._seen.get(key), frozenset(values)
        self._seen[key] = _Seen(names, started)
        lost = sorted(seen.names - names) if seen else []
        subject = _name(key)
        return [
            Fault("metric_vanished", key.target, at, f"{subject}/{name}", {"name": name, "engine": key.engine}) for name in lost
        ]

    def _gone(self, target: str, at: datetime, page: ParsedPage) -> list[Fault]:
        """Engines and GPUs of this target that this page, which does show others, lacks."""
        here = {sample.key for sample in page.samples} | {gpu.key for gpu in page.gpus}
        gone = sorted((k for k in self._seen if k.target == target and k not in here), key=_name) if here else []
        for key in gone:
            del self._seen[key]
        return [
            Fault("engine_vanished", target, at, _name(key), {"engine": key.engine, "model_id": key.model_id})
            if key.model_id
            else Fault("gpu_vanished", target, at, key.engine, {"gpu": key.engine})
            for key in gone
        ]

    def _new_unmapped(self, target: str, at: datetime, page: ParsedPage) -> list[Fault]:
        known, said_at = self._unmapped.get(target, (frozenset(), at))
        names = known | set(page.unmapped)
        if not set(page.unmapped) - known and at - said_at < SAY_AGAIN:
            return []
        told = sorted(set(page.unmapped)) if at - said_at >= SAY_AGAIN else sorted(set(page.unmapped) - known)
        self._unmapped[target] = (names, at)
        detail = {"names": told, "hint": "add them to a file of ingest/engine/table"}
        return [Fault("unmapped_metrics", target, at, ",".join(told)[:200], detail)] if told else []


def _is_older(started: datetime | None, last: datetime | None) -> bool:
    return started is not None and last is not None and started < last - SAME_PROCESS


def _name(key: EngineKey) -> str:
    return f"{key.engine}/{key.model_id}" if key.model_id else key.engine

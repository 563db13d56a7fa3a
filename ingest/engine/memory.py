"""What was on a target's last page, to notice what a single page cannot show: names, engines and processes that come and go."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from core.engine import EngineKey, EngineSample
from ingest.engine.faults import Fault
from ingest.engine.parse import ParsedPage

SAME_PROCESS = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Seen:
    names: frozenset[str]
    started: datetime | None


class PageMemory:
    """One per ingest; not shared between threads."""

    def __init__(self) -> None:
        self._engines: dict[EngineKey, _Seen] = {}
        self._unmapped: dict[str, frozenset[str]] = {}

    def check(self, target: str, at: datetime, page: ParsedPage) -> tuple[list[EngineSample], list[Fault]]:
        """The samples to take, and what changed since the target's last page.

        A sample whose process started before the one last seen is not taken: several processes answer at one address, and
        the difference of two engines' counters means nothing.
        """
        taken: list[EngineSample] = []
        faults: list[Fault] = []
        for sample in page.samples:
            seen = self._engines.get(sample.key)
            if seen is not None and _is_older(sample.process_started_at, seen.started):
                detail = {"hint": "scrape each engine at its own address, not through a load balancer"}
                faults.append(Fault("several_processes", target, at, _name(sample.key), detail))
                continue
            taken.append(sample)
            faults += self._vanished(sample, seen)
            names = frozenset({*sample.counters, *sample.gauges})
            self._engines[sample.key] = _Seen(names, sample.process_started_at or (seen.started if seen else None))
        faults += self._gone(target, at, page)
        faults += self._new_unmapped(target, at, page)
        return taken, faults

    def _vanished(self, sample: EngineSample, seen: _Seen | None) -> list[Fault]:
        lost = sorted(seen.names - {*sample.counters, *sample.gauges}) if seen else []
        return [
            Fault(
                "metric_vanished",
                sample.key.target,
                sample.at,
                f"{_name(sample.key)}/{name}",
                {"name": name, "engine": sample.key.engine},
            )
            for name in lost
        ]

    def _gone(self, target: str, at: datetime, page: ParsedPage) -> list[Fault]:
        """Engines of this target that this page, which does show others, lacks."""
        here = {sample.key for sample in page.samples}
        gone = sorted((k for k in self._engines if k.target == target and k not in here), key=_name) if here else []
        for key in gone:
            del self._engines[key]
        return [
            Fault("engine_vanished", target, at, _name(key), {"engine": key.engine, "model_id": key.model_id}) for key in gone
        ]

    def _new_unmapped(self, target: str, at: datetime, page: ParsedPage) -> list[Fault]:
        known = self._unmapped.get(target, frozenset())
        fresh = sorted(set(page.unmapped) - known)
        self._unmapped[target] = known | set(fresh)
        detail = {"names": fresh, "hint": "add them to ingest/engine/names.yaml"}
        return [Fault("unmapped_metrics", target, at, ",".join(fresh)[:200], detail)] if fresh else []


def _is_older(started: datetime | None, last: datetime | None) -> bool:
    return started is not None and last is not None and started < last - SAME_PROCESS


def _name(key: EngineKey) -> str:
    return f"{key.engine}/{key.model_id}"

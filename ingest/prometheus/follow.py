"""One window of routes -> pages to take, and what was missing. Keeps each target's place in the cursor it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.ports import Page
from core.windows import from_epoch_ms
from ingest.engine.faults import Fault
from ingest.engine.parse import Origin
from ingest.prometheus.cursor import Cursor, Followed
from ingest.prometheus.gaps import down_fault, gone_fault, hole_fault, holes, is_gone, usual_step_ms
from ingest.prometheus.scrapes import Route, Scraped, body_of, choose
from ingest.prometheus.settings import PrometheusSettings

Dated = tuple[Page, Origin]
Rename = Callable[[str, int], str | None]
"""(target, unix ms) -> the name its samples get, None: not to be taken."""


@dataclass(slots=True)
class Read:
    """``fresh`` pages continue what was taken before, ``late`` ones lie before it. ``twice`` names what is left out because it is
    read already: (target, by what it was offered). ``times`` are those of the pages (unix ms) by target."""

    fresh: list[Dated] = field(default_factory=list)
    late: list[Dated] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    twice: list[tuple[str, str]] = field(default_factory=list)
    times: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Following:
    """What does not change from window to window. ``may_read`` says whether a target is ours to read."""

    settings: PrometheusSettings
    source: str
    may_read: Callable[[str], bool]
    rename: Rename

    def window(self, cursor: Cursor, found: Mapping[Route, Scraped], sent: Mapping[str, set[int]], end_ms: int) -> Read:
        """Pages of ``found`` that are not in ``sent`` (times by target name); brings the cursor's targets and jobs up to date."""
        read = Read()
        for at_ms, job in sorted((scraped.times[0], route.job) for route, scraped in found.items() if scraped.times):
            cursor.jobs.setdefault(job, at_ms)
        chosen = choose(found, {target: (one.job, one.replica) for target, one in cursor.targets.items()})
        read.twice += [
            (route.target, f"job {route.job} {route.replica}".strip())
            for route, scraped in found.items()
            if scraped.pages and route.target in chosen and chosen[route.target] != route
        ]
        for target, route in sorted(chosen.items()):
            if self.may_read(target):
                self._take(cursor, route, found[route], sent, read)
            else:
                read.twice.append((target, self.source))
        for target in sorted(set(cursor.targets) - set(chosen)):
            self._silent(cursor.targets[target], target, found, read)
        read.faults += [fault for target, one in cursor.targets.items() for fault in self._gone(target, one, end_ms)]
        return read

    def _take(self, cursor: Cursor, route: Route, scraped: Scraped, sent: Mapping[str, set[int]], read: Read) -> None:
        one = cursor.targets.setdefault(route.target, Followed(route.job, route.replica))
        before_ms = one.last_ms
        one.job, one.replica = route.job, route.replica
        self._seen(one, route.target, scraped, read)
        origin = self._origin(scraped, cursor.jobs[route.job], one.interval_ms)
        taken: list[int] = []
        for at_ms, lines in sorted(scraped.pages.items()):
            name = self.rename(route.target, at_ms)
            if name is None or at_ms in sent.get(name, ()):
                continue
            page = Page(name, from_epoch_ms(at_ms), body_of(lines))
            (read.late if at_ms <= before_ms else read.fresh).append((page, origin))
            taken.append(at_ms)
        read.times[route.target] = tuple(taken)

    def _silent(self, one: Followed, target: str, found: Mapping[Route, Scraped], read: Read) -> None:
        """No page in this window: was it asked at all?"""
        scraped = found.get(Route(target, one.job, one.replica))
        if scraped is not None:
            self._seen(one, target, scraped, read)

    def _seen(self, one: Followed, target: str, scraped: Scraped, read: Read) -> None:
        fixed_ms = round(self.settings.interval_s * 1000)
        one.interval_ms = fixed_ms or usual_step_ms(scraped.times) or one.interval_ms
        read.faults += [hole_fault(target, hole, self.source) for hole in holes(scraped.times, one.last_ms, one.interval_ms)]
        read.faults += [
            down_fault(target, at, self.source) for at, up in sorted(scraped.up.items()) if not up and at > one.last_ms
        ]
        if scraped.times and scraped.times[-1] > one.last_ms:
            one.last_ms, one.gone = scraped.times[-1], False

    def _gone(self, target: str, one: Followed, end_ms: int) -> list[Fault]:
        if one.gone or not is_gone(one.last_ms, one.interval_ms, end_ms):
            return []
        one.gone = True
        return [gone_fault(target, one.last_ms, self.source)]

    def _origin(self, scraped: Scraped, watched_ms: int, interval_ms: int | None) -> Origin:
        s, labels = self.settings, scraped.labels
        return Origin(
            cluster=labels.get(s.cluster_label) or s.cluster,
            namespace=labels.get(s.namespace_label) or s.namespace,
            node=labels.get(s.node_label) or s.node,
            watched_since=from_epoch_ms(watched_ms),
            interval_ms=interval_ms,
        )

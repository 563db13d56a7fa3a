"""Raw samples -> what each page would have said. All samples of one scrape bear one time, to the millisecond."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.errors import BadInput
from ingest.engine.scraper import Target
from ingest.prometheus.api import Series
from ingest.prometheus.settings import PrometheusSettings

OWN = "exported_"
"""Prefix the server gives to a page's own label when a label of the target has its name."""
Names = Mapping[str, Mapping[str, str]]
"""job -> instance -> the target's name"""


@dataclass(frozen=True, slots=True, order=True)
class Route:
    """One way a target is scraped: by which job of which copy of the server."""

    target: str
    job: str
    replica: str


@dataclass(slots=True)
class Scraped:
    """What is stored of one route: pages by time (lines of the text format), ``up`` by time, and the labels of its target.

    ``has_engine``: there is more on its pages than the start of some process, which every program shows.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    has_engine: bool = False
    pages: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    up: dict[int, bool] = field(default_factory=dict)

    @property
    def times(self) -> list[int]:
        """When it was scraped, with or without success."""
        return sorted({*self.pages, *self.up})


def sort_out(
    series: Iterable[Series], settings: PrometheusSettings, names: Names, process_start: str
) -> tuple[dict[Route, Scraped], set[str]]:
    """The series by route, and the names of those that no target can be told of (recording rules, pushed sums).

    A time at which every value is NaN is a stale marker that the server shows: the series ended, and there is no page.
    """
    found: dict[Route, Scraped] = defaultdict(Scraped)
    homeless: set[str] = set()
    for one in series:
        route = route_of(one.labels, settings, names)
        if route is None:
            homeless.add(one.labels.get("__name__", ""))
            continue
        scraped = found[route]
        if one.labels.get("__name__") == "up":
            scraped.up.update((at, value == "1") for at, value in one.points)
            continue
        if one.labels.get("__name__") != process_start:
            scraped.labels, scraped.has_engine = one.labels, True
        head = _head(one.labels, settings)
        for at, value in one.points:
            scraped.pages[at].append(f"{head} {value}")
    for scraped in found.values():
        for at in [at for at, lines in scraped.pages.items() if all(line.endswith(" NaN") for line in lines)]:
            del scraped.pages[at]
    return dict(found), homeless


def origin_of(labels: Mapping[str, str]) -> tuple[str, str]:
    """(job, instance), '' where there is none. Federated series keep the engine's own (``exported_…``)."""
    return labels.get(f"{OWN}job") or labels.get("job", ""), labels.get(f"{OWN}instance") or labels.get("instance", "")


def route_of(labels: Mapping[str, str], settings: PrometheusSettings, names: Names) -> Route | None:
    """None for a series without an instance."""
    job, instance = origin_of(labels)
    if not instance:
        return None
    target = names.get(job, {}).get(instance) or target_name(page_address(instance))
    cluster = labels.get(settings.cluster_label, "")
    place = f"#{cluster}" if cluster and cluster != settings.cluster else ""
    replica = ",".join(f"{name}={labels[name]}" for name in settings.replica_labels if name in labels)
    return Route(target + place, job, replica)


def page_address(instance: str, scheme: str = "http", path: str = "/metrics") -> str:
    """Where the page of an instance is."""
    return instance if "://" in instance else f"{scheme}://{instance}/{path.lstrip('/')}"


def target_name(address: str) -> str:
    """The name a scraped target at this address has; an instance that is no address names itself."""
    try:
        return Target(address).name
    except BadInput:
        return address


def choose(found: Mapping[Route, Scraped], followed: Mapping[str, tuple[str, str]]) -> dict[str, Route]:
    """One route per engine: the one followed so far while it has pages, else the one with the most (then the first by name).

    Copies of one scrape are never mixed: their clocks differ, and a counter read by two clocks seems to fall.
    """
    by_target: dict[str, list[Route]] = defaultdict(list)
    for route, scraped in sorted(found.items()):
        if scraped.pages and (scraped.has_engine or route.target in followed):
            by_target[route.target].append(route)
    return {
        target: next((r for r in routes if (r.job, r.replica) == followed.get(target)), None)
        or max(routes, key=lambda r: len(found[r].pages))
        for target, routes in by_target.items()
    }


def body_of(lines: Sequence[str]) -> bytes:
    """The page in the text format."""
    return ("\n".join(lines) + "\n").encode()


def _head(labels: Mapping[str, str], settings: PrometheusSettings) -> str:
    """Name and labels as the page had them: without those the server added, its own ones under their own names."""
    dropped = {"__name__", "job", "instance", f"{OWN}job", f"{OWN}instance", *settings.replica_labels}
    kept = {name: value for name, value in labels.items() if name not in dropped and not name.startswith(OWN)}
    kept |= {name.removeprefix(OWN): value for name, value in labels.items() if name.startswith(OWN) and name not in dropped}
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(kept.items()))
    return f"{labels.get('__name__', '')}{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

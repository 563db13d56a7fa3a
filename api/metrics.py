"""What Prometheus reads of the business: unit costs, burn, breakers, coverage, freshness, guards. Unknown is absent, never 0."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from decimal import Decimal

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Sample = tuple[tuple[str, ...], Decimal | float | int | None]


def gauge(name: str, text: str, labels: tuple[str, ...], samples: Iterable[Sample]) -> GaugeMetricFamily:
    """A family of those samples whose value is known."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, float(value))
    return family


class Remembered(Collector):
    """Families read at most every ``ttl_s``, however often they are scraped."""

    def __init__(self, read: Callable[[], list[Metric]], ttl_s: float, clock: Callable[[], float]) -> None:
        self._read, self._ttl_s, self._clock = read, ttl_s, clock
        self._families: list[Metric] = []
        self._until_s = float("-inf")
        self._lock = threading.Lock()

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            if self._clock() >= self._until_s:
                self._families = self._read()
                self._until_s = self._clock() + self._ttl_s
            yield from self._families


def age_s(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else (now - at).total_seconds()

"""From groups of like requests to classes: robust scale, what a group reaches, which number of groups is stable, and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.workload import FEATURES, FINE, WorkloadClass
from core.workload_columns import UNKNOWN, Ints

NORMAL_IQR = 1.349
"""Quartile distance of a normal distribution in standard deviations."""
LEAST_SCALE: tuple[float, ...] = (4.0, 4.0, 4.0, 25.0, 25.0)
"""A feature in which most requests are alike would else weigh without bound: a doubling, and a quarter of all."""
MARGIN: tuple[int, ...] = (1, 1, 1, 5, 0)
"""Beyond what all but a thousandth of a class reach on either side, in each feature's units."""
REACH = (0.1, 99.9)
AS_STABLE = 2.0
"""A number of classes at most so many times as unstable as the most stable one is about as stable."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Median and scale of each feature over the requests that say it."""

    median: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def weights(self) -> tuple[int, ...]:
        return tuple(round(2**20 / one**2) for one in self.scale)

    def standard(self, found: Ints) -> NDArray[np.float64]:
        """Features in scales from the median; an unknown one stands at the median."""
        away = (found - np.array(self.median)) / np.array(self.scale)
        return np.where(found == UNKNOWN, 0.0, away)


def robust_scale(found: Ints) -> Scale:
    """Median and quartile distance of each column; of a column nobody says, 0 and the least scale."""
    median, scale = [], []
    for place, least in enumerate(LEAST_SCALE):
        column = found[:, place]
        known = column[column != UNKNOWN]
        low, middle, high = np.percentile(known, (25, 50, 75)) if len(known) else (0.0, 0.0, 0.0)
        median.append(float(middle))
        scale.append(max(float(high - low) / NORMAL_IQR, least))
    return Scale(tuple(median), tuple(scale))


def class_of(found: Ints, number: int, name: str = "") -> WorkloadClass:
    """The class whose members have these shapes. A feature no member says has its whole range and a centre of 0."""
    centre, low, high = [], [], []
    for place, margin in enumerate(MARGIN):
        column = found[:, place]
        known = column[column != UNKNOWN]
        reach = np.percentile(known, REACH) if len(known) else (-1_000.0, 1_000.0)
        centre.append(round(FINE * float(known.mean())) if len(known) else 0)
        low.append(int(np.floor(reach[0])) - margin)
        high.append(int(np.ceil(reach[1])) + margin)
    made = WorkloadClass(number, name, tuple(centre), tuple(low), tuple(high), len(found))
    return made if name else WorkloadClass(number, name_of(made, found), made.centre, made.low, made.high, made.requests)


def chosen_k(stability: Mapping[int, float]) -> int:
    """Of numbers of classes with their stability over resamples (mean adjusted Rand index, 1 is best) the largest that is about
    as stable as the most stable: more classes tell more."""
    least = min(1.0 - value for value in stability.values())
    return max(k for k, value in stability.items() if 1.0 - value <= AS_STABLE * least)


def name_of(one: WorkloadClass, found: Ints | None = None) -> str:
    """A name in words from the centre: prompt and answer length, and cache and tools where they mark the class."""
    into, out, _, cached, tools = (middle / FINE for middle in one.centre)
    words = [f"{_length(into)} prompt", f"{_length(out)} answer"]
    if cached >= 50:
        words.append("cached")
    says_tools = found is None or bool((found[:, FEATURES.index("tools")] != UNKNOWN).any())
    if says_tools and tools >= 50:
        words.append("tool calls")
    return ", ".join(words)


_WORDS: tuple[tuple[int, str], ...] = ((128, "very short"), (1_024, "short"), (8_192, "medium"), (32_768, "long"))


def _length(quarters: float) -> str:
    tokens = 2 ** (quarters / 4)
    return next((word for below, word in _WORDS if tokens < below), "very long")


def distinct(names: Sequence[str], taken: Sequence[str] = ()) -> list[str]:
    """The names, with " (2)", " (3)" behind those that another bears."""
    used = set(taken)
    made = []
    for name in names:
        free, turn = name, 1
        while free in used:
            turn += 1
            free = f"{name} ({turn})"
        used.add(free)
        made.append(free)
    return made

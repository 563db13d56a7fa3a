"""Workload classes from the raw archive: groups of like requests, how many of them are stable, and whether they are better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from core.errors import Refused
from core.windows import Window
from core.workload import WorkloadClass
from core.workload_columns import Ints
from core.workload_fit import chosen_k, class_of, robust_scale
from eventlog.workload_sql import sample_shapes

SAMPLE_ROWS = 50_000
LEAST_ROWS = 300
"""Fewer requests than that make no classes."""
MOST_CLASSES = 10
RESAMPLES = 8
RESAMPLE_ROWS = 4_000
LEAST_STABLE = 0.70
"""Mean adjusted Rand index between resamples below which groups are an accident of the sample."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Groups without numbers (0). ``stability``: number of classes -> mean adjusted Rand index between resamples."""

    weights: tuple[int, ...]
    groups: tuple[WorkloadClass, ...]
    stability: Mapping[int, float]
    requests: int

    @property
    def stable(self) -> bool:
        return self.stability[len(self.groups)] >= LEAST_STABLE


def train(data_dir: Path, window: Window, rows: int = SAMPLE_ROWS) -> tuple[Trained, Ints]:
    """Classes of the archived requests that finished in the window, and the shapes they were made of.

    Raises Refused with fewer than ``LEAST_ROWS`` requests."""
    found = sample_shapes(data_dir, window, rows)
    if len(found) < LEAST_ROWS:
        raise Refused(
            f"{len(found)} answered requests with counts are too few for classes: {LEAST_ROWS} are needed",
            hint="choose a longer time with --from and --to, or wait until the archive holds more",
        )
    return fit(found), found


def fit(found: Ints) -> Trained:
    """The same shapes in the same order give the same groups. One thread: where the machine is busy, threads that wait
    for each other take a hundred times as long."""
    scale = robust_scale(found)
    points = scale.standard(found)
    with threadpool_limits(1):
        stability = _stability(points)
        labels = _groups(points, chosen_k(stability), 0).labels_
    groups = tuple(class_of(found[labels == label], 0) for label in np.unique(labels))
    return Trained(scale.weights, groups, stability, len(found))


def _stability(points: NDArray[np.float64]) -> dict[int, float]:
    """Half samples are grouped apart and asked about the same requests: groups that are there are found again."""
    random = np.random.default_rng(0)
    asked = points[random.permutation(len(points))[:RESAMPLE_ROWS]]
    most = min(MOST_CLASSES, len(np.unique(asked, axis=0)))
    if most < 2:
        return {1: 1.0}
    return {k: _agreement(asked, k) for k in range(2, most + 1)}


def _agreement(asked: NDArray[np.float64], k: int) -> float:
    answers = []
    for seed in range(RESAMPLES):
        half = np.random.default_rng(seed).permutation(len(asked))[: max(k, len(asked) // 2)]
        answers.append(_groups(asked[half], k, seed).predict(asked))
    return fmean(float(adjusted_rand_score(one, other)) for one, other in combinations(answers, 2))


def _groups(points: NDArray[np.float64], k: int, seed: int) -> MiniBatchKMeans:
    return MiniBatchKMeans(k, random_state=seed, n_init=10, batch_size=1_024).fit(points)


def said(trained: Trained, window: Window) -> dict[str, object]:
    """What is kept of a training beside the classes, as JSON."""
    return {
        "from": window.start.isoformat(), "to": window.end.isoformat(), "requests": trained.requests,
        "stability": {str(k): round(value, 3) for k, value in trained.stability.items()},
    }  # fmt: skip

"""Detection on public labelled series: NAB (provided half, standard profile, published rule) and Microsoft cloud monitoring.

The detector is ``core.detect.ConformalResidual`` in both directions at fixed settings; only the threshold is chosen over the
corpus, as NAB's rule does for every detector on its scoreboard. A windowed Gaussian, computed here alike, stands beside it.
"""

from __future__ import annotations

import csv
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from bench.figures import Figure, Row
from core.detect import ConformalResidual, Direction
from core.series import Floats, Series

DIRECTIONS: tuple[Direction, ...] = ("high", "low")
REFIT_POINTS = 50
LOOKBACK_POINTS = 4000
REARM_POINTS = 3
"""A firing is one alert until so many windows in a row were clear. Chosen on this corpus among 0, 3, 6, 10, 15, 20 (like the
threshold, and for the peer alike): the score is a floor to compare by, no promise."""
THRESHOLDS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 4.0, 6.0, 8.0)
PUBLISHED = {"windowed Gaussian": 35.1, "best of the provided half (ARTime)": 70.5}
Scorer = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A series and its labelled windows as index ranges, both ends included; detections before ``probation`` do not count."""

    name: str
    values: Floats
    windows: Sequence[tuple[int, int]]
    probation: int


def traces() -> Path:
    named = os.environ.get("TOKENFUSE_DATA")
    return (Path(named) if named else Path(__file__).parents[2] / "shared" / "data") / "traces"


def read_nab(folder: Path) -> list[Labelled]:
    """The files named in the labels, in their order."""
    labels: Mapping[str, list[list[str]]] = json.loads((folder / "labels/combined_windows.json").read_text())
    return [_nab_file(folder / "data" / name, name, windows) for name, windows in labels.items()]


def _nab_file(path: Path, name: str, windows: Sequence[Sequence[str]]) -> Labelled:
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    stamps = [row["timestamp"] for row in rows]
    place = {stamp: n for n, stamp in enumerate(stamps)}
    cut = [(place[first[:19]], place[last[:19]]) for first, last in windows]
    return Labelled(name, np.array([float(row["value"]) for row in rows]), cut, int(min(0.15 * len(rows), 750)))


def read_microsoft(folder: Path) -> list[Labelled]:
    """Points labelled by the services' owners; neighbouring labelled points are one window. Points without value are left out."""
    found = []
    for path in sorted(folder.rglob("*.csv")):
        with path.open(newline="") as lines:
            rows = [row for row in csv.DictReader(lines) if row["Value"]]
        marks = [n for n, row in enumerate(rows) if row["Label"] == "1"]
        windows: list[tuple[int, int]] = []
        for n in marks:
            if windows and n - windows[-1][1] <= 1:
                windows[-1] = (windows[-1][0], n)
            else:
                windows.append((n, n))
        probation = int(min(0.15 * len(rows), 750))
        found.append(Labelled(path.stem, np.array([float(r["Value"]) for r in rows]), windows, probation))
    return found


def conformal(values: Floats) -> Floats:
    """Per window how many times as far from its forecast as the bound, the worse direction; 0 while warming up."""
    times = np.arange(len(values), dtype=np.int64) * 300
    worst = np.zeros(len(values))
    for direction in DIRECTIONS:
        detector = ConformalResidual(
            alpha=0.01, margin=1.0, recent=12, min_windows=99, relative=False, direction=direction, recover=0.0
        )
        baseline = None
        for n in range(len(values)):
            if baseline is None or n % REFIT_POINTS == 0:
                start = max(0, n - LOOKBACK_POINTS)
                baseline = detector.fit(Series(times[start:n], values[start:n]))
            recent = Series(times[max(0, n - 12) : n], values[max(0, n - 12) : n])
            at = datetime.fromtimestamp(int(times[n]), UTC)
            score = detector.judge(baseline, recent, at, float(values[n])).score
            worst[n] = max(worst[n], score or 0.0)
    return worst


def windowed_gaussian(values: Floats, window: int = 600) -> Floats:
    """The peer: deviations from the mean of the windows before, in their standard deviations (thirds, so that 1 is 3 sigma)."""
    scores = np.zeros(len(values))
    for n in range(50, len(values)):
        before = values[max(0, n - window) : n]
        scores[n] = abs(values[n] - before.mean()) / max(float(before.std()), 1e-9) / 3
    return scores


def alerts(scores: Floats, threshold: float) -> list[int]:
    """Where a firing begins: the score reaches the threshold after ``REARM_POINTS`` windows at half of it or less."""
    found: list[int] = []
    calm = REARM_POINTS
    for n, score in enumerate(scores):
        if score >= threshold:
            found += [n] if calm >= REARM_POINTS else []
            calm = 0
        else:
            calm = calm + 1 if score <= threshold / 2 else 0
    return found


def nab_points(series: Labelled, found: Sequence[int], fp_weight: float = 0.11) -> float:
    """NAB's raw score of a file (standard profile): a scaled sigmoid of the place of the first detection in each window, minus 1
    for a missed window, minus up to ``fp_weight`` for each detection outside."""
    total, hit = 0.0, set[int]()
    for n in sorted(found):
        if n < series.probation:
            continue
        inside = next((w for w, (first, last) in enumerate(series.windows) if first <= n <= last), None)
        if inside is None:
            total += fp_weight * _outside(series, n)
        elif inside not in hit:
            hit.add(inside)
            first, last = series.windows[inside]
            total += _sigmoid(-(last - n + 1) / (last - first + 1)) / _sigmoid(-1.0)
    return total - (len(series.windows) - len(hit))


def _outside(series: Labelled, n: int) -> float:
    before = [(first, last) for first, last in series.windows if last < n]
    if not before:
        return -1.0
    first, last = before[-1]
    return _sigmoid((n - last) / max(1, last - first))


def _sigmoid(x: float) -> float:
    """NAB's scaled sigmoid: 1 far before the end of a window, 0 at it, -1 far behind."""
    return -1.0 if x > 3 else 2 / (1 + math.exp(5 * x)) - 1


def nab_score(corpus: Sequence[Labelled], scores: Sequence[Floats], threshold: float) -> float:
    """0 is a detector that says nothing, 100 the perfect one."""
    windows = sum(len(series.windows) for series in corpus)
    raw = sum(nab_points(series, alerts(one, threshold)) for series, one in zip(corpus, scores, strict=True))
    return 100 * (raw + windows) / (2 * windows)


def segments(corpus: Sequence[Labelled], scores: Sequence[Floats], threshold: float, slack: int = 3) -> tuple[float, float]:
    """Recall of labelled windows and precision of alerts, ``slack`` points early or late allowed."""
    caught = labelled = right = told = 0
    for series, one in zip(corpus, scores, strict=True):
        found = [n for n in alerts(one, threshold) if n >= series.probation]
        windows = [(a - slack, b + slack) for a, b in series.windows if b >= series.probation]
        caught += sum(any(a <= n <= b for n in found) for a, b in windows)
        right += sum(any(a <= n <= b for a, b in windows) for n in found)
        labelled, told = labelled + len(windows), told + len(found)
    return (caught / labelled if labelled else 0.0), (right / told if told else 0.0)


def measure(*, quick: bool) -> Row:
    """``quick``: every fourth file."""
    every = 4 if quick else 1
    started = time.process_time()
    nab, microsoft = read_nab(traces() / "nab")[::every], read_microsoft(traces() / "ms_cloud_monitoring")[::every]
    ours, peer = [conformal(s.values) for s in nab], [windowed_gaussian(s.values) for s in nab]
    best = max(THRESHOLDS, key=lambda t: nab_score(nab, ours, t))
    score, beside = nab_score(nab, ours, best), max(nab_score(nab, peer, t) for t in THRESHOLDS)
    ms_ours, ms_peer = [conformal(s.values) for s in microsoft], [windowed_gaussian(s.values) for s in microsoft]
    f1 = max(_f1(*segments(microsoft, ms_ours, t)) for t in THRESHOLDS)
    f1_peer = max(_f1(*segments(microsoft, ms_peer, t)) for t in THRESHOLDS)
    recall, precision = max((segments(microsoft, ms_ours, t) for t in THRESHOLDS), key=lambda found: _f1(*found))
    points = sum(len(s.values) for s in (*nab, *microsoft))
    spent = time.process_time() - started
    figures = (
        Figure("NAB, standard profile", score, "points", goal=PUBLISHED["windowed Gaussian"], peer=beside,
               peer_is="windowed Gaussian, here"),
        Figure("Microsoft telemetry, F1 of labelled windows", f1, "F1", peer=f1_peer, peer_is="windowed Gaussian, here"),
        Figure("its recall", recall, "share"),
        Figure("its precision", precision, "share"),
    )  # fmt: skip
    published = ", ".join(f"{name} {value}" for name, value in PUBLISHED.items())
    return Row(
        "detect", "anomalies in labelled public series",
        f"{len(nab)} NAB files and {len(microsoft)} Microsoft series, {points:,} windows; published on the same half of NAB: "
        f"{published}",
        figures, f"{1e6 * spent / points:.0f} µs a window, both detectors, baselines made anew every {REFIT_POINTS} windows",
        detail={"threshold": best, "published": PUBLISHED},
    )  # fmt: skip


def _f1(recall: float, precision: float) -> float:
    return 2 * recall * precision / (recall + precision) if recall + precision else 0.0

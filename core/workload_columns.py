"""The class of many requests at once: ``core.workload`` over columns of whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.lengths import BITS, QUARTERS, ZERO_BUCKET
from core.workload import FINE, NEW, UNSCORED, WorkloadClass, WorkloadModel

Ints = NDArray[np.int64]
UNKNOWN = -10_000
"""Stands for None in a column of shapes."""


@dataclass(frozen=True, slots=True)
class RequestColumns:
    """Token counts of requests; ``tool`` is 1, 0 or -1 (unknown); those not ``known`` are not scored."""

    input_tokens: Ints
    cached_tokens: Ints
    output_tokens: Ints
    tool: Ints
    known: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Placed:
    """Of each shape its nearest class, whether it lies within what that one's members reach, and its square distance."""

    place: Ints
    inside: NDArray[np.bool_]
    distance: Ints


def buckets(lengths: Ints) -> Ints:
    """``core.lengths.bucket`` of each length (below 2^30)."""
    exponent = np.frexp(lengths.astype(np.float64))[1].astype(np.int64) - 1  # exact: a double holds every length
    shifted = lengths << np.clip(BITS - exponent, 0, BITS)
    steps = sum((shifted >= edge).astype(np.int64) for edge in QUARTERS)
    return np.where(lengths <= 0, ZERO_BUCKET, 4 * exponent + steps)


def shapes(rows: RequestColumns) -> Ints:
    """One row of features a request, in the order of ``FEATURES``; ``UNKNOWN`` where unknown."""
    into, out = buckets(rows.input_tokens), buckets(rows.output_tokens)
    ratio = np.where(rows.output_tokens > 0, into - out, UNKNOWN)
    cached = 100 * rows.cached_tokens // np.maximum(rows.input_tokens, 1)
    return np.stack([into, out, ratio, cached, np.where(rows.tool < 0, UNKNOWN, 100 * rows.tool)], axis=1)


def distances(weights: tuple[int, ...], centres: Ints, found: Ints) -> Ints:
    """Square distance of each shape (rows) from each centre (columns)."""
    total = np.zeros((len(found), len(centres)), np.int64)
    for place, weight in enumerate(weights):
        column = found[:, place]
        away = FINE * column[:, None] - centres[None, :, place]
        total += np.where((column == UNKNOWN)[:, None], 0, weight * away * away)
    return total


def placed(classes: Sequence[WorkloadClass], weights: tuple[int, ...], found: Ints) -> Placed:
    """The nearest class of each shape, by its place among ``classes``."""
    centres, low, high = (np.array([getattr(one, name) for one in classes], np.int64) for name in ("centre", "low", "high"))
    apart = distances(weights, centres, found)
    place = apart.argmin(axis=1)
    inside = ((found == UNKNOWN) | ((low[place] <= found) & (found <= high[place]))).all(axis=1)
    return Placed(place, inside, apart.min(axis=1))


def score_columns(model: WorkloadModel, rows: RequestColumns) -> Ints:
    """The class number of each request."""
    found = placed(model.classes, model.weights, shapes(rows))
    numbers = np.array([one.number for one in model.classes], np.int64)[found.place]
    scored = np.where(found.inside, numbers, NEW)
    return np.where(rows.known & (rows.input_tokens > 0), scored, UNSCORED)

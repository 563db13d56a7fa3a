"""The class of many requests at once: ``core.workload`` over columns of whole numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.lengths import BITS, QUARTERS, ZERO_BUCKET
from core.workload import FINE, NEW, UNSCORED, WorkloadModel

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


def score_columns(model: WorkloadModel, rows: RequestColumns) -> Ints:
    """The class number of each request."""
    found = shapes(rows)
    centres, low, high = (np.array([getattr(c, name) for c in model.classes], np.int64) for name in ("centre", "low", "high"))
    place = distances(model.weights, centres, found).argmin(axis=1)
    inside = ((found == UNKNOWN) | ((low[place] <= found) & (found <= high[place]))).all(axis=1)
    numbers = np.array([one.number for one in model.classes], np.int64)[place]
    scored = np.where(inside, numbers, NEW)
    return np.where(rows.known & (rows.input_tokens > 0), scored, UNSCORED)

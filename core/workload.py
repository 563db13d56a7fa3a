"""Workload classes: what a request is like in whole numbers, and which class of a model it falls into.

A request's shape is five whole numbers, its distance from a class is a whole number too, so this module, the columns of
``core.workload_columns`` and the archive's query (``eventlog.workload_sql``) give the same class to the last request. What a
record does not say is unknown, and an unknown feature takes no part in a distance: it speaks for no class.

Class 0 is "not scored" (no model yet, not answered, or no counts), class 1 "new: unlike every class"; from 2 on they are a
model's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from core.features import ANSWERED
from core.lengths import bucket
from core.usage import UsageRecord

UNSCORED = 0
NEW = 1
FIRST = 2
MOST_NUMBER = 32_767
FEATURES: tuple[str, ...] = ("input", "output", "ratio", "cached", "tools")
"""Quarter doublings of input and of output tokens (``core.lengths``), their difference, per cent of the input that came from the
cache, and 100 or 0 for an answer that did or did not call a tool."""
FINE = 16
"""Centres are kept in sixteenths of a feature's unit."""
TOOL_ENDS = frozenset({"tool_calls", "tool_use", "function_call"})
"""Finish reasons that say a tool was called (OpenAI, Anthropic, OpenAI before 2024)."""
Shape = tuple[int | None, ...]
"""The features of one request in the order of ``FEATURES``; None is unknown."""


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """One class. ``centre`` in 1/``FINE`` of each feature's unit; ``low`` and ``high`` in whole units: what its members reach,
    with a margin. ``requests`` are those it was made of."""

    number: int
    name: str
    centre: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    requests: int


@dataclass(frozen=True, slots=True)
class WorkloadModel:
    """A version of the classes, for requests that finish at or after ``valid_from`` (aware UTC).
    ``weights`` are 2^20 / scale² of each feature."""

    version: int
    valid_from: datetime
    weights: tuple[int, ...]
    classes: tuple[WorkloadClass, ...]


def shape_of(record: UsageRecord) -> Shape | None:
    """The shape of a usage record; None where it was not answered, counts are missing or it had no input."""
    if record.status not in ANSWERED or record.usage_source == "missing":
        return None
    tokens = record.tokens
    return shape(tokens.input_total, tokens.input_cache_read, tokens.output, calls_tool(record.tools, record.finish_reason))


def calls_tool(tools: Sequence[str], finish_reason: str) -> bool | None:
    """Whether the answer called a tool; None where the record names none and does not say how the answer ended."""
    if tools or finish_reason in TOOL_ENDS:
        return True
    return False if finish_reason else None


def shape(input_tokens: int, cached_tokens: int, output_tokens: int, tool: bool | None) -> Shape | None:
    """The features of one request; None without input. The ratio is unknown where nothing was answered."""
    if input_tokens <= 0:
        return None
    into, out = bucket(input_tokens), bucket(output_tokens)
    ratio = into - out if output_tokens > 0 else None
    return into, out, ratio, 100 * cached_tokens // input_tokens, None if tool is None else 100 * tool


def distance(weights: Sequence[int], centre: Sequence[int], found: Shape) -> int:
    """Weighted square distance over the features that are known: a whole number below 2^63."""
    return sum(
        weight * (FINE * value - middle) ** 2
        for weight, middle, value in zip(weights, centre, found, strict=True)
        if value is not None
    )


def nearest(model: WorkloadModel, found: Shape) -> WorkloadClass:
    """The class with the nearest centre; of equals the one that stands first."""
    return min(model.classes, key=lambda one: distance(model.weights, one.centre, found))


def reaches(one: WorkloadClass, found: Shape) -> bool:
    """Whether every known feature lies within what the class's members reach."""
    return all(value is None or low <= value <= high for low, high, value in zip(one.low, one.high, found, strict=True))


def score(model: WorkloadModel, found: Shape | None) -> int:
    """The number of the nearest class, ``NEW`` where the request lies beyond it, ``UNSCORED`` without a shape."""
    if found is None:
        return UNSCORED
    one = nearest(model, found)
    return one.number if reaches(one, found) else NEW


def model_at(models: Sequence[WorkloadModel], at: datetime) -> WorkloadModel | None:
    """Of models in order of ``valid_from`` the one that holds at an instant; None before the first."""
    place = bisect_right([model.valid_from for model in models], at)
    return models[place - 1] if place else None

"""Which class of a new version is which of the one before: numbers keep their meaning, and a retired one is never given again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, sqrt

import numpy as np

from core.errors import Refused
from core.workload import FINE, FIRST, MOST_NUMBER, WorkloadClass, WorkloadModel
from core.workload_columns import Ints
from core.workload_fit import class_of, distinct, name_of

SAME_WITHIN = 1.5
"""Two centres at most so many scales apart may be one class."""
_LIMIT = round(2**20 * FINE**2 * SAME_WITHIN**2)


def matched(
    old: Sequence[WorkloadClass], made: Sequence[WorkloadClass], weights: tuple[int, ...], highest: int
) -> tuple[WorkloadClass, ...]:
    """``made`` with the numbers and names of the old classes they are, by the assignment with the least total distance (measured
    by the new ``weights``); the others get numbers after ``highest``, the highest ever given. Order: by number."""
    kept = _pairs(old, made, weights)
    fresh = distinct([one.name for place, one in enumerate(made) if place not in kept], [one.name for one in kept.values()])
    found, number = [], max(highest, FIRST - 1)
    for place, one in enumerate(made):
        if place in kept:
            found.append(replace(one, number=kept[place].number, name=kept[place].name))
        else:
            number = next_number(number)
            found.append(replace(one, number=number, name=fresh.pop(0)))
    return tuple(sorted(found, key=lambda one: one.number))


def _pairs(old: Sequence[WorkloadClass], made: Sequence[WorkloadClass], weights: tuple[int, ...]) -> dict[int, WorkloadClass]:
    """Place in ``made`` -> the old class it is."""
    if not old or not made:
        return {}
    from scipy.optimize import linear_sum_assignment  # slow to import, and only training needs it

    before, after = (np.array([one.centre for one in some], np.int64) for some in (old, made))
    apart = ((after[:, None, :] - before[None, :, :]) ** 2 * np.array(weights, np.int64)).sum(axis=2)
    cost = np.minimum(apart, _LIMIT + 1)
    return {
        int(place): old[int(other)]
        for place, other in zip(*linear_sum_assignment(cost), strict=True)
        if apart[place, other] <= _LIMIT
    }


def next_number(highest: int) -> int:
    """Raises Refused when the database's column can hold no higher one."""
    if highest >= MOST_NUMBER:
        raise Refused(f"there is no class number after {MOST_NUMBER}")
    return max(highest + 1, FIRST)


def _wider(one: WorkloadClass, weights: tuple[int, ...]) -> WorkloadClass:
    """A class of a few requests reaches further than those that were seen: by as much as would still be the same class."""
    more = [ceil(SAME_WITHIN * 2**10 / sqrt(weight)) for weight in weights]
    low = tuple(value - step for value, step in zip(one.low, more, strict=True))
    high = tuple(value + step for value, step in zip(one.high, more, strict=True))
    return replace(one, low=low, high=high)


def with_new_class(model: WorkloadModel, found: Ints, highest: int) -> tuple[WorkloadClass, ...]:
    """The model's classes and one more, made of the shapes of requests that were unlike all of them."""
    fresh = _wider(class_of(found, next_number(highest)), model.weights)
    name = distinct([name_of(fresh, found)], [one.name for one in model.classes])[0]
    return (*model.classes, replace(fresh, name=name))

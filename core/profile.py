"""The hour-of-week profile of a scope's own spending: which part of a period is expected by when.

Median of each local hour of the week over the weeks seen, so that one odd day moves nothing; smoothed over the neighbouring
hours; and held above a tenth of the mean, so that no hour is expected to be free. Only proportions matter:
``core.budgets.expected_share`` divides by the sum over the period's true hours, so that a period's parts add up to one exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from statistics import median

from core.budgets import HOUR, HOURS_OF_WEEK, HourProfile
from core.money import CONTEXT, ZERO, quantize, total
from core.windows import Window, zone

WEEKS_NEEDED = 2
WEEKS_KEPT = 8
"""Older weeks say less about the next one than about a business that has changed."""
WEEK = timedelta(weeks=1)
LEAST_OF_MEAN = Decimal("0.1")


@dataclass(frozen=True, slots=True)
class Learned:
    """``profile`` None: time is expected to cost the same at any hour, and ``reason`` says why. ``weeks``: whole weeks seen."""

    profile: HourProfile | None
    weeks: int
    reason: str = ""


def learn_profile(costs: Mapping[datetime, Decimal], seen: Window, zone_name: str) -> Learned:
    """From the cost of each UTC hour of ``seen``, by its start; an hour without an entry cost nothing. Takes the newest whole
    weeks of it, at most ``WEEKS_KEPT``. Uniform until ``WEEKS_NEEDED`` whole weeks exist."""
    weeks = min(seen.duration // WEEK, WEEKS_KEPT)
    if weeks < WEEKS_NEEDED:
        return Learned(None, weeks, f"{weeks} of {WEEKS_NEEDED} whole weeks of history: every hour is expected alike")
    by_hour: list[list[Decimal]] = [[] for _ in range(HOURS_OF_WEEK)]
    at, tz = seen.end - weeks * WEEK, zone(zone_name)
    while at < seen.end:
        local = at.astimezone(tz)
        by_hour[local.weekday() * 24 + local.hour].append(max(costs.get(at, ZERO), ZERO))
        at += HOUR
    return _shaped([median(values) if values else ZERO for values in by_hour], weeks)


def _shaped(medians: list[Decimal], weeks: int) -> Learned:
    with localcontext(CONTEXT):
        mean = total(medians) / HOURS_OF_WEEK
        if not mean:
            return Learned(None, weeks, "most hours cost nothing: every hour is expected alike")
        smooth = [(medians[n - 1] + 2 * medians[n] + medians[(n + 1) % HOURS_OF_WEEK]) / 4 for n in range(HOURS_OF_WEEK)]
        return Learned(HourProfile(tuple(quantize(max(value / mean, LEAST_OF_MEAN)) for value in smooth)), weeks)

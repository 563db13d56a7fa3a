"""What a budget's running period will have cost at its end, and when its amount runs out, from the scope's closed hours.

Days are forecast in days of the budget's zone, a day budget in hours. Hours lacking in the history cost nothing. Estimates: the
steps are floats, results are quantised and never summed into the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from core.budgets import HOUR, Budget, HourProfile, expected_share
from core.forecast import Forecast, forecast
from core.money import ZERO, quantize, total
from core.windows import Window, period_window

WEEK_DAYS = 7
DAY_HOURS = (24, 168)
Steps = Sequence[Window]


@dataclass(frozen=True, slots=True)
class PeriodForecast:
    """``total`` of the period that ends at ``period_end``, as of ``as_of`` (the last closed hour), with its 80 % interval; None:
    too little history (``reason``). ``exhausted_at``: when the amount is reached, ``earliest`` and ``latest`` at the interval's
    ends; None: not within the period. ``wape``: the method's error over its ``origins`` past forecasts."""

    as_of: datetime
    period_end: datetime
    total: Decimal
    low: Decimal | None
    high: Decimal | None
    exhausted_at: datetime | None
    earliest: datetime | None
    latest: datetime | None
    method: str
    origins: int
    wape: Decimal | None
    reason: str = ""


def forecast_period(
    costs: Mapping[datetime, Decimal], seen: Window, budget: Budget, at: datetime, profile: HourProfile | None = None
) -> PeriodForecast | None:
    """Of the period running at ``at``. ``costs``: each UTC hour of ``seen`` by its start. None: not one whole step was seen, or
    the period has no time left after ``seen``."""
    period = budget.window(at)
    past = _steps(Window(seen.start, seen.end), budget)
    whole = [step for step in past if seen.start <= step.start and step.end <= seen.end]
    if not whole or not period.contains(seen.end):
        return None
    ahead = _steps(Window(whole[-1].end, period.end), budget)
    series = [float(_sum(costs, step)) for step in whole]
    horizon = max(1, min(len(ahead), len(series) // 3))
    found = forecast(series, horizon, DAY_HOURS if budget.period == "day" else (WEEK_DAYS,))
    return _period(found, ahead, _sum(costs, period), budget, Window(seen.end, period.end), profile)


def _steps(window: Window, budget: Budget) -> list[Window]:
    if budget.period == "day":
        return list(window.quanta(HOUR))
    found, at = [], window.start
    while at < window.end:
        day = period_window("day", at, budget.zone)
        found.append(day)
        at = day.end
    return found


def _sum(costs: Mapping[datetime, Decimal], window: Window) -> Decimal:
    """Hours that start in ``window``."""
    if window.duration == HOUR:
        return costs.get(window.start, ZERO)
    return total(cost for at, cost in costs.items() if window.contains(at))


def _period(
    found: Forecast, ahead: Steps, spent: Decimal, budget: Budget, rest: Window, profile: HourProfile | None
) -> PeriodForecast:
    """Steps beyond the horizon cost the mean of those within it, and the interval widens with them in proportion."""
    mean = found.total / len(found.steps)
    values = [*found.steps, *[mean] * (len(ahead) - len(found.steps))][: len(ahead)]
    flow = [(step, value * _left(step, rest, budget, profile)) for step, value in zip(ahead, values, strict=True)]
    to_come = sum(value for _, value in flow)
    scale = to_come / found.total if found.total else 1.0
    low, high = (None if end is None else end * scale for end in (found.low, found.high))
    room = float(budget.amount.amount - spent)

    def runs_out(whole: float | None) -> datetime | None:
        return None if whole is None else _crossing(flow, whole, to_come, room, rest)

    return PeriodForecast(
        rest.start, rest.end, _money(spent, to_come), None if low is None else _money(spent, low),
        None if high is None else _money(spent, high), runs_out(to_come), runs_out(high), runs_out(low), found.method,
        found.origins, None if found.wape is None else Decimal(str(round(found.wape, 4))), found.reason,
    )  # fmt: skip


def _left(step: Window, rest: Window, budget: Budget, profile: HourProfile | None) -> float:
    """The part of a step that is still to come: of a day that has begun, as the hours of the week expect it."""
    if step.start >= rest.start or step.duration == HOUR:
        return step.overlap(rest) / step.duration
    return float(1 - expected_share(step, rest.start, budget.zone, profile))


def _money(spent: Decimal, to_come: float) -> Decimal:
    return quantize(spent + Decimal(str(round(to_come, 6))))


def _crossing(flow: Sequence[tuple[Window, float]], whole: float, to_come: float, room: float, rest: Window) -> datetime | None:
    """When ``whole``, spread as the steps are (evenly where they are nothing), uses up ``room``."""
    if room <= 0:
        return rest.start
    if whole < room or not whole:
        return None
    if not to_come:
        return rest.start + rest.duration * (room / whole)
    for step, value in flow:
        part = value * whole / to_come
        if part >= room:
            begins = max(step.start, rest.start)
            return begins + (step.end - begins) * (room / part) if part else begins
        room -= part
    return rest.end


def over_plan(found: PeriodForecast | None, budget: Budget, least: Decimal = ZERO) -> str:
    """Why the period is forecast to cost more than its amount; '' where it is not, by less than ``least``, or where too little
    history was seen to judge the forecast."""
    if found is None or found.low is None or found.total - budget.amount.amount <= least:
        return ""
    amount, unit = budget.amount.amount, budget.amount.currency
    return f"the {budget.period} is forecast at {found.total:.2f} {unit} of {amount:.2f} ({found.low:.2f} to {found.high:.2f})"

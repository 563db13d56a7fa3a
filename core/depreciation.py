"""Straight-line depreciation by calendar month or by day: a month's amount in the currency's decimals, the remainder in the last
month, so that the months of a life add up to price less residual exactly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, localcontext
from typing import Literal, get_args

from core.errors import BadInput
from core.money import CONTEXT, ZERO, plain
from core.windows import month_on

Method = Literal["month", "day"]
METHODS: tuple[str, ...] = get_args(Method)
CENTS = 2


@dataclass(frozen=True, slots=True)
class StraightLine:
    """``price`` less ``residual`` over ``life_months`` from ``start`` on.

    ``month``: equal months, the first one whole from the month of ``start`` on. ``day``: by the days of each month.
    """

    price: Decimal
    residual: Decimal
    start: date
    life_months: int
    method: Method = "month"
    decimals: int = CENTS

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise BadInput(f"must be one of {', '.join(METHODS)}", field="depreciation", value=self.method)
        if not 1 <= self.life_months <= 600:
            raise BadInput("must be 1 to 600", field="useful_life_months", value=self.life_months)
        if self.price < 0:
            raise BadInput("must not be negative", field="price", value=plain(self.price))
        if not 0 <= self.residual <= self.price:
            raise BadInput("must be between 0 and the price", field="residual", value=plain(self.residual))
        if not 0 <= self.decimals <= 12:
            raise BadInput("must be 0 to 12", field="decimals", value=self.decimals)

    @property
    def end(self) -> date:
        """The first day after the life."""
        first = self.start.replace(day=1) if self.method == "month" else self.start
        return add_months(first, self.life_months)

    @property
    def whole(self) -> Decimal:
        with localcontext(CONTEXT):
            return self.price - self.residual

    def of_month(self, month: date) -> Decimal:
        """The amount of the calendar month that begins on ``month``; 0 outside the life."""
        last = (self.end - timedelta(days=1)).replace(day=1)
        first = self.start.replace(day=1)
        if not first <= month <= last:
            return ZERO
        if month < last:
            return self._regular(month)
        with localcontext(CONTEXT):
            before = sum((self._regular(add_months(first, n)) for n in range(months_between(first, last))), ZERO)
            return self.whole - before

    def _regular(self, month: date) -> Decimal:
        with localcontext(CONTEXT):
            if self.method == "month":
                exact = self.whole / self.life_months
            else:
                days = (add_months(month, 1) - max(month, self.start)).days
                exact = self.whole * days / (self.end - self.start).days
            return exact.quantize(Decimal(1).scaleb(-self.decimals))


def add_months(day: date, months: int) -> date:
    """The same day of a later month, or its last day where it is shorter."""
    first, after = month_on(day, months), month_on(day, months + 1)
    return first.replace(day=min(day.day, (after - first).days))


def months_between(first: date, last: date) -> int:
    return (last.year - first.year) * 12 + last.month - first.month

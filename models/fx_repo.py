"""Exchange rates: rows <-> core values. Nothing here commits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Table, func, insert, select

from core.fx import MAX_AGE, FxBook, FxRate
from models.tables_prices import FxRateRow

_TABLE = cast(Table, FxRateRow.__table__)


@dataclass(frozen=True, slots=True)
class AddedFx:
    """What an import brought. ``changed``: (former, new) rates of a day and pair that was known with another value."""

    new: int
    unchanged: int
    changed: tuple[tuple[FxRate, FxRate], ...]


def add_fx(
    connection: Connection, rates: Iterable[FxRate], imported_at: datetime, known: Iterable[FxRate] | None = None
) -> AddedFx:
    """Append those rates that differ from what holds for their day and pair. ``known``: what ``read_fx`` gave."""
    held = {(rate.day, rate.base, rate.quote): rate for rate in (read_fx(connection) if known is None else known)}
    fresh: list[FxRate] = []
    changed: list[tuple[FxRate, FxRate]] = []
    unchanged = 0
    for rate in rates:
        former = held.get((rate.day, rate.base, rate.quote))
        if former is not None and former.rate == rate.rate and former.source == rate.source:
            unchanged += 1
            continue
        if former is not None:
            changed.append((former, rate))
        held[rate.day, rate.base, rate.quote] = rate
        fresh.append(rate)
    rows: list[dict[str, Any]] = [{**_values(rate), "imported_at": imported_at} for rate in fresh]
    for first in range(0, len(rows), 10_000):
        connection.execute(insert(_TABLE), rows[first : first + 10_000])
    return AddedFx(len(fresh) - len(changed), unchanged, tuple(changed))


def read_fx(
    connection: Connection, since: date | None = None, until: date | None = None, currencies: Iterable[str] | None = None
) -> tuple[FxRate, ...]:
    """Rates of days in [since, until] in the order they were imported; ``currencies``: only pairs of these."""
    query = select(_TABLE.c.day, _TABLE.c.base, _TABLE.c.quote, _TABLE.c.rate, _TABLE.c.source).order_by(_TABLE.c.id)
    if since is not None:
        query = query.where(_TABLE.c.day >= since)
    if until is not None:
        query = query.where(_TABLE.c.day <= until)
    query = query.where(*_of(currencies))
    return tuple(FxRate(*row) for row in connection.execute(query))


@dataclass(frozen=True, slots=True)
class FxDays:
    """How many rates (of a day and pair), of which first and last day; no days where there is none."""

    count: int
    first: date | None
    last: date | None


def fx_days(connection: Connection, before: date, currencies: Iterable[str] | None = None) -> FxDays:
    """What is known of days before ``before``; ``currencies``: only pairs of these."""
    pairs = (
        select(_TABLE.c.day, _TABLE.c.base, _TABLE.c.quote).where(_TABLE.c.day < before, *_of(currencies)).distinct().subquery()
    )
    count, first, last = connection.execute(select(func.count(), func.min(pairs.c.day), func.max(pairs.c.day))).one()
    return FxDays(count, first, last)


def _of(currencies: Iterable[str] | None) -> list[ColumnElement[bool]]:
    if currencies is None:
        return []
    named = sorted(set(currencies))
    return [_TABLE.c.base.in_(named), _TABLE.c.quote.in_(named)]


def fx_book(connection: Connection, days: Iterable[date], currencies: Iterable[str], *, via: str = "") -> FxBook:
    """What is needed to convert between ``currencies`` (and over ``via``) on ``days``."""
    listed, named = sorted(days), {*currencies, *([via] if via else [])}
    if not listed or len(named) < 2:
        return FxBook(via=via)
    rates = read_fx(connection, listed[0] - MAX_AGE, listed[-1], named)
    return FxBook(rates, via=via)


def _values(rate: FxRate) -> dict[str, Any]:
    return {"day": rate.day, "base": rate.base, "quote": rate.quote, "rate": rate.rate, "source": rate.source}

"""Close months, and the statement of a month: its money as it stood at its close, and corrections of closed months before it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from control.shared_costs import shared_lines
from core.errors import BadInput, Refused
from core.money import plain, total
from core.period_line import PeriodLine
from core.statement import (
    IDLE_WORDS,
    Close,
    Cut,
    IdlePolicy,
    LineSum,
    StatementRow,
    changed_lines,
    check_close,
    check_options,
    cut,
    key_text,
    rows_of_lines,
    rows_of_period,
    totals,
)
from core.unit_cost import CostBasis
from core.windows import QUARTER_HOUR, Window, floor_time, period_window, zone
from models.audit_repo import append_audit
from models.ledger_inputs import due_windows
from models.ledger_repo import LINE_KEYS, ledger_rows
from models.period_repo import ClosedPeriod, add_closed, after_last_close, closed_periods, keep_lines, kept_lines
from models.rates_repo import lock_prices
from models.shared_repo import read_rules
from models.statement_repo import correction_sums, first_window, newest_version_at
from models.trueup_repo import Standing, node_money, standing

DEFAULT_BY = ("org", "team")
KEYS = tuple(key for key in LINE_KEYS if key not in ("kind", "quarter_hour", "hour"))
ACCEPTABLE = ("unpriced", "open")
"""What a person may close a month with: quarter hours without a price, quarter hours that wait to be closed."""


@dataclass(frozen=True, slots=True)
class Statement:
    """``rows``: own first, then corrections. ``not_shared``: charges of the month that no rule takes, on no row. ``kept_at``:
    since when shared and unassigned money stands as shown; None: as it is now."""

    month: date
    window: Window
    closed_at: datetime | None
    as_of: datetime | None
    basis: CostBasis
    idle: IdlePolicy
    rows: list[StatementRow]
    totals: Mapping[str, Decimal]
    not_shared: list[PeriodLine]
    states: Mapping[str, int]
    unpriced: int
    waiting: int
    kept_at: datetime | None = None

    @property
    def idle_words(self) -> str:
        return IDLE_WORDS[self.idle] if self.basis == "allocation" else "idle and starting GPU time is on no row (usage basis)"


@dataclass(frozen=True, slots=True)
class PeriodCheck:
    """What stands of a month that is to be closed; ``refusal`` says why it cannot be, ``accept`` by which word it can."""

    month: date
    window: Window
    standing: Standing
    waiting: int
    totals: Mapping[str, Decimal]
    refusal: str = ""
    accept: tuple[str, ...] = ()
    closed_at: datetime | None = None
    notes: list[str] = field(default_factory=list)


def month_window(connection: Connection, month: date, zone_name: str) -> Window:
    """The month in the reporting zone; of a closed one the instants it was closed with."""
    held = next((p.window for p in closed_periods(connection) if p.period == month), None)
    return held or period_window("month", datetime.combine(month, time(12), tzinfo=zone(zone_name)), zone_name)


def statement(
    connection: Connection, month: date, zone_name: str, now: datetime, *, by: Sequence[str] = DEFAULT_BY,
    basis: CostBasis = "allocation", idle: IdlePolicy = "apart", as_of: datetime | None = None,
    filters: Mapping[str, str] | None = None,
) -> Statement:  # fmt: skip
    """The statement of a month (its first day). ``by``: of KEYS; ``filters`` narrow ledger lines, then nothing else is on it;
    ``now``: quarter hours that have not ended do not wait to be closed.

    Raises BadInput for an unknown key, basis or idle policy.
    """
    check_options(basis, idle)
    for key in by:
        if key not in KEYS:
            raise BadInput("unknown key", field="by", value=key, hint=f"use {', '.join(KEYS)}")
    closed = closed_periods(connection)
    found = cut(month, [Close(p.period, p.closed_at) for p in closed], as_of)
    window = month_window(connection, month, zone_name)
    lines = ledger_rows(connection, (*by, "kind"), window, as_of=found.own_at, filters=filters, zone_name=zone_name)
    rows = rows_of_lines("own", month, [_line_sum(row, by) for row in lines], basis, idle)
    kept_at, own = (None, []) if filters else _period_lines(connection, month, window, zone_name, found.own_at)
    rows += rows_of_period("own", month, own, by)
    rows += _corrections(connection, found, closed, zone_name, by, basis, idle, filters)
    held = next((p for p in closed if p.period == month and (as_of is None or p.closed_at <= as_of)), None)
    states, unpriced, waiting = _stood(connection, window, held, now)
    return Statement(
        month, window, held.closed_at if held else None, as_of, basis, idle, rows, totals(rows),
        [line for line in own if line.kind == "not_shared"], states, unpriced, waiting, kept_at,
    )  # fmt: skip


def _stood(
    connection: Connection, window: Window, held: ClosedPeriod | None, now: datetime
) -> tuple[Mapping[str, int], int, int]:
    """Windows by state, unpriced and waiting: of a closed month as it was closed."""
    if held is not None:
        return held.totals["states"], held.totals["unpriced"], held.totals["waiting"]
    stands = standing(connection, window)
    return stands.states, stands.unpriced, _waiting(connection, window, now)


def period_lines_now(connection: Connection, month: date, window: Window, zone_name: str) -> tuple[list[PeriodLine], str]:
    """A month's money that lies in no quarter hour, and the deliveries it rests on: shared by rule, not shared, unassigned
    machine time, rounding. Shared charges count by UTC day, machine hours by the reporting zone's month."""
    money = node_money(connection, window=window, zone_name=zone_name)
    unassigned: dict[tuple[str, str], list[Decimal]] = {}
    rounding: dict[str, list[Decimal]] = {}
    for one in money:
        for (cluster, node), amount in one.by_node.items():
            unassigned.setdefault((f"{cluster}/{node}", one.currency), []).append(amount)
        rounding.setdefault(one.currency, []).append(one.rounding)
    lines = [PeriodLine("unassigned", name, currency, total(parts)) for (name, currency), parts in sorted(unassigned.items())]
    lines += [PeriodLine("rounding", "finer than 1e-12", currency, total(parts)) for currency, parts in sorted(rounding.items())]
    lines += shared_lines(connection, month, window, read_rules(connection))
    return [line for line in lines if line.amount], "; ".join(sorted({one.source for one in money}))


def close_period(
    connection: Connection, month: date, zone_name: str, *, by: str, reason: str, now: datetime,
    accept: Collection[str] = (), dry_run: bool = False,
) -> PeriodCheck:  # fmt: skip
    """Close a month: its statement stays as it is now, and what changes later is posted in the next one.

    Raises Refused while it has not ended, out of order, and while quarter hours of it wait to be closed or have no price, unless
    that is accepted; BadInput for an unknown acceptance. ``dry_run`` says the refusal instead and changes nothing.
    """
    for word in accept:
        if word not in ACCEPTABLE:
            raise BadInput(f"must be one of {', '.join(ACCEPTABLE)}", field="accept", value=word)
    lock_prices(connection, shared=False)  # closes under way end first, later ones write after this one
    check = _check(connection, month, zone_name, now, accept)
    if dry_run:
        return check
    if check.refusal:
        raise Refused(check.refusal, hint=f"to close it anyway, accept: {', '.join(check.accept)}")
    at = max(after_last_close(connection, now), newest_version_at(connection, check.window) or now)  # all that stands is on it
    _keep(connection, month, check.window, zone_name, at)
    stands = check.standing
    said: dict[str, Any] = {"money": {c: plain(amount) for c, amount in check.totals.items()}, "states": dict(stands.states)}
    said |= {"unpriced": stands.unpriced, "waiting": check.waiting, "accepted": sorted(accept)}
    add_closed(connection, ClosedPeriod(month, check.window, at, by, reason, said))
    append_audit(connection, now, by, "ledger.close_period", f"period:{month:%Y-%m}", {"reason": reason, **said})
    return replace(check, closed_at=at)


def _check(connection: Connection, month: date, zone_name: str, now: datetime, accept: Collection[str]) -> PeriodCheck:
    window = month_window(connection, month, zone_name)
    closes = [Close(p.period, p.closed_at) for p in closed_periods(connection)]
    first = first_window(connection)
    first_month = None if first is None else first.astimezone(zone(zone_name)).date().replace(day=1)
    check_close(month, closes, first_month, now >= window.end)
    found = statement(connection, month, zone_name, now)
    stands = standing(connection, window)
    check = PeriodCheck(month, window, stands, found.waiting, found.totals)
    lacking = {"open": found.waiting, "unpriced": stands.unpriced}
    left = tuple(word for word in ("open", "unpriced") if lacking[word] and word not in accept)
    said = {
        "open": f"{found.waiting} quarter hours wait to be closed (tokenfuse ledger close)",
        "unpriced": f"{stands.unpriced} quarter hours have no price ({stands.reason})",
    }
    return replace(check, refusal="; ".join(said[word] for word in left), accept=left)


def _keep(connection: Connection, month: date, window: Window, zone_name: str, at: datetime) -> None:
    """Of closed months too: what their corrections on this month's statement rest on."""
    months = {p.period: p.window for p in closed_periods(connection)} | {month: window}
    for one, span in months.items():
        lines, source = period_lines_now(connection, one, span, zone_name)
        keep_lines(connection, one, lines, source, at)


def _period_lines(
    connection: Connection, month: date, window: Window, zone_name: str, at: datetime | None
) -> tuple[datetime | None, list[PeriodLine]]:
    if at is None:
        return None, period_lines_now(connection, month, window, zone_name)[0]
    kept = kept_lines(connection, month, at)
    return kept.at, list(kept.lines)


def _corrections(
    connection: Connection, found: Cut, closed: Sequence[ClosedPeriod], zone_name: str, by: Sequence[str], basis: CostBasis,
    idle: IdlePolicy, filters: Mapping[str, str] | None,
) -> list[StatementRow]:  # fmt: skip
    if found.since is None:
        return []
    keys = tuple(dict.fromkeys((*by, "deployment")))
    span = Window(closed[0].window.start, max(p.window.end for p in closed))
    rows: list[StatementRow] = []
    for month, sums in correction_sums(connection, keys, span, found.since, found.until, filters, zone_name).items():
        if month in found.corrected:
            rows += rows_of_lines("correction", month, sums, basis, idle)
    for period in (p for p in closed if p.period in found.corrected and not filters):
        before = kept_lines(connection, period.period, found.since)
        _, now = _period_lines(connection, period.period, period.window, zone_name, found.until)
        changed = changed_lines(now, before.lines)
        why = f"charges, rules or inventory changed since {found.since:%Y-%m-%d}"
        rows += rows_of_period("correction", period.period, changed, keys, why)
    return rows


def _waiting(connection: Connection, window: Window, now: datetime) -> int:
    """Quarter hours of the month that ended and are marked or were never closed."""
    due = due_windows(
        connection, min(window.end, floor_time(now, QUARTER_HOUR)), since=None, data_from=window.start, limit=1_000_000
    )
    return sum(window.contains(one.start) for one in due)


def _line_sum(row: Mapping[str, Any], by: Sequence[str]) -> LineSum:
    keys = {name: key_text(row[name]) for name in by}
    return LineSum(keys, row["kind"], row["currency"], row["cost"], row["allocated"])

"""The statement of a month: what its usage cost as it stood when the month was closed, and corrections of closed months before.

What changes after a month was closed is posted in the first month still open then, once. So all statements together are the
newest ledger, and a statement of a closed month never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, get_args

from core.errors import BadInput, Refused
from core.money import ZERO, total
from core.period_line import PeriodLine
from core.unit_cost import CostBasis
from core.windows import month_on

IdlePolicy = Literal["apart", "spread"]
IDLE_POLICIES: tuple[IdlePolicy, ...] = get_args(IdlePolicy)
IDLE_WORDS: Mapping[IdlePolicy, str] = {
    "apart": "idle and starting GPU time is the platform's own cost, in rows of its own",
    "spread": "idle and starting GPU time is borne by the work of its quarter hour; without any it stays the platform's",
}
"""Billed GPUs that no deployment held are a row of their own under either."""
IDLE_KINDS = frozenset({"idle", "starting"})
PLATFORM = "platform"
"""Who bears what names no tenant."""


@dataclass(frozen=True, slots=True)
class Close:
    """A month and when its statement was closed."""

    month: date
    closed_at: datetime


@dataclass(frozen=True, slots=True)
class Cut:
    """What a statement is made of: the month as it stood at ``own_at`` (None: now); for each month of ``corrected`` what changed
    between ``since`` and ``until`` (None: now)."""

    month: date
    own_at: datetime | None
    corrected: tuple[date, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class LineSum:
    """Ledger lines of a month summed: ``cost`` with idle time as lines of its own, ``allocated`` with it borne by the work."""

    keys: Mapping[str, str]
    kind: str
    currency: str
    cost: Decimal
    allocated: Decimal
    why: str = ""


@dataclass(frozen=True, slots=True)
class StatementRow:
    """``section`` own or correction; ``month``: of the usage. ``bearer``: ORG[/TEAM], a deployment, or the platform. ``why``: of
    a correction."""

    section: str
    month: date
    kind: str
    bearer: str
    keys: Mapping[str, str]
    currency: str
    amount: Decimal
    why: str = ""


def cut(month: date, closes: Sequence[Close], as_of: datetime | None = None) -> Cut:
    """What the statement of ``month`` holds as known at ``as_of``, given the closed months, oldest first and without a hole.

    A closed month is cut at its close, whatever comes later. An earlier ``as_of`` shows it as it was on the way there.
    """
    known = [close for close in closes if as_of is None or close.closed_at <= as_of]
    own = next((close.closed_at for close in known if close.month == month), None)
    before = [close for close in known if close.month < month]
    end = own or as_of
    if not before or before[-1].month != month_on(month, -1):
        return Cut(month, end)  # first month, or one before it is still open: corrections are posted there
    return Cut(month, end, tuple(close.month for close in before), before[-1].closed_at, end)


def check_close(month: date, closes: Sequence[Close], first: date | None, ended: bool) -> None:
    """Raises Refused: months are closed once, after they ended, in their order from the first with money on."""
    if any(close.month == month for close in closes):
        raise Refused(f"{month:%Y-%m} is closed", hint="what changes now is posted in the first open month's statement")
    if not ended:
        raise Refused(f"{month:%Y-%m} has not ended", hint="close it once its last quarter hour is closed")
    if closes and closes[-1].month != month_on(month, -1):
        raise Refused(f"{month:%Y-%m} is not the next month to close", hint=f"close {month_on(closes[-1].month, 1):%Y-%m} first")
    if not closes and first is not None and first < month:
        raise Refused(f"{first:%Y-%m} has closed quarter hours and is open", hint=f"close {first:%Y-%m} first")


def rows_of_lines(section: str, month: date, sums: Iterable[LineSum], basis: CostBasis, idle: IdlePolicy) -> list[StatementRow]:
    """Rows of ledger lines. Allocation basis: all of the capacity cost, idle time ``apart`` or ``spread``. Usage basis: the part
    that served; idle and starting time is on no row."""
    rows: list[StatementRow] = []
    for one in sums:
        if basis == "usage" and one.kind in IDLE_KINDS:
            continue
        amount = one.allocated if basis == "allocation" and idle == "spread" else one.cost
        if amount:
            bearer = PLATFORM if one.kind in IDLE_KINDS else _bearer(one.keys)
            rows.append(StatementRow(section, month, one.kind, bearer, one.keys, one.currency, amount, one.why))
    return rows


def rows_of_period(
    section: str, month: date, lines: Iterable[PeriodLine], by: Sequence[str], why: str = ""
) -> list[StatementRow]:
    """Rows of money that lies in no quarter hour. Charges that no rule shares, and rounding, are on no statement."""
    sums: dict[tuple[str, str, str, tuple[tuple[str, str], ...]], list[Decimal]] = {}
    for line in lines:
        if line.kind in ("not_shared", "rounding"):
            continue
        keys = {name: getattr(line, name, "") for name in by}
        if "deployment" in by:
            keys["deployment"] = deployment_of(line)
        bearer = PLATFORM if line.kind == "unassigned" else tenant_of(line) or deployment_of(line)
        sums.setdefault((line.kind, bearer, line.currency, tuple(keys.items())), []).append(line.amount)
    return [
        StatementRow(section, month, kind, bearer, dict(keys), currency, amount, why)
        for (kind, bearer, currency, keys), amounts in sorted(sums.items())
        if (amount := total(amounts))
    ]


def changed_lines(now: Iterable[PeriodLine], before: Iterable[PeriodLine]) -> list[PeriodLine]:
    """What takes ``before`` to ``now``: a line each that differs."""
    sums: dict[PeriodLine, Decimal] = {}
    for sign, lines in ((1, now), (-1, before)):
        for line in lines:
            place = replace(line, amount=ZERO)
            sums[place] = total((sums.get(place, ZERO), sign * line.amount))
    return [replace(place, amount=amount) for place, amount in sorted(sums.items()) if amount]


def totals(rows: Iterable[StatementRow]) -> dict[str, Decimal]:
    """By currency."""
    sums: dict[str, list[Decimal]] = {}
    for row in rows:
        sums.setdefault(row.currency, []).append(row.amount)
    return {currency: total(amounts) for currency, amounts in sorted(sums.items())}


def deployment_of(line: PeriodLine) -> str:
    return f"{line.cluster}/{line.namespace}/{line.model_id}" if line.model_id else ""


def tenant_of(line: PeriodLine) -> str:
    return "/".join(part for part in (line.org, line.team) if part)


def check_options(basis: str, idle: str) -> None:
    """Raises BadInput for words that are none of the options."""
    for name, value, allowed in (("basis", basis, ("allocation", "usage")), ("idle", idle, IDLE_POLICIES)):
        if value not in allowed:
            raise BadInput(f"must be one of {', '.join(allowed)}", field=name, value=value)


def key_text(value: object) -> str:
    """A key of ledger lines as text: a day as its instant."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _bearer(keys: Mapping[str, str]) -> str:
    tenant = "/".join(keys[name] for name in ("org", "team", "project", "user") if keys.get(name))
    return tenant or keys.get("deployment") or PLATFORM

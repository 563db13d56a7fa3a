"""Close quarter hours past their grace, re-close those whose inputs changed, and show the ledger. Restartable at any point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Engine, text

from core.allocate import Weights, Work
from core.errors import TokenfuseError
from core.ledger import LedgerWindow, WindowInputs, close_window
from core.money import plain
from core.rates import BASIS_ORDER, ChargeBasis, Rate
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window, floor_time, require_utc
from core.workfit import fit_weights, fit_work
from models.database import transaction
from models.ledger_inputs import DueWindow, due_windows, fit_windows, read_inputs, take_dirty
from models.ledger_repo import ledger_rows, ledger_windows, write_version
from models.rates_repo import add_rates, lock_prices, read_rates, read_services
from models.running_repo import frozen_units

GRACE = timedelta(minutes=15)
FIT_PERIOD = timedelta(hours=24)
RECENT_DATA = timedelta(hours=2)
"""Data this young is looked at even if nothing marked its window."""
BATCH = 500
"""Windows one call closes at most, so that a month's backlog does not hold up the control loop's other steps."""

_HELD = text("SELECT topic FROM stream_state WHERE catching_up AND topic IN ('usage', 'engine') ORDER BY topic")


@dataclass(frozen=True, slots=True)
class CloseSettings:
    """How to close: ``grace`` after a window's end; ``bases`` in order of preference; ``currency`` where no price is known."""

    grace: timedelta = GRACE
    bases: tuple[ChargeBasis, ...] = BASIS_ORDER
    currency: str = "USD"
    use_fit: bool = True
    limit: int = BATCH


@dataclass(slots=True)
class CloseReport:
    """What one call did. ``held`` says why nothing was closed; ``more`` that windows are left for the next call."""

    closed: int = 0
    reclosed: int = 0
    unchanged: int = 0
    unpriced: int = 0
    more: bool = False
    held: str = ""
    failures: list[str] = field(default_factory=list)


def close_due(
    engine: Engine, now: datetime, settings: CloseSettings | None = None, *, since: datetime | None = None
) -> CloseReport:
    """Close every due window, oldest first, each in a transaction of its own; unchanged inputs make no new version.

    Due: past its end by the grace, and never closed or marked dirty since. ``since`` looks at every quarter hour from then on
    (a later declared inventory, a repaired rate). While the stream is catching up nothing is closed. One window's failure is
    reported and does not stop the others.
    """
    chosen = settings or CloseSettings()
    report = CloseReport()
    due_end = floor_time(require_utc(now) - chosen.grace, QUARTER_HOUR)
    with transaction(engine) as connection:
        behind = connection.execute(_HELD).scalars().all()
        if behind:
            report.held = f"the stream is catching up on {' and '.join(behind)}"
            return report
        due = due_windows(connection, due_end, since=since, data_from=due_end - RECENT_DATA, limit=chosen.limit + 1)
    report.more = len(due) > chosen.limit
    fits: dict[tuple[Deployment, datetime], Weights | None] = {}
    for window in due[: chosen.limit]:
        try:
            with transaction(engine) as connection:
                _close_one(connection, window, now, chosen, fits, report)
        except TokenfuseError as error:
            report.failures.append(f"{window.deployment} {window.start.isoformat()}: {error}")
    return report


def close_all(
    engine: Engine, now: datetime, settings: CloseSettings | None = None, *, since: datetime | None = None
) -> CloseReport:
    """``close_due`` again and again until nothing is left (``tokenfuse ledger close``)."""
    chosen = settings or CloseSettings()
    whole = close_due(engine, now, replace(chosen, limit=1_000_000) if since else chosen, since=since)
    while whole.more:
        part = close_due(engine, now, chosen)
        whole = _merged(whole, part)
        if not (part.closed or part.reclosed or part.unchanged):
            break
    return whole


def import_rates(connection: Connection, rates: Sequence[Rate], now: datetime) -> int:
    """Take prices in; closed windows they touch are closed again as a new version. Returns how many were new."""
    return add_rates(connection, rates, now)


def ledger_show(
    connection: Connection,
    window: Window,
    *,
    by: Sequence[str] = ("kind",),
    as_of: datetime | None = None,
    filters: Mapping[str, str] | None = None,
    zone_name: str = "UTC",
) -> dict[str, Any]:
    """Rows of ``tokenfuse ledger show``: lines summed ``by`` keys, and per currency capacity cost, Σ lines and their difference.

    The difference is 0 exactly, or the ledger is broken. ``unpriced`` lists windows without a capacity cost and why.
    """
    rows = ledger_rows(connection, by, window, as_of=as_of, filters=filters, zone_name=zone_name)
    narrow = {k: v for k, v in (filters or {}).items() if k in ("deployment", "cluster", "namespace", "model_id")}
    windows = ledger_windows(connection, window, as_of=as_of, filters=narrow)
    lines = ledger_rows(connection, (), window, as_of=as_of, filters=narrow)
    summed = {row["currency"]: row["cost"] for row in lines}
    totals: list[dict[str, Any]] = []
    for currency in sorted({w["currency"] for w in windows if w["capacity_cost"] is not None}):
        capacity = sum((w["capacity_cost"] for w in windows if w["currency"] == currency and w["capacity_cost"]), Decimal(0))
        cost = summed.get(currency, Decimal(0))
        totals.append({"currency": currency, "capacity_cost": capacity, "lines_cost": cost, "difference": capacity - cost})
    unpriced = [
        {"deployment": w["deployment"], "window_start": w["window_start"], "reason": w["detail"]["reason"]}
        for w in windows
        if w["capacity_cost"] is None
    ]
    return {"rows": rows, "totals": totals, "windows": len(windows), "unpriced": unpriced}


def _close_one(
    connection: Connection,
    due: DueWindow,
    now: datetime,
    settings: CloseSettings,
    fits: dict[tuple[Deployment, datetime], Weights | None],
    report: CloseReport,
) -> None:
    window = Window(due.start, due.start + QUARTER_HOUR)
    lock_prices(connection, shared=True)
    take_dirty(connection, due.deployment, due.start)
    fit = _fit(connection, due, fits) if settings.use_fit else None
    services, rates = read_services(connection, window), read_rates(connection, window)
    inputs = read_inputs(
        connection, due.deployment, window, services, rates, fit=fit, bases=settings.bases, currency=settings.currency
    )
    closed = _with_difference(connection, inputs, close_window(inputs))
    version = write_version(connection, closed, now)
    if version is None:
        report.unchanged += 1
        return
    report.unpriced += closed.capacity_cost is None
    report.closed += version == 1
    report.reclosed += version > 1


def _fit(connection: Connection, due: DueWindow, fits: dict[tuple[Deployment, datetime], Weights | None]) -> Weights | None:
    """The fit of the 24 h before the window's hour: settled data, and the same whenever the window is closed again."""
    hour = floor_time(due.start, timedelta(hours=1))
    key = (due.deployment, hour)
    if key not in fits:
        fits[key] = fit_weights(fit_work(fit_windows(connection, due.deployment, Window(hour - FIT_PERIOD, hour))))
    return fits[key]


def _with_difference(connection: Connection, inputs: WindowInputs, closed: LedgerWindow) -> LedgerWindow:
    """Beside the closed cost of tenants' work, what the running cost had said of it."""
    units = frozen_units(connection, inputs.deployment, inputs.window.start)
    if units is None or closed.capacity_cost is None or units.currency != closed.currency:
        return closed
    work = sum((r.work for r in inputs.usage if r.usage_source != "missing"), Work())
    estimate = units.usage(work)
    known = sum((line.cost for line in closed.lines if line.key.kind in ("served", "wasted")), Decimal(0))
    shown = {"estimate": plain(estimate), "closed": plain(known), "difference": plain(known - estimate), "source": units.source}
    return replace(closed, detail={**closed.detail, "running_cost": shown})


def _merged(a: CloseReport, b: CloseReport) -> CloseReport:
    return CloseReport(
        a.closed + b.closed, a.reclosed + b.reclosed, a.unchanged + b.unchanged, a.unpriced + b.unpriced,
        b.more, b.held or a.held, [*a.failures, *b.failures],
    )  # fmt: skip

"""Close quarter hours past their grace, re-close those whose inputs changed, and show the ledger. Restartable at any point."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from control.bought_close import close_bought_windows
from control.ledger_states import by_state
from core.allocate import Weights, Work
from core.bought import is_bought
from core.errors import TokenfuseError, Unavailable
from core.ledger import LedgerWindow, WindowInputs, close_window
from core.money import plain
from core.rates import BASIS_ORDER, ChargeBasis, Rate
from core.running import RunningUnits
from core.usage import Deployment
from core.vendor_book import SOURCES
from core.windows import QUARTER_HOUR, Window, floor_time, require_utc
from core.workfit import fit_weights, fit_work
from models.database import transaction
from models.ledger_inputs import DueWindow, due_windows, fit_minutes, frozen_units_at, read_batch, take_dirty, whole_hours
from models.ledger_repo import ledger_rows, ledger_windows
from models.ledger_versions import Head, lock_closes, read_heads, write_versions
from models.node_charge_repo import read_node_charges
from models.period_repo import after_last_close
from models.quality_repo import stream_lags
from models.rates_repo import add_rates, lock_prices, read_rates, read_services

GRACE = timedelta(minutes=15)
HOUR = timedelta(hours=1)
FIT_PERIOD = timedelta(hours=24)
RECENT_DATA = timedelta(hours=2)
"""Data this young is looked at even if nothing marked its window."""
LIMIT = 1_000
"""Windows one call closes at most, so that a month's backlog does not hold up the control loop's other steps."""
ALL = 1_000_000
BATCH = 96
"""Windows of one deployment closed in one transaction (a day): a loader that touches one of them waits for it."""
NEAR = timedelta(hours=1)
"""Windows further apart than this do not share their reads: what lies between would be read for nothing."""

Progress = Callable[[int, int], None]
"""Called with (windows done, windows known to be due) after each transaction."""

HOLDING = ("engine", "usage")
"""Topics whose stream must be level with the log before a quarter hour is closed."""


@dataclass(frozen=True, slots=True)
class CloseSettings:
    """How to close: ``grace`` after a window's end; ``bases`` in order of preference; ``currency`` where no price is known."""

    grace: timedelta = GRACE
    bases: tuple[ChargeBasis, ...] = BASIS_ORDER
    currency: str = "USD"
    use_fit: bool = True
    vendor_order: tuple[str, ...] = SOURCES
    """Price lists of vendors, preferred first."""
    limit: int = LIMIT
    silence_holds: bool = True
    """A silent stream may be dead with usage unread. Else its last word stands, as for a close by hand between streams."""


@dataclass(slots=True)
class CloseReport:
    """What one call did. ``held`` says why closing stopped; ``more`` that windows are left for the next call."""

    closed: int = 0
    reclosed: int = 0
    unchanged: int = 0
    unpriced: int = 0
    more: bool = False
    held: str = ""
    failures: list[str] = field(default_factory=list)

    def add(self, part: CloseReport) -> None:
        self.closed += part.closed
        self.reclosed += part.reclosed
        self.unchanged += part.unchanged
        self.unpriced += part.unpriced
        self.more, self.held = part.more, part.held or self.held
        self.failures += part.failures

    @property
    def done(self) -> int:
        return self.closed + self.reclosed + self.unchanged


@dataclass(frozen=True, slots=True)
class _Batch:
    """Windows of one deployment, oldest first, closed in one transaction."""

    deployment: Deployment
    windows: tuple[Window, ...]

    @property
    def starts(self) -> list[datetime]:
        return [window.start for window in self.windows]

    @property
    def span(self) -> Window:
        return Window(self.windows[0].start, self.windows[-1].end)

    def halves(self) -> tuple[_Batch, _Batch]:
        middle = len(self.windows) // 2
        return replace(self, windows=self.windows[:middle]), replace(self, windows=self.windows[middle:])


def close_due(
    engine: Engine,
    now: datetime,
    settings: CloseSettings | None = None,
    *,
    since: datetime | None = None,
    progress: Progress | None = None,
) -> CloseReport:
    """Close every due window, oldest first; unchanged inputs make no new version.

    Due: past its end by the grace, and never closed or marked dirty since. ``since`` looks at every quarter hour from then on
    (a later declared inventory, a repaired rate). While the stream is catching up nothing is closed. One window's failure is
    reported and does not stop the others. Oldest first keeps what is closed without a hole, which spend between closes rests on:
    it takes a deployment's capacity as open from the last closed quarter hour on.
    """
    chosen = settings or CloseSettings()
    report = CloseReport()
    due_end = floor_time(require_utc(now) - chosen.grace, QUARTER_HOUR)
    with transaction(engine) as connection:
        report.held = _held(connection, now, chosen)
        if report.held:
            return report
        due = due_windows(connection, due_end, since=since, data_from=due_end - RECENT_DATA, limit=chosen.limit + 1)
    taken = due[: chosen.limit]
    for batch in _batches(taken):
        _close_apart(engine, batch, now, chosen, report)
        if report.held:
            return report
        if progress is not None:
            progress(report.done + len(report.failures), len(taken))
    report.more = len(due) > chosen.limit and report.done > 0
    return report


def close_all(
    engine: Engine,
    now: datetime,
    settings: CloseSettings | None = None,
    *,
    since: datetime | None = None,
    progress: Progress | None = None,
) -> CloseReport:
    """Close whatever is due, however much it is, and say how far it is (``tokenfuse ledger close``)."""
    chosen = replace(settings or CloseSettings(), limit=ALL)
    whole = close_due(engine, now, chosen, since=since, progress=progress)
    while whole.more and not whole.held:
        whole.add(close_due(engine, now, chosen, progress=progress))
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

    The difference is 0 exactly, or the ledger is broken. ``states``: how sure the windows are, and what bills changed.
    ``unpriced`` lists windows without a capacity cost and why.
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
    return {"rows": rows, "totals": totals, "states": by_state(windows), "windows": len(windows), "unpriced": unpriced}


def _held(connection: Connection, now: datetime, settings: CloseSettings) -> str:
    lags = [lag for lag in stream_lags(connection, now) if lag.topic in HOLDING]
    behind = [lag.topic for lag in lags if lag.says_behind]
    if behind:
        return f"the stream is catching up on {' and '.join(behind)}"
    silent = [f"{lag.topic} since {lag.updated_at:%Y-%m-%dT%H:%M:%SZ}" for lag in lags if lag.silent]
    return f"the stream is silent on {' and '.join(silent)}" if silent and settings.silence_holds else ""


def _batches(due: Sequence[DueWindow]) -> list[_Batch]:
    """Neighbouring windows of a deployment together; batches in the order of their oldest window."""
    by_deployment: dict[Deployment, list[Window]] = {}
    for window in due:
        by_deployment.setdefault(window.deployment, []).append(Window(window.start, window.start + QUARTER_HOUR))
    found = [_Batch(d, part) for d, windows in by_deployment.items() for part in _runs(windows)]
    return sorted(found, key=lambda batch: (batch.windows[0], batch.deployment))


def _runs(windows: Sequence[Window]) -> Iterator[tuple[Window, ...]]:
    run: list[Window] = []
    for window in windows:
        if run and (len(run) == BATCH or window.start - run[-1].end > NEAR):
            yield tuple(run)
            run = []
        run.append(window)
    if run:
        yield tuple(run)


def _close_apart(engine: Engine, batch: _Batch, now: datetime, settings: CloseSettings, report: CloseReport) -> None:
    """Close the batch; where it fails, close its halves apart, so that only the window at fault stays open, still marked."""
    try:
        with transaction(engine) as connection:
            part = _close_batch(connection, batch, now, settings)
    except (TokenfuseError, DBAPIError) as error:
        if len(batch.windows) > 1 and not isinstance(error, Unavailable):
            for half in batch.halves():
                _close_apart(engine, half, now, settings, report)
            return
        reason = error.orig if isinstance(error, DBAPIError) else error
        report.failures += [f"{batch.deployment} {start.isoformat()}: {reason}" for start in batch.starts]
        return
    report.add(part)


def _close_batch(connection: Connection, batch: _Batch, now: datetime, settings: CloseSettings) -> CloseReport:
    """Locks and marks first, so that whatever lands after the reads marks its window again."""
    report = CloseReport(held=_held(connection, now, settings))
    if report.held:
        return report
    lock_prices(connection, shared=True)
    lock_closes(connection, batch.deployment)
    take_dirty(connection, batch.deployment, batch.starts)
    heads = read_heads(connection, batch.deployment, batch.starts)
    frozen = frozen_units_at(connection, batch.deployment, batch.starts)
    closed: list[LedgerWindow] = []
    if is_bought(batch.deployment):
        closed, report.unchanged = close_bought_windows(
            connection, batch.deployment, batch.windows, heads, settings.vendor_order, settings.currency
        )
    for inputs in () if is_bought(batch.deployment) else _inputs(connection, batch, settings):
        start, digest = inputs.window.start, inputs.digest()
        if _unchanged(heads.get(start), digest):
            report.unchanged += 1
            continue
        closed.append(_with_difference(inputs, close_window(inputs, digest), frozen.get(start)))
    write_versions(connection, batch.deployment, closed, heads, after_last_close(connection, now))
    report.unpriced = sum(c.capacity_cost is None for c in closed)
    report.reclosed = sum(c.window.start in heads for c in closed)
    report.closed = len(closed) - report.reclosed
    return report


def _unchanged(head: Head | None, digest: str) -> bool:
    return head is not None and head.digest == digest


def _inputs(connection: Connection, batch: _Batch, settings: CloseSettings) -> list[WindowInputs]:
    services, rates = read_services(connection, whole_hours(batch.span)), read_rates(connection, batch.span)
    nodes = {(s.deployment.cluster, s.node) for s in services if s.deployment == batch.deployment and s.node}
    fits = _fits(connection, batch) if settings.use_fit else {}
    return read_batch(
        connection, batch.deployment, batch.windows, services, rates, fits=fits, bases=settings.bases, currency=settings.currency,
        charges=read_node_charges(connection, batch.span, nodes) if nodes else (),
    )  # fmt: skip


def _fits(connection: Connection, batch: _Batch) -> dict[datetime, Weights | None]:
    """By window, the fit of the 24 h before its hour: settled data, and the same whenever the window is closed again."""
    hours = {start: floor_time(start, HOUR) for start in batch.starts}
    minutes = fit_minutes(connection, batch.deployment, Window(min(hours.values()) - FIT_PERIOD, max(hours.values())))
    fits: dict[datetime, Weights | None] = {}
    for hour in set(hours.values()):
        first, after = (bisect_left(minutes, at, key=lambda m: m.minute) for at in (hour - FIT_PERIOD, hour))
        fits[hour] = fit_weights(fit_work([m.work for m in minutes[first:after]]))
    return {start: fits[hour] for start, hour in hours.items()}


def _with_difference(inputs: WindowInputs, closed: LedgerWindow, units: RunningUnits | None) -> LedgerWindow:
    """Beside the closed cost of tenants' work, what the running cost had said of it."""
    if units is None or closed.capacity_cost is None or units.currency != closed.currency:
        return closed
    work = sum((r.work for r in inputs.usage if r.usage_source != "missing"), Work())
    estimate = units.usage(work, QUARTER_HOUR.seconds * 1_000_000)
    known = sum((line.cost for line in closed.lines if line.key.kind in ("served", "wasted")), Decimal(0))
    shown = {"estimate": plain(estimate), "closed": plain(known), "difference": plain(known - estimate), "source": units.source}
    return replace(closed, detail={**closed.detail, "running_cost": shown})

"""``tokenfuse export focus``: the ledger as FOCUS 1.2 files, a delivery a billing period, laid out as clouds lay out theirs.

``data/BILLING_PERIOD=2026-06/EXECUTION/NAME-00001.csv.gz``, and last ``metadata/BILLING_PERIOD=2026-06/NAME-Manifest.json``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from core.errors import TokenfuseError
from core.focus_rows import Row, allocated_rows, billing_period, origin_row
from core.money import ZERO, plain, total
from core.windows import Window, floor_time
from models.focus_repo import Allocated, Grain, allocations, capacity_totals, is_final, line_totals, unpriced_windows
from reports.focus_delivery import ExportedPeriod, ExportSettings, Tally, Written, put_delivery, refuse_other, shown_totals
from reports.focus_files import ENDINGS, open_file
from reports.places import Place, working

_CHUNK = timedelta(days=1)
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Exported:
    """``unpriced``: closed quarter hours without a price are in no row; {deployment, windows, reason}."""

    place: str
    window_start: datetime
    window_end: datetime
    grain: Grain
    periods: list[ExportedPeriod]
    totals: list[dict[str, Any]]
    unpriced: list[dict[str, Any]]


def export_focus(connection: Connection, place: Place, settings: ExportSettings, progress: Progress | None = None) -> Exported:
    """Write every billing period's rows, check that they add up to the ledger, then put them in their places.

    ``connection`` must read a snapshot. Nothing is put when a sum differs (TokenfuseError). Raises Conflict when the place holds
    a delivery of another time range or tenant under the same name.
    """
    with working(place) as folder:
        written = [one for window in _months(settings.window) if (one := _write(connection, folder, settings, window, progress))]
        for one in written:
            refuse_other(place, settings, one)
        periods = [put_delivery(place, settings, one) for one in written]
    sums: dict[str, Tally] = {}
    for one in written:
        for currency, tally in one.tallies.items():
            sums.setdefault(currency, Tally()).take(tally)
    unpriced = unpriced_windows(connection, settings.window, as_of=settings.as_of)
    window = settings.window
    return Exported(place.name(""), window.start, window.end, settings.grain, periods, shown_totals(sums), unpriced)


def _months(window: Window) -> Iterator[Window]:
    at = window.start
    while at < window.end:
        until = min(billing_period(at).end, window.end)
        yield Window(at, until)
        at = until


def _write(
    connection: Connection, folder: Path, settings: ExportSettings, window: Window, progress: Progress | None
) -> Written | None:
    """None: no quarter hour that starts in ``window`` is closed and priced (or none is the tenant's)."""
    period = billing_period(window.start)
    covers = window == period and not settings.tenant and settings.now >= period.end
    final = covers and is_final(connection, period, as_of=settings.as_of)
    invoice = f"showback-{period.start:%Y-%m}" if final else None
    path = folder / f"{period.start:%Y-%m}{ENDINGS[settings.file_format]}"
    one = Written(period, window, path, invoice)
    with open_file(path, settings.file_format, safe=settings.safe) as file:
        done = 0
        for day in _days(window):
            found = allocations(connection, day, settings.grain, as_of=settings.as_of, filters=settings.filters)
            for row in (row for each in found for row in _rows(each, settings, invoice)):
                one.tallies.setdefault(str(row["BillingCurrency"]), Tally()).add(row)
                file.write(row)
                done += 1
            if progress:
                progress(done, None)
    _check(connection, settings, one)
    return one if one.tallies else None


def _days(window: Window) -> Iterator[Window]:
    at = window.start
    while at < window.end:
        until = min(floor_time(at, _CHUNK) + _CHUNK, window.end)
        yield Window(at, until)
        at = until


def _rows(found: Allocated, settings: ExportSettings, invoice: str | None) -> Iterator[Row]:
    if not settings.tenant:
        whole = total(part.cost for part in found.parts)
        if whole != found.origin.cost:
            raise TokenfuseError(
                f"{found.origin.id}: the lines add up to {plain(whole)}, not to the capacity cost {plain(found.origin.cost)}",
                hint="nothing was exported; run `tokenfuse ledger show` for this hour",
            )
    if settings.rows != "allocated" and not found.origin.is_bought:
        yield origin_row(found.origin, found.parts, settings.issuer, invoice, carries_cost=settings.rows == "origin")
    if settings.rows != "origin" or found.origin.is_bought:
        yield from allocated_rows(found.origin, found.parts, settings.issuer, invoice)


def _check(connection: Connection, settings: ExportSettings, one: Written) -> None:
    """The sums of the file against the ledger's own, by currency; any difference stops the export."""
    lines = line_totals(connection, one.window, as_of=settings.as_of, filters=settings.filters)
    expected = [(currency, "EffectiveCost", cost) for currency, (cost, _) in lines.items()]
    if settings.rows != "origin":
        expected += [(currency, "x_CostWithIdle", allocated) for currency, (_, allocated) in lines.items()]
    if not settings.tenant:
        for currency, capacity in capacity_totals(connection, one.window, as_of=settings.as_of).items():
            expected.append((currency, "EffectiveCost", capacity.whole))
            if settings.rows != "allocated":
                expected.append((currency, "x_OriginCost", capacity.of_gpus))
    expected += [(currency, "EffectiveCost", ZERO) for currency in one.tallies.keys() - lines.keys()]
    for currency, column, cost in expected:
        found = one.tallies.get(currency, Tally()).of(column)
        if found != cost:
            raise TokenfuseError(
                f"{one.label}: {column} adds up to {plain(found)} {currency}, the ledger to {plain(cost)}",
                hint="nothing was exported; run `tokenfuse ledger show` for this time range",
            )

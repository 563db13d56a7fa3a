"""``tokenfuse export focus``: the ledger as FOCUS 1.2 files, a delivery a billing period, laid out as clouds lay out theirs.

``data/BILLING_PERIOD=2026-06/EXECUTION/NAME-00001.csv.gz``, and last ``metadata/BILLING_PERIOD=2026-06/NAME-Manifest.json``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection

from core.errors import BadInput, Conflict, TokenfuseError
from core.focus_rows import COLUMNS, CRITERIA, Issuer, Row, allocated_rows, billing_period, origin_row, stamp
from core.money import ZERO, plain, total
from core.windows import Window, floor_time
from models.focus_repo import Allocated, Grain, allocations, capacity_totals, is_final, line_totals, unpriced_windows
from reports.focus_files import ENDINGS, FileFormat, open_file
from reports.places import Place, working

RowKinds = Literal["both", "allocated", "origin"]
ROW_KINDS: tuple[RowKinds, ...] = ("both", "allocated", "origin")
TENANT_KEYS = ("org", "team", "project", "user")
_STEP: Mapping[Grain, timedelta] = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_CHUNK = timedelta(days=1)
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """``now`` names the execution. ``tenant``: only its rows, by path from the organisation down; ``safe``: see
    ``core.focus_rows.spreadsheet_safe``."""

    window: Window
    issuer: Issuer
    now: datetime
    grain: Grain = "hour"
    file_format: FileFormat = "csv"
    rows: RowKinds = "both"
    name: str = "tokenfuse-focus"
    as_of: datetime | None = None
    tenant: tuple[str, ...] = ()
    safe: bool = False

    def __post_init__(self) -> None:
        for option, at in (("--from", self.window.start), ("--to", self.window.end)):
            if floor_time(at, _STEP[self.grain]) != at:
                hint = f"the rows are whole UTC {self.grain}s: round it"
                raise BadInput(f"is not the start of a UTC {self.grain}", field=option, value=stamp(at), hint=hint)
        if self.tenant and self.rows != "allocated":
            raise BadInput("origin rows are of all tenants", field="--rows", value=self.rows, hint="use --rows allocated")
        if len(self.tenant) > len(TENANT_KEYS):
            raise BadInput("is longer than ORG/TEAM/PROJECT/USER", field="--tenant", value="/".join(self.tenant))

    @property
    def filters(self) -> dict[str, str]:
        return dict(zip(TENANT_KEYS, self.tenant, strict=False))


@dataclass(slots=True)
class Tally:
    """What was written, in one currency. ``effective`` adds up every row; ``origin`` is Σ x_OriginCost, 0 without such rows."""

    effective: Decimal = ZERO
    with_idle: Decimal = ZERO
    origin: Decimal = ZERO
    rows: int = 0

    def add(self, row: Row) -> None:
        self.take(Tally(_amount(row["EffectiveCost"]), _amount(row["x_CostWithIdle"]), _amount(row["x_OriginCost"]), 1))

    def take(self, other: Tally) -> None:
        self.effective = total([self.effective, other.effective])
        self.with_idle = total([self.with_idle, other.with_idle])
        self.origin = total([self.origin, other.origin])
        self.rows += other.rows

    def of(self, column: str) -> Decimal:
        return {"EffectiveCost": self.effective, "x_CostWithIdle": self.with_idle, "x_OriginCost": self.origin}[column]


@dataclass(frozen=True, slots=True)
class ExportedPeriod:
    """One delivery: its data file, its manifest, and totals that equal the ledger's."""

    billing_period: str
    file: str
    manifest: str
    rows: int
    bytes: int
    sha256: str
    invoice_id: str | None
    totals: list[dict[str, Any]]


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


@dataclass(slots=True)
class _Written:
    """A period's file in the workspace, checked, not yet in its place."""

    period: Window
    window: Window
    path: Path
    invoice_id: str | None
    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.period.start:%Y-%m}"


def export_focus(connection: Connection, place: Place, settings: ExportSettings, progress: Progress | None = None) -> Exported:
    """Write every billing period's rows, check that they add up to the ledger, then put them in their places.

    ``connection`` must read a snapshot. Nothing is put when a sum differs (TokenfuseError). Raises Conflict when the place holds
    a delivery of another time range or tenant under the same name.
    """
    with working(place) as folder:
        written = [one for window in _months(settings.window) if (one := _write(connection, folder, settings, window, progress))]
        for one in written:
            _refuse_other(place, settings, one)
        periods = [_put(place, settings, one) for one in written]
    sums: dict[str, Tally] = {}
    for one in written:
        for currency, tally in one.tallies.items():
            sums.setdefault(currency, Tally()).take(tally)
    unpriced = unpriced_windows(connection, settings.window, as_of=settings.as_of)
    window = settings.window
    return Exported(place.name(""), window.start, window.end, settings.grain, periods, _shown(sums), unpriced)


def _months(window: Window) -> Iterator[Window]:
    at = window.start
    while at < window.end:
        until = min(billing_period(at).end, window.end)
        yield Window(at, until)
        at = until


def _write(
    connection: Connection, folder: Path, settings: ExportSettings, window: Window, progress: Progress | None
) -> _Written | None:
    """None: no quarter hour that starts in ``window`` is closed and priced (or none is the tenant's)."""
    period = billing_period(window.start)
    covers = window == period and not settings.tenant and settings.now >= period.end
    final = covers and is_final(connection, period, as_of=settings.as_of)
    invoice = f"showback-{period.start:%Y-%m}" if final else None
    path = folder / f"{period.start:%Y-%m}{ENDINGS[settings.file_format]}"
    one = _Written(period, window, path, invoice)
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
    if settings.rows != "allocated":
        yield origin_row(found.origin, found.parts, settings.issuer, invoice, carries_cost=settings.rows == "origin")
    if settings.rows != "origin":
        yield from allocated_rows(found.origin, found.parts, settings.issuer, invoice)


def _check(connection: Connection, settings: ExportSettings, one: _Written) -> None:
    """The sums of the file against the ledger's own, by currency; any difference stops the export."""
    lines = line_totals(connection, one.window, as_of=settings.as_of, filters=settings.filters)
    expected = [(currency, "EffectiveCost", cost) for currency, (cost, _) in lines.items()]
    if settings.rows != "origin":
        expected += [(currency, "x_CostWithIdle", allocated) for currency, (_, allocated) in lines.items()]
    if not settings.tenant:
        capacity = capacity_totals(connection, one.window, as_of=settings.as_of)
        columns = ("EffectiveCost",) if settings.rows == "allocated" else ("EffectiveCost", "x_OriginCost")
        expected += [(currency, column, cost) for currency, cost in capacity.items() for column in columns]
    expected += [(currency, "EffectiveCost", ZERO) for currency in one.tallies.keys() - lines.keys()]
    for currency, column, cost in expected:
        found = one.tallies.get(currency, Tally()).of(column)
        if found != cost:
            raise TokenfuseError(
                f"{one.label}: {column} adds up to {plain(found)} {currency}, the ledger to {plain(cost)}",
                hint="nothing was exported; run `tokenfuse ledger show` for this time range",
            )


def _refuse_other(place: Place, settings: ExportSettings, one: _Written) -> None:
    former = _manifest_at(place, _manifest_key(settings, one))
    if former is None:
        return
    window = f"{stamp(one.window.start)}..{stamp(one.window.end)}"
    held = f"{former.get('windowStart')}..{former.get('windowEnd')}"
    shorter = stamp(one.window.start) > str(former.get("windowStart")) or stamp(one.window.end) < str(former.get("windowEnd"))
    if shorter or former.get("tenant") != "/".join(settings.tenant):
        raise Conflict(
            f"{place.name('')} holds {settings.name} of {one.label} for {held}, tenant {former.get('tenant') or 'all'}; "
            f"{window} would take its place",
            hint="use another --out or --name, or export the whole of it",
        )


def _put(place: Place, settings: ExportSettings, one: _Written) -> ExportedPeriod:
    execution = settings.now.strftime("%Y%m%dT%H%M%S.%fZ")
    ending = ENDINGS[settings.file_format]
    key = f"data/BILLING_PERIOD={one.label}/{execution}/{settings.name}-00001{ending}"
    manifest_key = _manifest_key(settings, one)
    former = _manifest_at(place, manifest_key) or {}
    size, digest = one.path.stat().st_size, _digest(one.path)
    rows = sum(tally.rows for tally in one.tallies.values())
    exported = ExportedPeriod(
        one.label, place.name(key), place.name(manifest_key), rows, size, digest, one.invoice_id, _shown(one.tallies)
    )
    body = _manifest(settings, one, exported, key, execution)
    place.put(one.path, key)
    text = one.path.with_suffix(".manifest")
    text.write_text(json.dumps(body, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    place.put(text, manifest_key)
    for old in former.get("dataFiles", ()):
        if old != key:
            place.remove(str(old))
    return exported


def _manifest(
    settings: ExportSettings, one: _Written, exported: ExportedPeriod, key: str, execution: str
) -> dict[str, Any]:  # fmt: skip
    """``executionId`` and ``dataFiles`` are how clouds' exports name them; the rest says what the file is."""
    return {
        "executionId": execution,
        "dataFiles": [key],
        "standard": "FOCUS",
        "version": "1.2",
        "createdAt": stamp(settings.now),
        "billingPeriodStart": stamp(one.period.start),
        "billingPeriodEnd": stamp(one.period.end),
        "windowStart": stamp(one.window.start),
        "windowEnd": stamp(one.window.end),
        "asOf": stamp(settings.as_of) if settings.as_of else None,
        "grain": settings.grain,
        "rowKinds": settings.rows,
        "tenant": "/".join(settings.tenant),
        "spreadsheetSafe": settings.safe,
        "invoiceId": one.invoice_id,
        "rows": exported.rows,
        "bytes": exported.bytes,
        "sha256": exported.sha256,
        "totals": [{name: plain(v) if isinstance(v, Decimal) else v for name, v in row.items()} for row in exported.totals],
        "applicabilityCriteria": list(CRITERIA),
        "columns": [{"name": name, "type": kind} for name, kind in COLUMNS.items()],
    }


def _manifest_key(settings: ExportSettings, one: _Written) -> str:
    return f"metadata/BILLING_PERIOD={one.label}/{settings.name}-Manifest.json"


def _manifest_at(place: Place, key: str) -> dict[str, Any] | None:
    body = place.read(key)
    if body is None:
        return None
    try:
        found = json.loads(body)
    except ValueError as error:
        raise BadInput(
            "is no manifest that can be read", where=place.name(key), hint="remove it, or use another --out"
        ) from error
    return found if isinstance(found, dict) else {}


def _digest(path: Path) -> str:
    with path.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def _shown(tallies: Mapping[str, Tally]) -> list[dict[str, Any]]:
    return [
        {"currency": currency, "rows": one.rows, "effective": one.effective, "with_idle": one.with_idle, "origin": one.origin}
        for currency, one in sorted(tallies.items())
    ]


def _amount(value: object) -> Decimal:
    return value if isinstance(value, Decimal) else ZERO

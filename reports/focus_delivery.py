"""One delivery of a FOCUS export: its settings and sums, its data file and its manifest in their places."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from core.errors import BadInput, Conflict
from core.focus_rows import COLUMNS, CRITERIA, Issuer, Row, stamp
from core.money import ZERO, plain, total
from core.windows import Window, floor_time
from models.focus_repo import Grain
from reports.focus_files import ENDINGS, FileFormat
from reports.places import Place

RowKinds = Literal["both", "allocated", "origin"]
ROW_KINDS: tuple[RowKinds, ...] = ("both", "allocated", "origin")
TENANT_KEYS = ("org", "team", "project", "user")
_STEP: Mapping[Grain, timedelta] = {"hour": timedelta(hours=1), "day": timedelta(days=1)}


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


@dataclass(slots=True)
class Written:
    """A period's file in the workspace, checked, not yet in its place."""

    period: Window
    window: Window
    path: Path
    invoice_id: str | None
    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.period.start:%Y-%m}"


def refuse_other(place: Place, settings: ExportSettings, one: Written) -> None:
    """Raises Conflict when the place holds a delivery of more time or of another tenant under the same name."""
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


def put_delivery(place: Place, settings: ExportSettings, one: Written) -> ExportedPeriod:
    """Data first, the manifest last, then what the former manifest named is removed."""
    execution = settings.now.strftime("%Y%m%dT%H%M%S.%fZ")
    ending = ENDINGS[settings.file_format]
    key = f"data/BILLING_PERIOD={one.label}/{execution}/{settings.name}-00001{ending}"
    manifest_key = _manifest_key(settings, one)
    former = _manifest_at(place, manifest_key) or {}
    size, digest = one.path.stat().st_size, _digest(one.path)
    rows = sum(tally.rows for tally in one.tallies.values())
    exported = ExportedPeriod(
        one.label, place.name(key), place.name(manifest_key), rows, size, digest, one.invoice_id, shown_totals(one.tallies)
    )
    body = _manifest(settings, one, exported, place.reference(key), execution)
    place.put(one.path, key)
    text = one.path.with_suffix(".manifest")
    text.write_text(json.dumps(body, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    place.put(text, manifest_key)
    for old in former.get("dataFiles", ()):
        former_key = f"data/{str(old).rpartition('/data/')[2]}"
        if former_key != key:
            place.remove(former_key)
    return exported


def _manifest(
    settings: ExportSettings, one: Written, exported: ExportedPeriod, reference: str, execution: str
) -> dict[str, Any]:  # fmt: skip
    """``executionId`` and ``dataFiles`` are how clouds' exports name them; the rest says what the file is."""
    return {
        "executionId": execution,
        "dataFiles": [reference],
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


def _manifest_key(settings: ExportSettings, one: Written) -> str:
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


def shown_totals(tallies: Mapping[str, Tally]) -> list[dict[str, Any]]:
    """By currency: rows, and the three sums."""
    return [
        {"currency": currency, "rows": one.rows, "effective": one.effective, "with_idle": one.with_idle, "origin": one.origin}
        for currency, one in sorted(tallies.items())
    ]


def _amount(value: object) -> Decimal:
    return value if isinstance(value, Decimal) else ZERO

"""Issue a cost book's month: its lines written as a delivery and imported as any bill is, so ledger and versions hold as for a
cloud. Issued again after a change it is a restated delivery; with an invoice's number it is final."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection, Engine

from core.book_power import Energy, MonthEnergy, PowerEntry, Prices, day_window, known_energy, power_lines
from core.cost_book import BookLine, CostBook, days_of, month_lines, totals
from core.depreciation import add_months
from core.errors import BadInput, Conflict
from core.windows import Window
from ingest.billing.adapter import BillOptions
from ingest.billing.cost_book import BookFile
from ingest.billing.cost_book_bill import SOURCE, write_delivery
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportedBill, ImportSettings
from models.audit_repo import append_audit
from models.billing_repo import current_of
from models.database import transaction
from models.gpu_repo import node_energy
from models.rates_repo import read_rates

HOUR = timedelta(hours=1)
FORMAT = "focus"


@dataclass(frozen=True, slots=True)
class IssuePlace:
    """Where a book is issued into."""

    db: Engine
    data_dir: Path
    node_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IssueAsk:
    """What is to be issued. ``invoice_id``: makes the month final. ``accept_unmeasured``: final though power was not measured
    throughout."""

    month: date
    now: datetime
    invoice_id: str = ""
    dry_run: bool = False
    accept_unmeasured: bool = False


@dataclass(frozen=True, slots=True)
class Issued:
    """``until``: the days before it are in the lines. ``unmeasured``: power that is not in them, in words."""

    month: date
    until: date
    by_kind: Mapping[str, Decimal]
    by_node: Mapping[str, Decimal]
    notes: tuple[str, ...]
    unmeasured: tuple[str, ...]
    bills: tuple[ImportedBill, ...]


def issue(place: IssuePlace, file: BookFile, ask: IssueAsk) -> Issued:
    """Raises BadInput: no day of the month is over yet, a kWh without a tariff; Conflict: the month is final or cannot be yet."""
    until = min(add_months(ask.month, 1), ask.now.date())
    if until <= ask.month:
        raise BadInput("no day of this month is over yet", field="--month", value=f"{ask.month:%Y-%m}")
    with transaction(place.db) as connection:
        _may_issue(connection, file.book, ask)
        power, unmeasured = _power(connection, file, ask.month, until)
    known = month_lines(file.book, ask.month, until)
    lines = sorted((*known.lines, *power), key=lambda line: (line.day, line.node, line.item, line.kind))
    if not lines:
        raise BadInput("the book has no cost in this month", field="--month", value=f"{ask.month:%Y-%m}")
    if ask.invoice_id and not ask.accept_unmeasured and unmeasured:
        raise Conflict(f"the power of this month is not known throughout: {unmeasured[0]}", hint="pass --accept unmeasured")
    bills = _import(place, file.book, ask, lines)
    if not ask.dry_run:
        _note(place, file.book, ask, bills)
    return Issued(ask.month, until, totals(lines), _by_node(lines), known.notes, unmeasured, bills)


def _may_issue(connection: Connection, book: CostBook, ask: IssueAsk) -> None:
    if ask.invoice_id:
        if ask.now.date() < add_months(ask.month, 1):
            raise Conflict(f"{ask.month:%Y-%m} is not over yet", hint="issue it without --final until then")
        return
    current = current_of(connection, SOURCE, book.name, ask.month)
    if current is not None and current.is_final:
        number = ", ".join(current.invoice_ids)
        raise Conflict(f"{ask.month:%Y-%m} is final (invoice {number})", hint="pass --final --invoice-id to issue it corrected")


def _power(connection: Connection, file: BookFile, month: date, until: date) -> tuple[list[BookLine], tuple[str, ...]]:
    tariffs = [rate for rate in read_rates(connection) if rate.kind in ("kwh", "pue")]
    prices = Prices(tariffs, file.book.currency, file.book.decimals)
    lines: list[BookLine] = []
    unmeasured: list[str] = []
    for entry in file.power:
        if entry.meter == "gpus":
            found = _measured(connection, file.book, entry, month, until)
        else:
            found = known_energy(file.book, entry, month, until)
        lines += power_lines(entry, found.energy, prices, until)
        unmeasured += found.unmeasured
    return lines, tuple(unmeasured)


def _measured(connection: Connection, book: CostBook, entry: PowerEntry, month: date, until: date) -> MonthEnergy:
    """Energy the GPU exporters measured, by hour and node in service."""
    served = {
        node: {day for day in days_of(month) if day < until and book.asset_of(node).in_service(day)} for node in entry.nodes
    }
    paid = {node: book.asset_of(node).gpus for node in entry.nodes}
    window = Window(day_window(month).start, day_window(until - timedelta(days=1)).end)
    found: list[Energy] = []
    hours: dict[str, int] = defaultdict(int)
    for row in node_energy(connection, window, paid):
        if row.kwh is not None and row.hour.date() in served[row.node]:
            found.append(Energy(row.node, Window(row.hour, row.hour + HOUR), row.kwh))
            hours[row.node] += 1
    missing = {node: 24 * len(days) - hours[node] for node, days in served.items()}
    words = tuple(
        f"{entry.id}: {node}: {n} of {24 * len(served[node])} hours were not measured" for node, n in missing.items() if n
    )
    return MonthEnergy(tuple(found), words)


def _import(place: IssuePlace, book: CostBook, ask: IssueAsk, lines: Sequence[BookLine]) -> tuple[ImportedBill, ...]:
    """Through the ordinary import. The book is the whole truth of its month: what it says now replaces what it said, shorter or
    as it once was."""
    settings = ImportSettings(
        db=place.db,
        data_dir=place.data_dir,
        format=FORMAT,
        adapter=ADAPTERS[FORMAT],
        options=BillOptions(source=SOURCE, export=book.name),
        accept=Accept(shorter=True, older=True),
        now=ask.now,
        dry_run=ask.dry_run,
        node_tags=place.node_tags,
    )
    folder = place.data_dir / "costbook" / book.name
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as scratch:
        written = Path(scratch) / f"{book.name}-{ask.month:%Y-%m}.csv"
        write_delivery(written, book, ask.month, lines, ask.invoice_id)
        path = written if ask.dry_run else written.rename(folder / written.name)
        store = LocalFiles(path)
        (found,) = find_deliveries(store, needs_manifest=False)
        return tuple(BillImport(settings).run(store, found))


def _note(place: IssuePlace, book: CostBook, ask: IssueAsk, bills: Sequence[ImportedBill]) -> None:
    detail = {
        "month": f"{ask.month:%Y-%m}",
        "invoice_id": ask.invoice_id,
        "versions": [bill.version for bill in bills],
        "status": [bill.status for bill in bills],
    }
    with transaction(place.db) as connection:
        append_audit(connection, ask.now, "command line", "costbook.issue", f"costbook:{book.name}", detail)


def _by_node(lines: Sequence[BookLine]) -> dict[str, Decimal]:
    named = sorted({line.node for line in lines if line.kind != "tax"})
    return {node: sum((x.amount for x in lines if x.node == node and x.kind != "tax"), Decimal(0)) for node in named}

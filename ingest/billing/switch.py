"""A read delivery in the former one's place: rows, files and the switch in one transaction, under the rules that forbid it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine

from core.billing import month_of, period_name
from core.errors import Conflict
from core.money import plain
from ingest.billing.adapter import BillAdapter, BillOptions
from ingest.billing.charge_join import JoinJob, JoinWith, join_delivery, join_with
from ingest.billing.charges import ChargeFile
from ingest.billing.delivery import Accept, Delivery, no_such_month
from ingest.billing.lines import Lines
from ingest.billing.sql import string
from models.billing_repo import (
    CHARGE_DAY_COLUMNS,
    BillVersion,
    NewBill,
    Restated,
    add_version,
    charged_days,
    copy_charges,
    current_of,
    lock_bills,
    overlapping,
    restatement,
    supersede,
)
from models.database import transaction
from models.join_repo import NodeMoney, node_money

CHUNK = 1 << 20
EARLIEST_ZONE = timedelta(hours=14)
SUMS = ("billed", "effective", "memo")
KNOWN_SUMS = ("list", "contracted", "quantity", "hours")


@dataclass(frozen=True, slots=True)
class ImportedBill:
    """What became of one delivery of one period. ``status``: current, unchanged, or dry run."""

    status: str
    source: str
    export: str
    billing_period: date
    version: int
    rows: int
    totals: list[dict[str, Any]]
    invoice_ids: list[str]
    is_final: bool
    notes: list[str]
    replaces: int | None = None
    """The version it took the place of."""
    restated: list[Restated] = field(default_factory=list)
    nodes: list[NodeMoney] = field(default_factory=list)
    """What of it belongs to which machine (node '': to none), by currency."""


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """One import's settings. ``data_dir`` is where the lines are kept; ``memory_mb`` bounds DuckDB's share of memory."""

    db: Engine
    data_dir: Path
    format: str
    adapter: BillAdapter
    options: BillOptions
    accept: Accept
    now: datetime
    dry_run: bool = False
    memory_mb: int = 256
    node_tags: tuple[str, ...] = ()
    """Tag keys whose value is a node's name, beside those that are known."""


class Switch:
    """One read delivery into the database: everything current changes in one transaction, with the files in place before."""

    def __init__(
        self, job: ImportSettings, session: Any, delivery: Delivery, lines: Lines, charges: ChargeFile, notes: Sequence[str]
    ) -> None:
        self._job, self._session, self._delivery = job, session, delivery
        self._lines, self._charges, self._notes = lines, charges, list(notes)
        self._with: JoinWith | None = None

    def into_place(self, work: Path) -> list[ImportedBill]:
        source = self._source()
        periods = self._charges.periods or ((self._delivery.period,) if self._delivery.period else ())
        if not periods:
            raise Conflict(f"{self._delivery.origin} holds no charge", hint="an empty delivery replaces nothing")
        periods = _of_month(periods, self._job.options.month, self._delivery.origin)
        self._refuse_future(periods)
        folder = self._folder(source)
        if self._job.dry_run:  # the same work, rolled back
            with self._job.db.connect() as connection:
                lock_bills(connection)
                made = [self._one(connection, source, period, folder, work) for period in periods]
                connection.rollback()
            return [replace(bill, status="dry run") for bill in made]
        with transaction(self._job.db) as connection:
            lock_bills(connection)
            made = [self._one(connection, source, period, folder, work) for period in periods]
            self._keep(work, folder)
        return made

    def _refuse_future(self, periods: Sequence[date]) -> None:
        """A period that has begun nowhere on Earth yet has nothing to be billed for: a wrong year, most often."""
        ahead = [period for period in periods if period > (self._job.now + EARLIEST_ZONE).date()]
        if ahead and not self._job.accept.future:
            raise Conflict(
                f"{self._delivery.origin}: billing period {period_name(ahead[-1])} has not begun",
                hint="is its year right? pass --accept future if it is",
            )

    def _source(self) -> str:
        given = self._job.options.source or self._job.adapter.source
        if given:
            return given
        found = self._session.execute("SELECT DISTINCT provider FROM charges ORDER BY 1").fetchall()
        return "+".join(row[0] for row in found) or "unknown"

    def _folder(self, source: str) -> Path:
        parts = [re.sub(r"[^A-Za-z0-9._-]", "_", part).strip(".") or "_" for part in (source, self._delivery.export)]
        return self._job.data_dir / "bills" / parts[0] / parts[1] / self._delivery.digest[:24]

    def _keep(self, work: Path, folder: Path) -> None:
        """The files take their place before the rows that name them are committed. Equal content has its folder already."""
        if folder.exists():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        kept = work / "kept"
        kept.mkdir()
        for path in (*self._lines.files, self._charges.path):
            path.rename(kept / path.name)
        kept.rename(folder)

    def _one(self, connection: Connection, source: str, period: date, folder: Path, work: Path) -> ImportedBill:
        job, delivery = self._job, self._delivery
        former = current_of(connection, source, delivery.export, period)
        if former is not None:
            supersede(connection, former, "a later delivery took its place", job.now)
        facts = self._facts(period)
        bill = add_version(
            connection,
            NewBill(
                source=source,
                export=delivery.export,
                billing_period=period,
                delivery_id=delivery.delivery_id or delivery.digest[:16],
                format=job.format,
                origin=delivery.origin,
                status="current",
                digest=delivery.digest,
                received_at=job.now,
                folder=folder.relative_to(job.data_dir).as_posix(),
                **facts,
            ),
        )
        copy_charges(connection, self._days(bill, work))
        other = self._judge(connection, former, bill)
        restated = restatement(connection, former, bill) if former else []
        nodes = self._join(connection, bill, [one.id for one in (former, other) if one is not None], work)
        made = imported(bill, "current")
        return replace(made, replaces=former.version if former else None, restated=restated, nodes=nodes)

    def _join(self, connection: Connection, bill: BillVersion, gone: Sequence[int], work: Path) -> list[NodeMoney]:
        """Its charges to the machines, in place of those of the deliveries that went."""
        if self._job.dry_run:
            return []
        self._with = self._with or join_with(connection, self._job.node_tags)
        job = JoinJob(bill.id, bill.billing_period, self._charges.path, tuple(gone))
        join_delivery(connection, self._session, job, self._with, work, self._job.now)
        return node_money(connection, [bill.id])

    def _facts(self, period: date) -> dict[str, Any]:
        at = f"WHERE delivery_period = DATE '{period.isoformat()}'"
        totals = self._session.execute(
            f"SELECT currency, sum(billed), sum(effective), sum(list), sum(contracted), count(DISTINCT (line_file, line_row)) "
            f"FROM charges {at} GROUP BY currency ORDER BY currency"
        ).fetchall()
        invoices = self._session.execute(
            f"SELECT DISTINCT invoice_id FROM charges {at} AND invoice_id <> '' ORDER BY 1"
        ).fetchall()
        open_rows, others = self._session.execute(
            "SELECT count(*) FILTER (invoice_id = '' AND billed <> 0), count(*) FILTER (billing_period <> delivery_period) "
            f"FROM charges {at}"
        ).fetchone()
        notes = [*self._notes]
        if others:
            notes.append(f"{others:,} charges name another billing period than their delivery; each is counted in its own")
        notes += [*self._unknown_kinds(at), *self._other_currencies(at)]
        names = ("billed", "effective", "list", "contracted")
        return {
            "rows": sum(row[5] for row in totals),
            "totals": [{"currency": row[0], **dict(zip(names, map(_amount, row[1:5]), strict=True))} for row in totals],
            "invoice_ids": [row[0] for row in invoices],
            "is_final": bool(invoices) and not open_rows,
            "notes": notes,
        }

    def _unknown_kinds(self, at: str) -> list[str]:
        found = self._session.execute(
            f"SELECT currency, count(*), sum(billed), list_sort(list(DISTINCT charge_category))[:3] FROM charges {at} "
            "AND kind = 'unknown' GROUP BY currency ORDER BY currency"
        ).fetchall()
        return [
            f"{count:,} charges of {currency} {plain(billed)} billed are of no known kind"
            f" ({', '.join(repr(word) for word in words)}): bucket unknown, in the total and in no other bucket"
            for currency, count, billed, words in found
        ]

    def _other_currencies(self, at: str) -> list[str]:
        """``--currency`` is for lines that name none: it changes no line that does."""
        given = self._job.options.currency
        found = self._session.execute(
            f"SELECT currency, count(*) FROM charges {at} AND currency <> {string(given)} GROUP BY 1 ORDER BY 1"
        ).fetchall()
        if not given or not found:
            return []
        named = ", ".join(f"{count:,} charges name {currency}" for currency, count in found)
        return [f"--currency {given} is for lines that name none: {named} and stay in it"]

    def _days(self, bill: BillVersion, work: Path) -> Iterator[bytes]:
        """The charges by day as CSV, in the order of CHARGE_DAY_COLUMNS."""
        target = work / f"days-{bill.id}.csv"
        special = {
            "delivery": str(bill.id),
            "day": "charge_start::DATE",
            "list_known": "list IS NOT NULL",
            "rows": "count(*)",
            **{name: f"coalesce(sum({name}), 0)" for name in SUMS},
            **{name: f"sum({name})" for name in KNOWN_SUMS},
        }
        cells = [f"{special.get(name, name)} AS {name}_" for name in CHARGE_DAY_COLUMNS]
        self._session.execute(
            f"COPY (SELECT {', '.join(cells)} FROM charges WHERE delivery_period = DATE '{bill.billing_period.isoformat()}' "
            f"GROUP BY ALL) TO {string(str(target))} (FORMAT csv, HEADER false, NULLSTR '\\N')"
        )
        with target.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
        target.unlink()

    def _judge(self, connection: Connection, former: BillVersion | None, bill: BillVersion) -> BillVersion | None:
        """Whether the new version may hold beside the others and in the former one's place. Raises Conflict; nothing stays.
        Returns the delivery of another export that gave way."""
        accept, name = self._job.accept, f"{bill.export} {period_name(bill.billing_period)}"
        if former is not None and not accept.shorter:
            old, new = charged_days(connection, former)[1], charged_days(connection, bill)[1]
            if bill.rows == 0 or (old is not None and (new is None or new < old)):
                until = f"ends on {new}" if new else "is empty"
                raise Conflict(
                    f"{name}: this delivery {until}, the current one (version {former.version}) on {old}",
                    hint="a shorter delivery does not replace a longer one; pass --accept shorter if it is right",
                )
        other = None
        if accept.instead_of:
            other = current_of(connection, bill.source, accept.instead_of, bill.billing_period)
            if other is not None and other.id != bill.id:
                supersede(connection, other, f"export {bill.export} took its place", self._job.now)
        others = overlapping(connection, bill)
        if others and not accept.overlap:
            raise Conflict(
                f"{name} charges the same account and days as export {', '.join(others)}: both together would count twice",
                hint=f"pass --instead-of {others[0]} to replace it, --export {others[0]} if it is the same export, "
                "or --accept overlap if they are disjoint",
            )
        return other if other is not None and other.id != bill.id else None


def _amount(value: Decimal | None) -> str | None:
    return None if value is None else plain(value)


def imported(bill: BillVersion, status: str) -> ImportedBill:
    shown: Mapping[str, Any] = {
        name: getattr(bill, name)
        for name in ("source", "export", "billing_period", "version", "rows", "totals", "invoice_ids", "is_final", "notes")
    }
    return ImportedBill(status=status, **shown)


def _of_month(periods: tuple[date, ...], month: date | None, origin: str) -> tuple[date, ...]:
    """The periods that begin in the month asked for, of those the lines are of; all where none was. Raises BadInput for none."""
    found = tuple(period for period in periods if month is None or month_of(period) == month)
    if not found and month is not None:
        raise no_such_month(periods, month, origin)
    return found

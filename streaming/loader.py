"""Applies Flink's finished delta files to the rollups, each exactly once, and brings in quarantined records and data faults."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import duckdb
import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from core.errors import Unavailable
from models.partitions import ensure_months
from streaming import delta_files, load_sql
from streaming.counter_topic import import_counters
from streaming.delta_files import DeltaFile
from streaming.presum import SUMS, presum
from streaming.side_topics import TABLES, import_topic

POLL_S = 0.15
SIDE_ROUNDS = 10
FAULT_WAIT_S = 5.0
BATCH_FILES = 64
BATCH_BYTES = 32_000_000
DAMAGE = (psycopg.DataError, psycopg.IntegrityError, duckdb.DataError, duckdb.InvalidInputException, duckdb.ConstraintException)
"""Faults of a file's content; any other fault is the database's, and the file waits."""
LOADER_LOCK = 7_360_702
"""Advisory lock of one loading transaction: two loaders take turns."""

log = logging.getLogger("tokenfuse.stream")


@dataclass(frozen=True, slots=True)
class Loader:
    """``deltas`` is DATA/deltas; ``now`` an aware UTC clock."""

    engine: Engine
    deltas: Path
    now: Callable[[], datetime]

    def run_once(self) -> int:
        """Apply every finished file there is; returns how many were new. Raises Unavailable when the database is away."""
        found = {kind: delta_files.finished(self.deltas, kind) for kind in reversed(delta_files.KINDS)}
        return sum(self._apply(kind, batch) for kind in delta_files.KINDS for batch in _batches(found[kind]))

    def import_side_topics(self) -> int:
        """Bring in quarantined records, data faults and gateways' counters; returns the number of lines.

        Raises Unavailable as ``run_once``.
        """
        folder, now = self.deltas.parent / "log", self.now()
        side = sum(import_topic(self.engine, folder, topic, now) for topic in TABLES)
        return side + import_counters(self.engine, folder, now)

    def run_forever(self, stop: threading.Event) -> None:
        """Poll until ``stop`` is set; a lost database is waited for."""
        rounds = 0
        while not stop.wait(POLL_S):
            try:
                self.run_once()
                if rounds % SIDE_ROUNDS == 0:
                    self.import_side_topics()
                rounds += 1
            except Unavailable as error:
                log.warning("loading waits for the database", extra={"reason": str(error)})
                stop.wait(error.retry_after_s)
            except Exception:  # a thread that ends would stop the whole stream without a word
                log.exception("loading failed and is tried again")
                stop.wait(FAULT_WAIT_S)

    def _apply(self, kind: str, batch: list[DeltaFile]) -> int:
        """One transaction for the batch; when it fails on its content, each file alone, and the bad one is set aside."""
        try:
            new = apply_files(self.engine, kind, batch, self.now())
        except (DBAPIError, psycopg.Error, duckdb.Error) as error:
            fault = error.orig if isinstance(error, DBAPIError) else error
            if not isinstance(fault, DAMAGE):
                raise Unavailable(f"the database did not take {batch[0].name}: {fault}", hint="run `tokenfuse doctor`") from error
            if len(batch) > 1:
                return sum(self._apply(kind, [file]) for file in batch)
            self._set_aside(batch[0], fault)
            return 0
        delta_files.keep_applied(self.deltas, batch, self.now())
        return new

    def _set_aside(self, file: DeltaFile, fault: Exception) -> None:
        place = delta_files.set_aside(self.deltas, file)
        reason = str(fault).splitlines()[0]
        log.error(
            "delta file cannot be applied and is set aside", extra={"file": file.name, "moved_to": str(place), "reason": reason}
        )


def _batches(files: Iterable[DeltaFile]) -> Iterator[list[DeltaFile]]:
    batch: list[DeltaFile] = []
    size = 0
    for file in files:
        if batch and (len(batch) >= BATCH_FILES or size + file.size > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def apply_files(engine: Engine, kind: str, files: list[DeltaFile], now: datetime) -> int:
    """Apply those of ``files`` that were never applied, in one transaction; returns their number."""
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOADER_LOCK})
        query = text("SELECT name FROM applied_file WHERE name = ANY(:names)")
        known = set(connection.execute(query, {"names": [file.name for file in files]}).scalars())
        new = [file for file in files if file.name not in known]
        if new:
            _record(connection, kind, _add_files(connection, kind, new, now), now)
            connection.execute(text("SELECT pg_notify('tokenfuse_loaded', :kind)"), {"kind": kind})
    return len(new)


def _add_files(connection: Connection, kind: str, files: list[DeltaFile], now: datetime) -> dict[str, int]:
    """Add the batch's sums; returns the rows of each file."""
    with tempfile.TemporaryDirectory(prefix="tokenfuse-load") as name:
        counts = presum(kind, files, Path(name))
        for table in SUMS[kind]:
            connection.execute(text(load_sql.staging(table)))
            _copy(connection, table, (Path(name) / table).read_bytes())
            _add(connection, table, now)
    return counts


def _copy(connection: Connection, kind: str, rows: bytes) -> None:
    cursor = connection.connection.cursor()
    try:
        with cursor.copy(load_sql.copy_in(kind)) as copy:
            copy.write(rows)
    finally:
        cursor.close()


def _add(connection: Connection, kind: str, now: datetime) -> None:
    if kind == "progress":
        connection.execute(text(load_sql.ADD_PROGRESS), {"now": now})
        return
    rollups = load_sql.ROLLUPS[kind]
    ensure_months(connection, connection.execute(text(load_sql.months(kind))).scalars(), load_sql.partitioned(kind))
    for rollup in rollups:
        connection.execute(text(load_sql.add(kind, rollup)))
    if kind in load_sql.MARKING:
        connection.execute(text(load_sql.mark_dirty(kind)), {"now": now})


def _record(connection: Connection, kind: str, counts: dict[str, int], now: datetime) -> None:
    connection.execute(
        text("INSERT INTO applied_file (name, kind, rows, applied_at) VALUES (:name, :kind, :rows, :now)"),
        [{"name": name, "kind": kind, "rows": rows, "now": now} for name, rows in sorted(counts.items())],
    )


def rebuild(engine: Engine, data_dir: Path, since: datetime, now: datetime) -> int:
    """After a database was restored from an older copy: apply the kept delta files it does not know; returns their number.

    ``since`` is the time of that copy or earlier; files applied before it that the copy holds are skipped by name.
    """
    deltas = data_dir / "deltas"
    applied = 0
    for kind in delta_files.KINDS:
        for batch in _batches(delta_files.kept_since(deltas, kind, since)):
            applied += apply_files(engine, kind, list({file.name: file for file in batch}.values()), now)
    return applied

"""Sums a batch of usage delta rows by key, in columns, before the database sees them: thousands of rows, not millions.

One row of a usage delta file is one slice of one request; the finishing slice also carries the request's lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from core.lengths import bucket_sql
from models.tables_usage import USAGE_KEYS, USAGE_MEASURES
from streaming.delta_files import DeltaFile
from streaming.jobs.usage_sql import LENGTH_KEYS
from streaming.plan import DELTAS

_TYPES = {"STRING": "VARCHAR", "BIGINT": "BIGINT"}
_COLUMNS = {name: _TYPES[sql_type] for name, sql_type in DELTAS["usage"]}
_TEXTS = [name for name, sql_type in DELTAS["usage"] if sql_type == "STRING"]
_TABLE = f"CREATE TABLE delta ({', '.join(f'{name} {kind} NOT NULL' for name, kind in _COLUMNS.items())})"
_READ = f"""INSERT INTO delta SELECT * FROM read_csv($path,
  header = false, auto_detect = false, delim = ',', quote = '"', escape = '"',
  new_line = '\\n', strict_mode = true, columns = {_COLUMNS}, force_not_null = {_TEXTS})"""
_KEYS = ", ".join(("minute_ms", *USAGE_KEYS))
_HOUR = "minute_ms // 3600000 * 3600000"
_LENGTHS = " UNION ALL ".join(
    f"SELECT {_HOUR} AS hour_ms, {', '.join(LENGTH_KEYS)}, '{kind}' AS kind, length_{kind} AS tokens "
    f"FROM delta WHERE length_{kind} >= 0"
    for kind in ("input", "output")
)
SUMS = {
    "usage": f"SELECT {_KEYS}, {', '.join(f'sum({name})::BIGINT' for name in USAGE_MEASURES)} FROM delta GROUP BY {_KEYS}",
    "length": f"""SELECT hour_ms, {", ".join(LENGTH_KEYS)}, kind, {bucket_sql("tokens")} AS bucket, count(*), sum(tokens)::BIGINT
      FROM ({_LENGTHS}) GROUP BY ALL""",
}
"""What the staging tables of each kind get of a batch."""


def presum(files: Sequence[DeltaFile], folder: Path) -> dict[str, int]:
    """Write ``folder``/KIND.csv for each kind of ``SUMS``; returns the rows of each file by name.

    Raises duckdb.Error when a file is not wholly readable.
    """
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute(_TABLE)
        counts = {file.name: _read(connection, file, folder) for file in files}
        for kind, query in SUMS.items():
            connection.execute(f"COPY ({query}) TO '{folder / kind}.csv' (FORMAT csv, HEADER false)")
    return counts


def _read(connection: duckdb.DuckDBPyConnection, file: DeltaFile, folder: Path) -> int:
    path = file.path
    if file.is_packed:
        path = folder / "unpacked.csv"
        path.write_bytes(file.read())
    found = connection.execute(_READ, {"path": str(path)}).fetchone()
    return int(found[0]) if found else 0

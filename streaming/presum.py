"""Sums a batch of delta rows by key, in columns, before the database sees them: thousands of rows, not millions.

One row of a usage delta file is one slice of one request; the finishing slice also carries the request's lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from core.lengths import bucket_sql
from models.tables_gpu import GPU_KEYS, GPU_MEASURES
from models.tables_usage import ENGINE_MEASURES, USAGE_KEYS, USAGE_MEASURES
from streaming.delta_files import DeltaFile
from streaming.jobs.usage_sql import LENGTH_KEYS
from streaming.plan import DELTAS, ENGINE_DIMENSIONS, Columns

_TYPES = {"STRING": "VARCHAR", "BIGINT": "BIGINT"}
_UNKNOWN = {"length_input": "-1", "length_output": "-1"}
_ABSENT = {"STRING": "''", "BIGINT": "0"}
"""What a column holds that a file of another version does not have; a length is then unknown, not zero."""
_DERIVED = {
    "operations": "CASE WHEN status = 'error' THEN 0 ELSE requests END",
    "end_unknown": "CASE WHEN status = 'error' THEN requests ELSE 0 END",
}
"""The same of columns that follow from others: version 0.1.0 did not count operations."""


def _summed(keys: Sequence[str], measures: Sequence[str]) -> str:
    names = ", ".join(keys)
    return f"SELECT {names}, {', '.join(f'sum({name})::BIGINT' for name in measures)} FROM delta GROUP BY {names}"


_HOUR = "minute_ms // 3600000 * 3600000"
_LENGTHS = " UNION ALL ".join(
    f"SELECT {_HOUR} AS hour_ms, {', '.join(LENGTH_KEYS)}, '{kind}' AS kind, length_{kind} AS tokens "
    f"FROM delta WHERE length_{kind} >= 0"
    for kind in ("input", "output")
)
SUMS: Mapping[str, Mapping[str, str]] = {
    "usage": {
        "usage": _summed(("minute_ms", *USAGE_KEYS), USAGE_MEASURES),
        "length": f"""SELECT hour_ms, {", ".join(LENGTH_KEYS)}, kind, {bucket_sql("tokens")} AS bucket, count(*),
          sum(tokens)::BIGINT FROM ({_LENGTHS}) GROUP BY ALL""",
    },
    "engine": {"engine": _summed(("minute_ms", *ENGINE_DIMENSIONS), ENGINE_MEASURES)},
    "gpu": {"gpu": _summed(("minute_ms", *GPU_KEYS), GPU_MEASURES)},
    "progress": {"progress": _summed(("topic", "segment"), ("lines",))},
}
"""What each staging table gets of a batch of a delta kind."""


def presum(kind: str, files: Sequence[DeltaFile], folder: Path) -> dict[str, int]:
    """Write CSV ``folder``/TABLE for each staging table of the kind; returns the rows of each file by name.

    Files are read by the names of their own columns. Raises duckdb.Error when one is not wholly readable.
    """
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute(_table(DELTAS[kind]))
        counts = {file.name: _read(connection, file, folder) for file in files}
        for table, query in SUMS[kind].items():
            connection.execute(f"COPY ({query}) TO {_quoted(folder / table)} (FORMAT csv, HEADER false)")
    return counts


def _table(columns: Columns) -> str:
    declared = ", ".join(f"{name} {_TYPES[kind]} NOT NULL DEFAULT {_UNKNOWN.get(name, _ABSENT[kind])}" for name, kind in columns)
    return f"CREATE TABLE delta ({declared})"


def _read(connection: duckdb.DuckDBPyConnection, file: DeltaFile, folder: Path) -> int:
    path = file.path
    if file.is_packed:
        path = folder / "unpacked"
        path.write_bytes(file.read())
    known = {name for name, _ in DELTAS[file.kind]}
    shared = ", ".join(name for name, _ in file.columns if name in known)
    derived = {} if file.kind != "usage" or "operations" in shared else _DERIVED
    names, values = (", ".join([shared, *more]) for more in (derived, derived.values()))
    found = connection.execute(f"INSERT INTO delta ({names}) SELECT {values} FROM {_csv(path, file.columns)}").fetchone()
    return int(found[0]) if found else 0


def _csv(path: Path, columns: Columns) -> str:
    types = {name: _TYPES[kind] for name, kind in columns}
    texts = [name for name, kind in columns if kind == "STRING"]
    return f"""read_csv({_quoted(path)}, header = false, auto_detect = false, delim = ',', quote = '"', escape = '"',
  new_line = '\\n', strict_mode = true, columns = {types}, force_not_null = {texts})"""


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"

"""FOCUS rows to files: CSV (gzip) or Parquet with declared types, a row at a time in bounded memory."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import pyarrow as pa
import pyarrow.parquet as pq

from core.focus_rows import COLUMNS, Row, Value, spreadsheet_safe, stamp
from core.money import plain

FileFormat = Literal["csv", "parquet"]
BATCH = 50_000
"""Rows held at a time; a row group of a Parquet file."""
_TYPES: Mapping[str, pa.DataType] = {
    "decimal": pa.decimal128(38, 12),
    "time": pa.timestamp("ms", tz="UTC"),
    "text": pa.string(),
    "integer": pa.int64(),
}
SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])


_stamp = lru_cache(maxsize=256)(stamp)
"""The same few times stand in every row of an hour."""


class RowFile(Protocol):
    """A file being written; it is whole only after its ``with`` block has ended."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...
    def write(self, row: Row) -> None: ...


class CsvFile:
    """RFC 4180 with a header, gzip; an empty cell is null, times are RFC 3339 with Z, decimals plain and exact."""

    def __init__(self, path: Path, *, safe: bool = False) -> None:
        # No name and no time in the gzip header: equal rows give equal bytes.
        self._raw = path.open("wb")
        self._gzip = gzip.GzipFile(filename="", fileobj=self._raw, mode="wb", mtime=0, compresslevel=6)
        self._text = io.TextIOWrapper(self._gzip, encoding="utf-8", newline="")
        self._writer = csv.writer(self._text, lineterminator="\n")
        shown: dict[str, Callable[[Any], str]] = {"decimal": plain, "time": _stamp}
        if safe:
            shown["text"] = spreadsheet_safe
        self._shown = [(place, shown[kind]) for place, kind in enumerate(COLUMNS.values()) if kind in shown]
        self._writer.writerow(COLUMNS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._text.close()
        self._raw.close()

    def write(self, row: Row) -> None:
        cells: list[Value] = [row[name] for name in COLUMNS]
        for place, shown in self._shown:
            if cells[place] is not None:
                cells[place] = shown(cells[place])
        self._writer.writerow(cells)


class ParquetFile:
    """zstd; decimals as DECIMAL(38, 12), times as UTC milliseconds."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._rows: list[Row] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def write(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        columns: dict[str, list[Any]] = {name: [_utc(row[name]) for row in self._rows] for name in COLUMNS}
        self._writer.write_table(pa.table(columns, schema=SCHEMA))
        self._rows = []


def _utc(value: Value) -> Value:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def open_file(path: Path, file_format: FileFormat, *, safe: bool = False) -> RowFile:
    """``safe``: see ``core.focus_rows.spreadsheet_safe``; of CSV alone."""
    return ParquetFile(path) if file_format == "parquet" else CsvFile(path, safe=safe)


ENDINGS: Mapping[FileFormat, str] = {"csv": ".csv.gz", "parquet": ".parquet"}

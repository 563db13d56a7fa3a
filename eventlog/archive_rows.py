"""Log segments as typed tables and back.

A row holds the narrow columns of the CSV line, the full record as JSON text, and its place in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

import core.engine
import core.usage
from core.errors import BadInput
from eventlog.archive_manifest import Entry, archive_folder
from eventlog.layout import SegmentFile, full_path, sequence_of

COLUMNS: dict[str, tuple[str, ...]] = {"usage": core.usage.LINE_COLUMNS, "engine": core.engine.LINE_COLUMNS}
TIME_COLUMN: dict[str, str] = {"usage": "finished_ms", "engine": "at_ms"}
DAY_MS = 86_400_000
_USAGE_TEXT = frozenset(core.usage.LINE_COLUMNS[:1] + core.usage.LINE_COLUMNS[3:14])
_ENGINE_TEXT = frozenset(core.engine.LINE_COLUMNS) - {"at_ms"}
_TEXT: dict[str, frozenset[str]] = {"usage": _USAGE_TEXT, "engine": _ENGINE_TEXT}

LogRow = tuple[int, str, str, bytes | None]
"""Line number, segment, CSV line without the segment column, full record."""


def segments_table(folder: Path, topic: str, files: Sequence[SegmentFile]) -> Any:
    """Arrow table of whole segments: narrow columns, ``segment``, ``line_no``, ``record`` (null where the sender gave none).

    Warm-up lines (``counted`` = 0) are left out: they copy rows that are in the archive already.
    Raises BadInput, naming the file, when a segment has not the lines its name states.
    """
    lines = [_whole(file.path, file.path.read_bytes(), file.lines) for file in files]
    table = _parse(topic, b"".join(lines))
    line_no = pa.array(list(chain.from_iterable(range(file.lines) for file in files)), pa.int64())
    records = list(chain.from_iterable(_records(folder, topic, file) for file in files))
    table = table.append_column("line_no", line_no).append_column("record", pa.array(records, pa.binary()).cast(pa.string()))
    return table.filter(pc.equal(table["counted"], 1)) if topic == "usage" else table


def _whole(path: Path, data: bytes, lines: int) -> bytes:
    if data.count(b"\n") != lines or not data.endswith(b"\n"):
        hint = "The file was changed after it was published: restore it."
        raise BadInput(f"has not the {lines} lines its name states", where=str(path), value=data.count(b"\n"), hint=hint)
    return data


def _parse(topic: str, data: bytes) -> Any:
    types = {name: pa.string() if name in _TEXT[topic] else pa.int64() for name in COLUMNS[topic]}
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(column_names=[*COLUMNS[topic], "segment"], use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(quote_char='"', double_quote=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types={**types, "segment": pa.string()}, null_values=[]),
    )


def _records(folder: Path, topic: str, file: SegmentFile) -> Iterable[bytes | None]:
    path = full_path(folder, topic, file.epoch, file.segment)
    if not path.exists():  # a segment the job wrote itself (warm-up) has none
        return [None] * file.lines
    return [record or None for record in _whole(path, path.read_bytes(), file.lines).split(b"\n")[:-1]]


def day_numbers(topic: str, table: Any) -> Any:
    """Days since the epoch (UTC) of each row."""
    return pc.cast(pc.floor(pc.divide(pc.cast(table[TIME_COLUMN[topic]], pa.float64()), float(DAY_MS))), pa.int64())


def entry_rows(data_dir: Path, topic: str, entry: Entry) -> dict[int, list[LogRow]]:
    """The log rows of one manifest entry by sequence number, in line order."""
    found: dict[int, list[LogRow]] = {}
    for file in entry.files:
        for row in pq.read_table(archive_folder(data_dir, topic) / file.name, partitioning=None).to_pylist():
            line = ",".join(_csv_field(row[name]) for name in COLUMNS[topic])
            record = None if row["record"] is None else row["record"].encode()
            found.setdefault(sequence_of(row["segment"]), []).append((row["line_no"], row["segment"], line, record))
    for rows in found.values():
        rows.sort(key=lambda row: row[0])
    return found


def _csv_field(value: str | int) -> str:
    text = str(value)
    if "," in text or '"' in text:
        return '"' + text.replace('"', '""') + '"'
    return text

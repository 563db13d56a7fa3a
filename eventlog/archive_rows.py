"""Log segments as typed tables and back.

A row holds the narrow columns of the CSV line, the full record as JSON text, and its place in the log.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import date
from heapq import merge
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

import core.engine
import core.usage
from core.errors import BadInput
from eventlog.archive_manifest import Entry, archive_folder, entries
from eventlog.layout import SegmentFile, full_path

COLUMNS: dict[str, tuple[str, ...]] = {"usage": core.usage.LINE_COLUMNS, "engine": core.engine.LINE_COLUMNS}
TIME_COLUMN: dict[str, str] = {"usage": "finished_ms", "engine": "at_ms"}
_USAGE_TEXT = frozenset(core.usage.LINE_COLUMNS[:1] + core.usage.LINE_COLUMNS[3:14])
_ENGINE_TEXT = frozenset(core.engine.LINE_COLUMNS) - {"at_ms"}
_TEXT: dict[str, frozenset[str]] = {"usage": _USAGE_TEXT, "engine": _ENGINE_TEXT}

_LATER = "ends_operation"
"""The usage column that version 0.1.0 did not write; see ``_with_later``."""
_EARLIER = tuple(name for name in COLUMNS["usage"] if name != _LATER)

PLACE_COLUMNS = ("segment", "line_no")
_BATCH_ROWS = 16_384
_UNIQUE = frozenset({"request_id", "record", "line_no", "first_ms", "finished_ms", "at_ms", "payload"})
"""Columns without repeats: a dictionary of them is built in vain."""

LogRow = tuple[int, str, bytes | None]
"""Line number, CSV line without the segment column, full record."""


def segments_table(folder: Path, topic: str, files: Sequence[SegmentFile]) -> Any:
    """Arrow table of whole segments: narrow columns, ``segment``, ``line_no``, ``record`` (null where the sender gave none).

    Warm-up lines (``counted`` = 0) are left out: they copy rows that are in the archive already.
    Raises BadInput, naming the file, when a segment has not the lines its name states or cannot be read as its topic.
    """
    try:
        table = _table(folder, topic, files)
    except pa.ArrowInvalid as error:
        if len(files) == 1:
            hint = "The file was changed after it was published: restore it."
            raise BadInput(
                "does not hold lines and records of its topic", where=str(files[0].path), value=error, hint=hint
            ) from error
        return pa.concat_tables([segments_table(folder, topic, [file]) for file in files])
    if topic != "usage" or pc.min(table["counted"]).as_py() == 1:
        return table
    return table.filter(pc.equal(table["counted"], pa.scalar(1, pa.int64())))


def _table(folder: Path, topic: str, files: Sequence[SegmentFile]) -> Any:
    table = _parse(topic, b"".join([_whole(file.path, file.path.read_bytes(), file.lines) for file in files]))
    lines = np.array([file.lines for file in files], np.int64)
    line_no = np.arange(lines.sum(), dtype=np.int64) - np.repeat(np.cumsum(lines) - lines, lines)
    records = _text_column(b"".join([_records(folder, topic, file) for file in files]))
    return table.append_column("line_no", _column(pa.int64(), line_no)).append_column("record", records)


def _whole(path: Path, data: bytes, lines: int) -> bytes:
    if data.count(b"\n") != lines or not data.endswith(b"\n"):
        hint = "The file was changed after it was published: restore it."
        raise BadInput(f"has not the {lines} lines its name states", where=str(path), value=data.count(b"\n"), hint=hint)
    return data


def _parse(topic: str, data: bytes) -> Any:
    names = _EARLIER if topic == "usage" and _is_earlier(data[: data.index(b"\n")]) else COLUMNS[topic]
    return _with_later(topic, _parse_csv(topic, names, data)).select([*COLUMNS[topic], "segment"])


def _is_earlier(line: bytes) -> bool:
    fields = next(csv.reader([line.decode("utf-8", "replace")]))
    return len(fields) == len(_EARLIER) + 1 and fields[_EARLIER.index("status")] in core.usage.STATUSES


def _with_later(topic: str, rows: Any) -> Any:
    """Rows of any version with every column: what was answered, refused or left ended its operation, of failures nobody knows."""
    if _LATER not in COLUMNS[topic] or _LATER in rows.schema.names:
        return rows
    ended = pc.if_else(pc.equal(rows["status"], "error"), pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64()))
    return rows.append_column(_LATER, ended)


def _parse_csv(topic: str, names: Sequence[str], data: bytes) -> Any:
    types = {name: pa.string() if name in _TEXT[topic] else pa.int64() for name in names}
    return pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(column_names=[*names, "segment"], use_threads=False),
        parse_options=pyarrow.csv.ParseOptions(quote_char='"', double_quote=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types={**types, "segment": pa.string()}, null_values=[]),
    )


def _records(folder: Path, topic: str, file: SegmentFile) -> bytes:
    path = full_path(folder, topic, file.epoch, file.segment)
    if not path.exists():  # a segment the job wrote itself (warm-up) has none
        return b"\n" * file.lines
    return _whole(path, path.read_bytes(), file.lines)


def _text_column(data: bytes) -> Any:
    """Lines as one column of text, an empty line as null. No line becomes a Python object."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))
    has_text = np.packbits(np.diff(offsets) > 0, bitorder="little")
    return _column(pa.binary(), offsets, data.replace(b"\n", b""), valid=has_text).cast(pa.string())


def _column(kind: Any, values: Any, *more: Any, valid: Any = None) -> Any:
    """An Arrow array on numpy memory; ``pa.array`` would import pandas first."""
    length = len(values) - len(more)
    buffers = [None if valid is None else pa.py_buffer(valid), *(pa.py_buffer(part) for part in (values, *more))]
    return pa.Array.from_buffers(kind, length, buffers)


def _text(value: str) -> Any:
    """An Arrow scalar; ``pa.scalar`` would import pandas first."""
    return _column(pa.string(), np.array([0, len(value)], np.int32), value.encode())[0]


def by_day(topic: str, table: Any) -> list[tuple[date, Any]]:
    """The rows of each UTC date, earliest first, in their order."""
    days = table[TIME_COLUMN[topic]].cast(pa.timestamp("ms")).cast(pa.date32())
    found = sorted(pc.unique(days), key=lambda day: day.as_py())
    if len(found) == 1:
        return [(found[0].as_py(), table)]
    return [(day.as_py(), table.filter(pc.equal(days, day))) for day in found]


def write_table(table: Any, path: Path) -> None:
    """Parquet whose narrow columns can be read without their records."""
    repeated = [name for name in table.column_names if name not in _UNIQUE]
    compared = [name for name in table.column_names if name != "record"]
    pq.write_table(
        table, path, compression="zstd", row_group_size=131_072, use_dictionary=repeated, write_statistics=compared
    )  # fmt: skip


def entry_rows(data_dir: Path, topic: str, entry: Entry, from_seq: int) -> Iterator[tuple[int, LogRow]]:
    """The log rows of one manifest entry from ``from_seq`` on, each with its sequence number, in reading order.

    Holds one record batch of each of its files. A file that retention has taken away has no rows.
    """
    streams = [_file_rows(topic, file, from_seq) for file in _open(data_dir, topic, entry)]
    return streams[0] if len(streams) == 1 else merge(*streams, key=lambda row: (row[0], row[1][0]))


def _open(data_dir: Path, topic: str, entry: Entry) -> list[Any]:
    """All at once: an open file can be read to its end although retention removes it."""
    found = []
    for file in entry.files:
        try:
            found.append(pq.ParquetFile(archive_folder(data_dir, topic) / file.name))
        except FileNotFoundError:
            listed = entries(data_dir, topic, from_seq=entry.first_seq, to_seq=entry.last_seq)
            if any(file in one.files for one in listed):
                raise
    return found


def _file_rows(topic: str, file: Any, from_seq: int) -> Iterator[tuple[int, LogRow]]:
    """Rows of a file lie in reading order, as they were packed."""
    with file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=[*COLUMNS[topic], *PLACE_COLUMNS, "record"]):
            start = int(np.searchsorted(_sequences(batch), from_seq))
            if start < batch.num_rows:
                rows = _with_later(topic, batch.slice(start))
                records = (record or None for record in _split(rows["record"].cast(pa.binary())))
                lines = (line.decode() for line in _split(_lines(topic, rows)))
                found = zip(_integers(rows["line_no"]).tolist(), lines, records, strict=True)
                yield from zip(_sequences(rows).tolist(), found, strict=True)


def _sequences(batch: Any) -> Any:
    return _integers(pc.utf8_slice_codeunits(batch["segment"], 9).cast(pa.int64()))


def _integers(column: Any) -> Any:
    """A column of int64 as numpy; ``to_numpy`` would import pandas first."""
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]


def _lines(topic: str, batch: Any) -> Any:
    """The rows as canonical CSV lines: a field is quoted when it holds a comma or a quote."""
    fields = [_quoted(batch[name]) if name in _TEXT[topic] else batch[name].cast(pa.string()) for name in COLUMNS[topic]]
    return pc.binary_join_element_wise(*fields, _text(",")).cast(pa.binary())


def _quoted(column: Any) -> Any:
    special = pc.match_substring_regex(column, '[,"]')
    if not pc.any(special).as_py():
        return column
    doubled = pc.replace_substring(column, pattern='"', replacement='""')
    quoted = pc.binary_join_element_wise(_text(""), doubled, _text(""), _text('"'))
    return pc.if_else(special, quoted, column)


def _split(column: Any) -> list[bytes]:
    """A column of lines as Python values, null as empty; one split is far faster than a scalar each."""
    line_break, between = (_text(part).cast(pa.binary()) for part in ("\n", ""))
    text = pc.binary_join_element_wise(column, line_break, between, null_handling="replace", null_replacement=b"")
    first, last = np.frombuffer(text.buffers()[1], np.int32)[[text.offset, text.offset + len(text)]]
    joined: bytes = text.buffers()[2][int(first) : int(last)].to_pybytes()
    return joined.split(b"\n")[:-1]

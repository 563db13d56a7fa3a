"""Reading the log by offset: visible and archived segments in the order of their sequence numbers.

An offset is ``SEQ-WRITER:LINE``; offsets of one topic compare as strings in reading order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path

from core.errors import BadInput
from core.ports import LogLine
from eventlog.archive_manifest import entries, last_sequence
from eventlog.archive_rows import LogRow, entry_rows
from eventlog.layout import (
    FULL_TOPICS,
    SegmentFile,
    epoch_names,
    full_path,
    open_segments,
    sequence_of,
    visible_segments,
    writer_of,
)
from eventlog.locks import exclusive
from eventlog.open_segment import read_counter, write_counter
from eventlog.repair import repair_dead_writers

_SegmentRows = tuple[str, Iterator[LogRow]]
"""A segment's place in the order of reading (an offset without its line) and its rows."""


def _place(segment: str) -> str:
    return f"{sequence_of(segment):012d}-{writer_of(segment)}"


def parse_offset(offset: str) -> tuple[int, int]:
    """Sequence number and line of an offset."""
    try:
        place, line = offset.split(":")
        return int(place.split("-")[0]), int(line)
    except ValueError:
        hint = "pass the offset of a line this log returned"
        raise BadInput("is not an offset of this log", field="after", value=offset, hint=hint) from None


def read_log(folder: Path, topic: str, after: str | None, limit: int) -> Iterator[LogLine]:
    """See ``SpoolLog.read``; needs no SpoolLog, so a process that only reads need not register as a writer."""
    seq, line = (0, -1) if after is None else parse_offset(after)
    return islice(_lines(folder, topic, seq, line + 1), limit)


def raise_counter(folder: Path, topic: str) -> None:
    """Lift the topic's sequence counter over every segment there is: a power cut may have set it back."""
    known = [last_sequence(folder.parent, topic)]
    for epoch in epoch_names(folder, topic):
        known += [sequence_of(file.segment) for file in visible_segments(folder, topic, epoch)]
        known += [sequence_of(name) for name in open_segments(folder, topic, epoch)]
    with exclusive(folder / topic / ".seq") as counter:
        if max(known) > read_counter(counter):
            write_counter(counter, max(known))


def sync_counter(folder: Path, topic: str) -> None:
    """Make the counter durable; needed before the segments it could be rebuilt from are removed."""
    with exclusive(folder / topic / ".seq") as counter:
        os.fsync(counter)


def _lines(folder: Path, topic: str, after_seq: int, first_line: int) -> Iterator[LogLine]:
    if not (folder / topic).is_dir():
        return
    repair_dead_writers(folder, topic)
    horizon = _horizon(folder, topic)
    # Visible first, then the archive: a segment that moves in between is then found in the archive.
    visible = _visible(folder, topic, after_seq, horizon)
    archive = _ArchiveCursor(folder.parent, topic, after_seq)
    for seq in sorted(visible.keys() | archive.sequences(horizon)):
        rows = _rows(folder, topic, visible[seq]) if seq in visible else archive.rows(seq)
        if rows is None:
            archive = _ArchiveCursor(folder.parent, topic, seq)
            rows = archive.rows(seq)
        place, found = rows
        for line_no, line, record in found:
            if seq > after_seq or line_no >= first_line:
                yield LogLine(f"{place}:{line_no:09d}", line, record)


def _horizon(folder: Path, topic: str) -> int:
    """The highest sequence number up to which every segment is closed. Counter and open segments are seen at one moment."""
    with exclusive(folder / topic / ".seq") as counter:
        last = read_counter(counter)
        being_written = [sequence_of(s) for epoch in epoch_names(folder, topic) for s in open_segments(folder, topic, epoch)]
    return min([last, *(seq - 1 for seq in being_written)])


def _visible(folder: Path, topic: str, after_seq: int, horizon: int) -> dict[int, SegmentFile]:
    files = (file for epoch in epoch_names(folder, topic) for file in visible_segments(folder, topic, epoch))
    return {seq: file for file in files if after_seq <= (seq := sequence_of(file.segment)) <= horizon}


def _rows(folder: Path, topic: str, file: SegmentFile) -> _SegmentRows | None:
    """The rows of a visible segment; None when it has just left the log."""
    try:
        lines = file.path.open("rb")
        full = full_path(folder, topic, file.epoch, file.segment).open("rb") if topic in FULL_TOPICS else None
    except FileNotFoundError:
        return None
    suffix = f",{file.segment}\n".encode() if topic in FULL_TOPICS else b"\n"

    def rows() -> Iterator[LogRow]:
        with lines:
            for line_no, (line, record) in enumerate(zip_longest(lines, full or ())):
                yield line_no, line.removesuffix(suffix).decode(), (record or b"").rstrip(b"\n") or None
        if full is not None:
            full.close()

    return _place(file.segment), rows()


class _ArchiveCursor:
    """Archived rows by sequence number, asked for in ascending order; holds a record batch of each entry it is in."""

    def __init__(self, data_dir: Path, topic: str, after_seq: int) -> None:
        self._data_dir, self._topic, self._after_seq = data_dir, topic, after_seq
        found = entries(data_dir, topic, from_seq=after_seq) if topic in FULL_TOPICS else ()
        self._entries = [(entry, entry.last_seq) for entry in found]
        self._of_seq = {sequence_of(name): (name, n) for n, entry in enumerate(found) for name, _ in entry.segments}
        self._streams: dict[int, _EntryStream] = {}

    def sequences(self, horizon: int) -> set[int]:
        return {seq for seq in self._of_seq if self._after_seq <= seq <= horizon}

    def rows(self, seq: int) -> _SegmentRows:
        """Empty where retention has removed the segment."""
        if seq not in self._of_seq:
            return "", iter(())
        name, number = self._of_seq[seq]
        entry, last_seq = self._entries[number]
        if number not in self._streams:
            self._streams[number] = _EntryStream(entry_rows(self._data_dir, self._topic, entry, seq))
        stream = self._streams.pop(number) if seq == last_seq else self._streams[number]
        return _place(name), stream.rows(seq)


class _EntryStream:
    """Cuts the rows of one entry into its segments."""

    def __init__(self, rows: Iterator[tuple[int, LogRow]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def rows(self, seq: int) -> Iterator[LogRow]:
        while self._next is not None and self._next[0] <= seq:
            if self._next[0] == seq:
                yield self._next[1]
            self._next = next(self._rows, None)

"""One segment being written: two files side by side, positions that are durable, and the way back after a failed write."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eventlog.layout import (
    FULL_TOPICS,
    PRIVATE_FILE,
    SegmentFile,
    epoch_folder,
    fsync_folder,
    make_epoch,
    open_folder,
    segment_name,
)
from eventlog.line_columns import takes_our_lines
from eventlog.locks import exclusive, lock_shared
from eventlog.manifest import current_epoch, is_sealed, seal_epoch
from eventlog.repair import discard, publish

LEAVE_S = 5.0
"""How long writers of another version may take to leave the epoch they share; a segment is open for well under a second."""


@dataclass(slots=True)
class _File:
    """An open file and the end of what was written to it."""

    handle: int
    end_bytes: int = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self.handle, view, self.end_bytes)
            self.end_bytes += done
            view = view[done:]

    def cut(self, end_bytes: int) -> None:
        os.ftruncate(self.handle, end_bytes)
        os.fsync(self.handle)
        self.end_bytes = end_bytes


@dataclass(frozen=True, slots=True)
class _Durable:
    """What is known to be on disk. One value, so that an interrupt never leaves bytes and lines of different moments."""

    ends_bytes: tuple[int, ...]
    lines: int = 0


@dataclass(slots=True)
class OpenSegment:
    """Not thread-safe: its topic's writer lock guards it. Every method may raise OSError and may then be called again.

    ``files`` are the lines and, for topics that keep them, the full records.
    """

    folder: Path
    topic: str
    epoch: str
    name: str
    epoch_lock: int
    files: tuple[_File, ...]
    durable: _Durable
    opened_at_s: float = field(default_factory=time.monotonic)
    written_lines: int = 0
    is_closing: bool = False
    is_torn: bool = False

    @property
    def size_bytes(self) -> int:
        return max(file.end_bytes for file in self.files)

    def write(self, csv: bytes, full: bytes, lines: int) -> int:
        """Add whole lines; returns the number of the first. They count only after ``sync``."""
        first_line = self.written_lines
        self.is_torn = True
        for file, data in zip(self.files, (csv, full), strict=False):
            file.write(data)
        self.written_lines += lines
        return first_line

    def sync(self) -> None:
        for file in self.files:
            os.fdatasync(file.handle)
        self.durable = _Durable(tuple(file.end_bytes for file in self.files), self.written_lines)
        self.is_torn = False

    def restore(self) -> None:
        """Cut the files back to the last durable line."""
        for file, end_bytes in zip(self.files, self.durable.ends_bytes, strict=True):
            file.cut(end_bytes)
        self.written_lines = self.durable.lines
        self.is_torn = False

    def publish(self) -> SegmentFile | None:
        """Make it visible (or remove it when it holds nothing) and leave the epoch."""
        self.is_closing = True
        if self.is_torn:
            self.restore()
        visible = None
        if self.durable.lines:
            visible = publish(self.folder, self.topic, self.epoch, self.name, self.durable.lines)
        else:
            discard(self.folder, self.topic, self.epoch, self.name)
        for handle in (*(file.handle for file in self.files), self.epoch_lock):
            os.close(handle)
        return visible


def open_segment(folder: Path, topic: str, writer: str) -> OpenSegment:
    """Start a segment in the newest epoch, under the next sequence number, holding the epoch's shared lock.

    An epoch another version of the program writes other columns into is sealed first. Raises Unavailable when its writers stay.
    """
    epoch, lock = _enter_epoch(folder, topic)
    try:
        name, handles = _create(folder, topic, epoch, writer)
    except OSError:
        os.close(lock)
        raise
    files = tuple(_File(handle) for handle in handles)
    return OpenSegment(folder, topic, epoch, name, lock, files, _Durable(tuple(0 for _ in files)))


def _enter_epoch(folder: Path, topic: str) -> tuple[str, int]:
    while True:
        epoch = current_epoch(folder, topic)
        make_epoch(folder, topic, epoch)  # a seal in another process may have made only a part of it yet
        if not takes_our_lines(epoch_folder(folder, topic, epoch), topic):  # another version of the program began it
            seal_epoch(folder, topic, timeout_s=LEAVE_S)
            continue
        try:
            lock = lock_shared(epoch_folder(folder, topic, epoch) / ".lock")
        except FileNotFoundError:  # sealed, emptied and removed since its name was read
            continue
        # A seal may have come in between: it opens the next epoch first, then waits for this lock.
        if epoch == current_epoch(folder, topic) and not is_sealed(folder, topic, epoch):
            return epoch, lock
        os.close(lock)


def _create(folder: Path, topic: str, epoch: str, writer: str) -> tuple[str, list[int]]:
    """The files are made under the counter's lock, so a reader that knows the counter knows every lower segment."""
    place = open_folder(folder, topic, epoch)
    suffixes = (".csv", ".jsonl") if topic in FULL_TOPICS else (".csv",)
    handles: list[int] = []
    with exclusive(folder / topic / ".seq") as counter:
        seq = read_counter(counter) + 1
        name = segment_name(writer, seq)
        try:
            for suffix in suffixes:
                handles.append(os.open(place / f"{name}{suffix}", os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
            write_counter(counter, seq)
            fsync_folder(place)
        except OSError:
            for handle in handles:
                os.close(handle)
            with suppress(OSError):
                discard(folder, topic, epoch, name)
            raise
    return name, handles


def read_counter(handle: int) -> int:
    """The last sequence number given out (0 in a new file)."""
    return int(os.pread(handle, 32, 0) or b"0")


def write_counter(handle: int, seq: int) -> None:
    os.pwrite(handle, f"{seq:012d}".encode(), 0)

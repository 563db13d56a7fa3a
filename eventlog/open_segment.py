"""One segment being written: two files side by side, positions that are durable, and the way back after a failed write."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eventlog.layout import (
    FULL_TOPICS,
    SegmentFile,
    epoch_folder,
    fsync_folder,
    open_folder,
    segment_name,
)
from eventlog.locks import exclusive, lock_shared
from eventlog.manifest import current_epoch, is_sealed
from eventlog.repair import discard, publish


@dataclass(slots=True)
class _File:
    """An open file with the end of what was written and the end of what is known durable."""

    handle: int
    written_bytes: int = 0
    durable_bytes: int = 0

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(self.handle, view, self.written_bytes)
            self.written_bytes += done
            view = view[done:]

    def sync(self) -> None:
        if self.written_bytes != self.durable_bytes:
            os.fdatasync(self.handle)

    def restore(self) -> None:
        os.ftruncate(self.handle, self.durable_bytes)
        os.fsync(self.handle)
        self.written_bytes = self.durable_bytes


@dataclass(slots=True)
class OpenSegment:
    """Not thread-safe: its topic's writer lock guards it. Every method may raise OSError and may then be called again."""

    folder: Path
    topic: str
    epoch: str
    name: str
    epoch_lock: int
    csv: _File
    full: _File | None
    opened_at_s: float = field(default_factory=time.monotonic)
    written_lines: int = 0
    durable_lines: int = 0
    is_closing: bool = False
    is_torn: bool = False

    @property
    def size_bytes(self) -> int:
        return max(self.csv.written_bytes, self.full.written_bytes if self.full else 0)

    def write(self, csv: bytes, full: bytes, lines: int) -> int:
        """Add whole lines; returns the number of the first. They count only after ``sync``."""
        first_line = self.written_lines
        self.is_torn = True
        self.csv.write(csv)
        if self.full is not None:
            self.full.write(full)
        self.written_lines += lines
        return first_line

    def sync(self) -> None:
        files = self._files()
        for file in files:
            file.sync()
        for file in files:
            file.durable_bytes = file.written_bytes
        self.durable_lines = self.written_lines
        self.is_torn = False

    def restore(self) -> None:
        """Cut both files back to the last durable line."""
        for file in self._files():
            file.restore()
        self.written_lines = self.durable_lines
        self.is_torn = False

    def publish(self) -> SegmentFile | None:
        """Make it visible (or remove it when it holds nothing) and leave the epoch."""
        self.is_closing = True
        if self.is_torn:
            self.restore()
        visible = None
        if self.durable_lines:
            visible = publish(self.folder, self.topic, self.epoch, self.name, self.durable_lines)
        else:
            discard(self.folder, self.topic, self.epoch, self.name)
        for handle in (*(file.handle for file in self._files()), self.epoch_lock):
            os.close(handle)
        return visible

    def _files(self) -> tuple[_File, ...]:
        return (self.csv,) if self.full is None else (self.full, self.csv)


def open_segment(folder: Path, topic: str, writer: str) -> OpenSegment:
    """Start a segment in the newest epoch, under the next sequence number, holding the epoch's shared lock."""
    epoch, lock = _enter_epoch(folder, topic)
    try:
        name, handles = _create(folder, topic, epoch, writer)
    except OSError:
        os.close(lock)
        raise
    files = [_File(handle) for handle in handles]
    return OpenSegment(folder, topic, epoch, name, lock, files[0], files[1] if len(files) > 1 else None)


def _enter_epoch(folder: Path, topic: str) -> tuple[str, int]:
    while True:
        epoch = current_epoch(folder, topic)
        lock = lock_shared(epoch_folder(folder, topic, epoch) / ".lock")
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
                handles.append(os.open(place / f"{name}{suffix}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644))
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

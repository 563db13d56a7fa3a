"""The event log on local disk: group-committed, fsynced segments that become visible by an atomic rename."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from core.errors import BadInput, DiskFull, Unavailable
from core.ports import TOPICS, Ack, LogBatch, LogLine, Topic
from eventlog.group_commit import TopicWriter
from eventlog.layout import FULL_TOPICS, SegmentFile, epoch_names, sequence_of, visible_segments
from eventlog.locks import register_writer, release_writer
from eventlog.manifest import current_epoch
from eventlog.reader import parse_offset, raise_counter, read_log, sync_counter
from eventlog.repair import repair_dead_writers

_log = logging.getLogger(__name__)
_REPAIR_EVERY_S = 5.0
_RETRY_ROLL_S = 1.0


@dataclass(frozen=True, slots=True)
class DiskSpace:
    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """The larger of ``reserve_bytes`` and ``reserve_percent`` of the disk stays free."""

    segment_age_s: float = 0.25
    segment_bytes: int = 64 * 1024 * 1024
    reserve_bytes: int = 1024**3
    reserve_percent: int = 2
    retry_after_s: int = 30
    retention: timedelta = timedelta(days=7)


def disk_space(folder: Path) -> DiskSpace:
    usage = shutil.disk_usage(folder)
    return DiskSpace(usage.free, usage.total)


class SpoolLog:
    """``core.ports.EventLog`` over ``folder`` = DATA/log; archived segments are read back from DATA/archive.

    Thread-safe; several processes may write and read at once. A segment becomes visible to readers and the job at most
    ``segment_age_s`` after its first line, or at ``flush`` and ``close``.
    """

    def __init__(
        self,
        folder: Path,
        settings: SpoolSettings,
        now: Callable[[], datetime],
        *,
        space: Callable[[Path], DiskSpace] = disk_space,
    ) -> None:
        self._folder, self._settings, self._now, self._space = folder, settings, now, space
        for topic in TOPICS:
            current_epoch(folder, topic)
            repair_dead_writers(folder, topic)
            raise_counter(folder, topic)
        self._writer = register_writer(folder)
        self._wake = threading.Event()
        self._is_closed = False
        self._writers: dict[str, TopicWriter] = {topic: self._topic_writer(topic) for topic in TOPICS}
        self._roller = threading.Thread(target=self._roll_forever, name="spool-roller", daemon=True)
        self._roller.start()

    def append(self, topic: Topic, batch: LogBatch) -> Ack:
        """Return once lines and records are fsynced.

        Raises DiskFull before the disk is full, Unavailable on an I/O fault (in both cases nothing of the batch is kept),
        BadInput for a batch that cannot be stored as lines.
        """
        if self._is_closed:
            raise Unavailable("The event log is closed.", hint="Open a new one.")
        return self._writers[topic].append(batch)

    def read(self, topic: Topic, after: str | None = None, limit: int = 10_000) -> Iterator[LogLine]:
        """Visible and archived lines after that offset, in the order of segment numbers; at most ``limit``.

        A segment still open holds back those numbered after it (for at most ``segment_age_s``), so a reader never skips one.
        """
        return read_log(self._folder, topic, after, limit)

    def flush(self) -> None:
        """Publish open segments now. Raises Unavailable when the disk refuses; the acknowledged lines stay safe."""
        for writer in self._writers.values():
            with self._disk_faults():
                writer.roll()

    def sweep_retention(self, topic: Topic, read_through: str) -> list[str]:
        """Remove segments of quarantine or fault, read through that offset and older than the retention; returns their names.

        Usage and engine segments leave through the archive: asking for those is BadInput.
        """
        if topic in FULL_TOPICS:
            raise BadInput("segments of this topic leave through the archive", field="topic", value=topic, hint="archive them")
        through = parse_offset(read_through)
        oldest_s = (self._now() - self._settings.retention).timestamp()
        sync_counter(self._folder, topic)
        files = (file for epoch in epoch_names(self._folder, topic) for file in visible_segments(self._folder, topic, epoch))
        return [file.segment for file in files if _is_read(file, through) and _remove_older(file, oldest_s)]

    def close(self) -> None:
        """Publish what is open and leave. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        self._wake.set()
        self._roller.join()
        try:
            for writer in self._writers.values():
                with self._disk_faults():
                    writer.close()
        finally:
            release_writer(self._folder, self._writer)

    def _topic_writer(self, topic: str) -> TopicWriter:
        settings = self._settings
        return TopicWriter(
            self._folder,
            topic,
            self._writer.name,
            segment_bytes=settings.segment_bytes,
            segment_age_s=settings.segment_age_s,
            retry_after_s=settings.retry_after_s,
            check_space=self._check_space,
            on_open=self._wake.set,
        )

    def _check_space(self, more_bytes: int) -> None:
        space = self._space(self._folder)
        reserve = max(self._settings.reserve_bytes, space.total_bytes * self._settings.reserve_percent // 100)
        if space.free_bytes - more_bytes < reserve:
            raise DiskFull(
                f"{self._folder}: {space.free_bytes} bytes are free and {reserve} must stay free; nothing was written.",
                retry_after_s=self._settings.retry_after_s,
                hint="Free disk space or shorten the archive's retention, then send the batch again.",
            )

    @contextmanager
    def _disk_faults(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"{self._folder}: a segment could not be published ({error}).", hint="Mend the disk.") from error

    def _roll_forever(self) -> None:
        repair_at_s = time.monotonic() + _REPAIR_EVERY_S
        while not self._is_closed:
            due = [due_in_s for writer in self._writers.values() if (due_in_s := writer.due_in_s()) is not None]
            self._wake.wait(max(0.0, min([*due, repair_at_s - time.monotonic()])))
            self._wake.clear()
            try:
                for writer in self._writers.values():
                    writer.roll(only_if_due=True)
                if time.monotonic() >= repair_at_s:
                    repair_at_s = time.monotonic() + _REPAIR_EVERY_S
                    self._repair_others()
            except OSError as error:
                _log.warning("a segment could not be published, trying again: %s", error)
                self._wake.wait(_RETRY_ROLL_S)

    def _repair_others(self) -> None:
        for topic in TOPICS:
            repair_dead_writers(self._folder, topic)


def _is_read(file: SegmentFile, through: tuple[int, int]) -> bool:
    return (sequence_of(file.segment), file.lines - 1) <= through


def _remove_older(file: SegmentFile, oldest_s: float) -> bool:
    if file.path.stat().st_mtime >= oldest_s:
        return False
    file.path.unlink()
    return True

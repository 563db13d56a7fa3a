"""Many appenders, one fsync: one of them leads and commits everything that waits, then hands the lead to the next in line."""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import BadInput, DiskFull, TokenfuseError, Unavailable
from core.ports import Ack, LogBatch
from eventlog.layout import FULL_TOPICS
from eventlog.open_segment import OpenSegment, open_segment

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SEGMENT_COLUMN_BYTES = 22


@dataclass(slots=True, eq=False)
class _Waiting:
    """One append on its way to the disk; exactly one of ``ack`` and ``error`` is set when it is over."""

    csv: bytes
    full: bytes
    lines: int
    ack: Ack | None = None
    error: TokenfuseError | None = None
    is_leader: bool = False
    is_called: threading.Event = field(default_factory=threading.Event)

    @property
    def size_bytes(self) -> int:
        return max(len(self.csv) + self.lines * _SEGMENT_COLUMN_BYTES, len(self.full))


class TopicWriter:
    """Appends to one topic. ``check_space(bytes)`` raises DiskFull before anything is written."""

    def __init__(
        self,
        folder: Path,
        topic: str,
        writer: str,
        *,
        segment_bytes: int,
        segment_age_s: float,
        retry_after_s: int,
        check_space: Callable[[int], None],
        on_open: Callable[[], None],
    ) -> None:
        self._folder, self._topic, self._writer = folder, topic, writer
        self._segment_bytes, self._segment_age_s, self._retry_after_s = segment_bytes, segment_age_s, retry_after_s
        self._check_space, self._on_open = check_space, on_open
        self._disk = threading.Lock()
        self._queue = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._has_leader = False
        self._segment: OpenSegment | None = None
        self._is_closed = False

    def append(self, batch: LogBatch) -> Ack:
        mine = self._encode(batch)
        self._join(mine)
        if mine.is_leader:
            try:
                with self._disk:
                    self._commit()
            finally:
                self._leave(mine)
        if mine.ack is None:
            raise mine.error or Unavailable(f"{self._folder / self._topic}: the batch was interrupted.", hint="Send it again.")
        return mine.ack

    def _join(self, mine: _Waiting) -> None:
        """Queue up; returns when the entry leads or is over."""
        with self._queue:
            self._waiting.append(mine)
            mine.is_leader, self._has_leader = not self._has_leader, True
        try:
            if not mine.is_leader:
                mine.is_called.wait()
        except BaseException:  # Ctrl-C while waiting: the lead must not die with this thread
            self._leave(mine)
            raise

    def _leave(self, mine: _Waiting) -> None:
        with self._queue:
            with suppress(ValueError):
                self._waiting.remove(mine)
            if mine.is_leader:
                self._hand_over()

    def _hand_over(self) -> None:
        """Holding the queue: the first in it leads next."""
        self._has_leader = bool(self._waiting)
        if self._waiting:
            self._waiting[0].is_leader = True
            self._waiting[0].is_called.set()

    def due_in_s(self) -> float | None:
        """Seconds until the open segment must be rolled; None if none is open."""
        segment = self._segment
        return None if segment is None else segment.opened_at_s + self._segment_age_s - time.monotonic()

    def roll(self, *, only_if_due: bool = False) -> None:
        """Publish the open segment. Raises OSError; the segment is kept and the next call tries again."""
        with self._disk:
            if self._segment is not None and (not only_if_due or self._is_due()):
                self._publish()

    def close(self) -> None:
        """Publish and take nothing more. Raises OSError like ``roll``."""
        with self._disk:
            self._is_closed = True
            self._publish()

    def _require_open(self) -> None:
        if self._is_closed:
            raise Unavailable("The event log is closed.", hint="Open a new one.")

    def _is_due(self) -> bool:
        due_in_s = self.due_in_s()
        return due_in_s is not None and due_in_s <= 0

    def _publish(self) -> None:
        if self._segment is not None:
            self._segment.publish()
            self._segment = None

    def _encode(self, batch: LogBatch) -> _Waiting:
        count = len(batch.lines)
        if not count:
            raise BadInput("batch holds no line", field="lines", hint="append at least one line")
        if batch.records and self._topic not in FULL_TOPICS:
            raise BadInput("this topic keeps no full records", field="records", value=self._topic, hint="leave records empty")
        if batch.records and len(batch.records) != count:
            raise BadInput(f"must be one per line ({count})", field="records", value=len(batch.records))
        csv = "\n".join(batch.lines).encode()
        full = b"\n".join(batch.records) if batch.records else b"\n" * (count - 1)
        try:
            full.decode()
        except UnicodeDecodeError as error:
            raise BadInput("is not UTF-8", field="records", hint="encode JSON as UTF-8") from error
        for name, data in (("lines", csv), ("records", full)):
            if data.count(b"\n") != count - 1 or b"\r" in data or b"\0" in data:
                raise BadInput("holds a line break or NUL", field=name, hint="encode each entry as one line")
        waiting = _Waiting(csv + b"\n", full + b"\n" if self._topic in FULL_TOPICS else b"", count)
        if waiting.size_bytes > self._segment_bytes:
            hint = f"A segment holds {self._segment_bytes} bytes: append smaller batches."
            raise BadInput("batch is larger than a segment", field="lines", value=waiting.size_bytes, hint=hint)
        return waiting

    def _commit(self) -> None:
        """Write and sync everything that waits. Afterwards each entry has its ack or its error."""
        with self._queue:
            group = list(self._waiting)
            self._waiting.clear()
        try:
            self._require_open()
            self._check_space(sum(len(one.csv) + len(one.full) + one.lines * _SEGMENT_COLUMN_BYTES for one in group))
            self._restore()
            self._write_group(group)
        except TokenfuseError as error:
            self._fail(group, error)
        except OSError as error:
            self._fail(group, self._as_error(error))
            with suppress(OSError):
                self._restore()
        finally:
            for one in group:
                one.is_called.set()

    def _write_group(self, group: list[_Waiting]) -> None:
        written: list[tuple[_Waiting, Ack]] = []
        for one in group:
            if self._must_roll(one.size_bytes):
                self._settle(written)
                self._publish()
            segment = self._open()
            suffix = f",{segment.name}\n".encode() if self._topic in FULL_TOPICS else b"\n"
            first_line = segment.write(one.csv.replace(b"\n", suffix), one.full, one.lines)
            written.append((one, Ack(self._topic, segment.name, first_line, one.lines)))
        self._settle(written)

    def _must_roll(self, more_bytes: int) -> bool:
        segment = self._segment
        if segment is None:
            return False
        return segment.is_closing or self._is_due() or segment.size_bytes + more_bytes > self._segment_bytes

    def _open(self) -> OpenSegment:
        if self._segment is None:
            self._segment = open_segment(self._folder, self._topic, self._writer)
            self._on_open()
        return self._segment

    def _settle(self, written: list[tuple[_Waiting, Ack]]) -> None:
        if written and self._segment is not None:
            self._segment.sync()
            for one, ack in written:
                one.ack = ack
            written.clear()

    def _fail(self, group: list[_Waiting], error: TokenfuseError) -> None:
        for one in group:
            if one.ack is None:
                one.error = error

    def _restore(self) -> None:
        """Cut back what was written and not acknowledged; where that fails, the next commit tries again before it writes."""
        if self._segment is not None and self._segment.is_torn:
            self._segment.restore()

    def _as_error(self, error: OSError) -> TokenfuseError:
        kind = DiskFull if error.errno in _NO_SPACE else Unavailable
        return kind(
            f"{self._folder / self._topic}: not written ({error.strerror or error}); nothing of this batch was kept.",
            retry_after_s=self._retry_after_s,
            hint="Free disk space or mend the disk, then send the batch again.",
        )

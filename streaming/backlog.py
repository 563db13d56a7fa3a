"""How far the stream is: the log's manifest (what there is) against ``segment_progress`` (what was applied)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import insert

from eventlog import manifest
from eventlog.manifest import SegmentFile
from models.tables import StreamStateRow

FURTHER_CHECKPOINTS = 3
"""A line is read before checkpoint c, its one-second window fires before c + 2, and the files of c + 2 are visible once c + 3 is
complete (checkpoints are at least a second apart)."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The visible segments of one topic, all epochs, and the lines of each that were applied."""

    topic: str
    segments: tuple[SegmentFile, ...]
    applied: Mapping[str, int]

    @property
    def lines(self) -> int:
        return sum(segment.lines for segment in self.segments)

    @property
    def read(self) -> int:
        return sum(min(segment.lines, self.applied.get(segment.segment, 0)) for segment in self.segments)

    @property
    def complete(self) -> bool:
        return self.read == self.lines

    def of(self, epochs: Iterable[str]) -> Backlog:
        wanted = set(epochs)
        return Backlog(self.topic, tuple(s for s in self.segments if s.epoch in wanted), self.applied)

    def over_read(self) -> list[SegmentFile]:
        """Segments of which more lines were applied than there are: something was counted twice."""
        return [s for s in self.segments if self.applied.get(s.segment, 0) > s.lines]


def look(connection: Connection, log: Path, topic: str) -> Backlog:
    """The manifest is listed first, so a segment applied meanwhile is never missing from it."""
    found = tuple(s for epoch in manifest.epochs(log, topic) for s in manifest.segments(log, topic, epoch))
    return Backlog(topic, found, applied_lines(connection, topic, [s.segment for s in found]))


def applied_lines(connection: Connection, topic: str, segments: Sequence[str]) -> dict[str, int]:
    """Lines applied of each of these segments; one never read is absent."""
    query = text("SELECT segment, lines FROM segment_progress WHERE topic = :topic AND segment = ANY(:names)")
    return {segment: lines for segment, lines in connection.execute(query, {"topic": topic, "names": list(segments)})}


@dataclass(slots=True)
class Consumption:
    """Which segments are consumed: every line applied, and FURTHER_CHECKPOINTS completed since that was first seen."""

    _complete_at: dict[str, int] = field(default_factory=dict)

    def consumed(self, backlog: Backlog, newest: int, settled: int) -> list[SegmentFile]:
        """``newest`` is the newest completed checkpoint, ``settled`` the newest whose files are all applied."""
        done = []
        for segment in backlog.segments:
            if backlog.applied.get(segment.segment, 0) >= segment.lines:
                at = self._complete_at.setdefault(segment.segment, newest + 1)
                if settled >= at + FURTHER_CHECKPOINTS:
                    done.append(segment)
        return done

    def forget(self, segments: Sequence[SegmentFile]) -> None:
        for segment in segments:
            self._complete_at.pop(segment.segment, None)


def write_state(
    connection: Connection, backlog: Backlog, *, catching_up: bool, fingerprint: str, checkpoint: str, now: datetime
) -> None:
    """The topic's row of ``stream_state``."""
    row = {
        "catching_up": catching_up, "log_lines": backlog.lines, "read_lines": backlog.read,
        "fingerprint": fingerprint, "checkpoint": checkpoint, "updated_at": now,
    }  # fmt: skip
    statement = insert(StreamStateRow).values(topic=backlog.topic, **row)
    connection.execute(statement.on_conflict_do_update(index_elements=["topic"], set_=row))

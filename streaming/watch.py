"""Looks after a running job: what is read, what is consumed and goes to the archive, when an epoch ends, when all is idle."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Engine

from core.errors import Conflict, TokenfuseError, Unavailable
from eventlog import manifest
from eventlog.archive import archive_segments
from eventlog.manifest import SegmentFile
from models.database import transaction
from streaming import backlog, delta_files
from streaming.backlog import Backlog, Consumption
from streaming.feed import Feed, feed_folder
from streaming.phases import TOPICS, WARM, Phase, read_folder
from streaming.settings import StreamSettings
from streaming.sweep import sweep

ARCHIVE_EVERY_S = 30.0
SWEEP_EVERY_S = 3_600.0
SEAL_WAIT_S = 1.0
SEAL_AGAIN_S = 10.0

log = logging.getLogger("tokenfuse.stream")


class Watch:
    """One for the life of the supervisor; ``begin`` at each start of the job, ``look`` a few times a second."""

    def __init__(self, settings: StreamSettings, engine: Engine, now: Callable[[], datetime], *, until_idle: bool) -> None:
        self._settings, self._engine, self._now, self._until_idle = settings, engine, now, until_idle
        self._phase: Phase | None = None
        self._names: dict[str, set[str]] = {topic: set() for topic in TOPICS}
        self._seal_again_at = 0.0
        self._quiet_since = time.monotonic()
        self._archived_at = self._swept_at = time.monotonic()
        self._shown = ""

    def nothing_to_do(self) -> bool:
        """No visible line waits and every finished delta file is applied."""
        return not any(b.segments for b in self._backlogs().values()) and self._oldest_pending_ns() is None

    def idle_elsewhere(self) -> bool:
        """Whether the run that another process leads has applied every line, and stayed so for some checkpoints."""
        found = self._backlogs()
        self._show(found)
        if self._oldest_pending_ns() is not None or not all(b.complete for b in found.values()):
            self._quiet_since = time.monotonic()
        return time.monotonic() - self._quiet_since >= (backlog.FURTHER_CHECKPOINTS + 1) * self._settings.checkpoint_ms / 1000

    def check_start(self, phase: Phase) -> None:
        """Refuse to read from the start what an earlier job read in part: its checkpoints alone know how far."""
        if phase.restore or phase.warms_up:
            return
        for topic, found in self._backlogs().items():
            for segment in found.segments:
                if found.applied.get(segment.segment, 0):
                    hint = "put DATA/checkpoints back, or recompute with `tokenfuse rebuild`"
                    raise Conflict(f"{topic} segment {segment.segment} was read before and no checkpoint is left", hint=hint)

    def begin(self, phase: Phase) -> None:
        if self._phase is not None:
            for topic in TOPICS:
                if phase.epochs[topic] != self._phase.epochs[topic]:
                    self._names[topic] = set()
        self._phase = phase
        engine = phase.epochs["engine"]
        self._feed = None if engine.startswith(WARM) else Feed(feed_folder(self._settings.data_dir, engine))
        self._consumption = {topic: Consumption() for topic in TOPICS}
        self._behind = {
            topic: {s.segment for s in found.segments if found.applied.get(s.segment, 0) < s.lines}
            for topic, found in self._backlogs().items()
        }
        self._seen: deque[tuple[int, int]] = deque(maxlen=1_000)
        self._settled = 0

    def look(self, checkpoint: int) -> bool:
        """One round with the newest completed checkpoint (0: none yet); True when ``until_idle`` holds and all is done."""
        self._settle(checkpoint)
        found = self._backlogs()
        for topic, b in found.items():
            self._names[topic].update(s.segment for s in b.segments)
        self._release_engine_lines(found["engine"])
        self._write_states(found, checkpoint)
        consumed = {topic: self._consumption[topic].consumed(b, checkpoint, self._settled) for topic, b in found.items()}
        if self._archive_is_due(found):
            self._archive(consumed)
        self._finish_warmup(checkpoint)
        self._seal_if_due(found)
        self._sweep_if_due()
        self._show(found)
        return self._until_idle and self.nothing_to_do()

    def _backlogs(self) -> dict[str, Backlog]:
        with transaction(self._engine) as connection:
            return {topic: backlog.look(connection, self._settings.log, topic) for topic in TOPICS}

    def _release_engine_lines(self, engine: Backlog) -> None:
        assert self._phase is not None
        if self._feed is not None:
            self._feed.release(engine.of([self._phase.epochs["engine"]]))

    def _oldest_pending_ns(self) -> int | None:
        waiting = (file for kind in delta_files.KINDS for file in delta_files.finished(self._settings.deltas, kind))
        return min((file.finished_ns for file in waiting), default=None)

    def _settle(self, checkpoint: int) -> None:
        """A checkpoint is settled when no file finished before it was seen complete still waits for the loader."""
        if checkpoint and (not self._seen or self._seen[-1][0] < checkpoint):
            self._seen.append((checkpoint, time.time_ns()))
        pending = self._oldest_pending_ns()
        while self._seen and (pending is None or self._seen[0][1] <= pending):
            self._settled = self._seen.popleft()[0]

    def _write_states(self, found: dict[str, Backlog], checkpoint: int) -> None:
        assert self._phase is not None
        with transaction(self._engine) as connection:
            for topic, b in found.items():
                unread = {s.segment for s in b.segments if b.applied.get(s.segment, 0) < s.lines}
                self._behind[topic] &= unread
                backlog.write_state(
                    connection,
                    b,
                    catching_up=bool(self._behind[topic]) or not checkpoint,
                    fingerprint=self._phase.plan.fingerprint,
                    checkpoint=str(checkpoint),
                    now=self._now(),
                )

    def _archive_is_due(self, found: dict[str, Backlog]) -> bool:
        assert self._phase is not None
        hurry = self._until_idle or self._phase.drain or any(self._is_sealed(topic) for topic in TOPICS)
        if hurry and all(b.complete for b in found.values()):
            return True
        return time.monotonic() - self._archived_at >= ARCHIVE_EVERY_S

    def _is_sealed(self, topic: str) -> bool:
        assert self._phase is not None
        epoch = self._phase.epochs[topic]
        return not epoch.startswith(WARM) and manifest.is_sealed(self._settings.log, topic, epoch)

    def _archive(self, consumed: dict[str, list[SegmentFile]]) -> None:
        self._archived_at = time.monotonic()
        for topic, segments in consumed.items():
            for epoch in sorted({s.epoch for s in segments}):
                batch = [s for s in segments if s.epoch == epoch]
                try:
                    archive_segments(self._settings.data_dir, topic, epoch, [s.segment for s in batch])
                    self._consumption[topic].forget(batch)
                except (TokenfuseError, OSError) as error:
                    log.error("consumed segments stay in the log", extra={"topic": topic, "epoch": epoch, "reason": str(error)})

    def _finish_warmup(self, checkpoint: int) -> None:
        """Once the warm-up lines are in the state for good, their files go, and with that the next phase is due."""
        assert self._phase is not None
        if not self._phase.warms_up:
            return
        for topic, epoch in self._phase.epochs.items():
            files = list(read_folder(self._settings, topic, epoch).glob("*.csv"))
            segments = tuple(SegmentFile(p.name.split(".")[0], int(p.name.split(".")[1]), p, epoch) for p in files)
            with transaction(self._engine) as connection:
                warm = Backlog(topic, segments, backlog.applied_lines(connection, topic, [s.segment for s in segments]))
            for segment in self._consumption[topic].consumed(warm, checkpoint, self._settled):
                segment.path.unlink()

    def _seal_if_due(self, found: dict[str, Backlog]) -> None:
        """A new epoch daily, at too many segments (the source remembers each), or when an old plan drains."""
        assert self._phase is not None
        if time.monotonic() < self._seal_again_at:
            return
        for topic in TOPICS:
            if self._phase.epochs[topic].startswith(WARM) or self._is_sealed(topic) or not self._epoch_is_over(topic):
                continue
            self._seal_again_at = time.monotonic() + SEAL_AGAIN_S
            try:
                newest = manifest.seal_epoch(self._settings.log, topic, timeout_s=SEAL_WAIT_S)
                log.info("epoch sealed", extra={"topic": topic, "epoch": self._phase.epochs[topic], "next": newest})
            except Unavailable as error:
                log.info("the epoch's writers have not left yet", extra={"topic": topic, "reason": str(error)})

    def _epoch_is_over(self, topic: str) -> bool:
        assert self._phase is not None
        if self._phase.drain:
            return True
        if self._until_idle:
            return False
        if len(self._names[topic]) >= self._settings.segments_per_epoch:
            return True
        return self._now() - self._first_read(topic) >= timedelta(hours=self._settings.epoch_hours)

    def _first_read(self, topic: str) -> datetime:
        """When the job first read this epoch: noted in a file, for a folder's own times change with every segment."""
        assert self._phase is not None
        note = self._settings.run / f"epoch-{topic}-{self._phase.epochs[topic]}"
        if not note.exists():
            note.write_text(self._now().isoformat())
        return datetime.fromisoformat(note.read_text())

    def _sweep_if_due(self) -> None:
        if time.monotonic() - self._swept_at >= SWEEP_EVERY_S:
            self._swept_at = time.monotonic()
            try:
                sweep(self._settings, self._engine, self._now)
            except (TokenfuseError, OSError) as error:
                log.error("old files stay for now", extra={"reason": str(error)})

    def _show(self, found: dict[str, Backlog]) -> None:
        text = "  ".join(f"{topic} {b.read:,}/{b.lines:,} lines" for topic, b in found.items() if b.lines)
        if self._until_idle and text and text != self._shown:
            self._shown = text
            sys.stderr.write(f"stream: {text}\n")

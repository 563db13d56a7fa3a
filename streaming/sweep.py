"""What the stream keeps and for how long: applied delta packs, their bookkeeping, side topics, the raw archive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta

from sqlalchemy import Connection, Engine, text

from core.ports import Topic
from eventlog import manifest
from eventlog.archive import sweep_archive
from eventlog.spool import SpoolLog, SpoolSettings
from models.database import transaction
from streaming import delta_files
from streaming.phases import TOPICS
from streaming.settings import StreamSettings

SIDE_TOPICS: tuple[Topic, ...] = ("quarantine", "fault", "counter")
_FORGET_FILES = text("DELETE FROM applied_file WHERE applied_at < :before")
_FORGET_SEGMENTS = text("DELETE FROM segment_progress WHERE topic = :topic AND updated_at < :before AND segment <> ALL(:visible)")
_READ_THROUGH = text("SELECT checkpoint FROM stream_state WHERE topic = :topic")


def sweep(settings: StreamSettings, engine: Engine, now: Callable[[], datetime]) -> None:
    """Remove what is older than its retention. Packs go before the rows that name them: a pack alone would count again."""
    day = (now() - timedelta(days=settings.keep_delta_days)).date()
    delta_files.sweep(settings.deltas, day)
    with transaction(engine) as connection:
        forget_applied(connection, settings, datetime.combine(day, time(0), UTC))
        read = {topic: connection.execute(_READ_THROUGH, {"topic": topic}).scalar() for topic in SIDE_TOPICS}
    _sweep_side_topics(settings, now, {topic: through for topic, through in read.items() if through})
    for topic in TOPICS:
        sweep_archive(settings.data_dir, topic, (now() - timedelta(days=settings.keep_archive_days)).date())


def forget_applied(connection: Connection, settings: StreamSettings, before: datetime) -> None:
    """Drop the bookkeeping of files whose packs are gone and of segments that left the log, both untouched since ``before``."""
    connection.execute(_FORGET_FILES, {"before": before})
    for topic in TOPICS:
        epochs = manifest.epochs(settings.log, topic)
        visible = [s.segment for epoch in epochs for s in manifest.segments(settings.log, topic, epoch)]
        connection.execute(_FORGET_SEGMENTS, {"topic": topic, "before": before, "visible": visible})


def _sweep_side_topics(settings: StreamSettings, now: Callable[[], datetime], read: dict[Topic, str]) -> None:
    """Only a log may remove its segments; it is opened for the moment, for an open one holds its epoch."""
    if not read:
        return
    log = SpoolLog(settings.log, SpoolSettings(), now)
    try:
        for topic, through in read.items():
            log.sweep_retention(topic, through)
    finally:
        log.close()

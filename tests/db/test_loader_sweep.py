"""What is kept, for how long, and what a silent stream means to those who read its progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from core.ports import LogBatch
from eventlog.spool import SpoolLog, SpoolSettings
from models.quality_repo import STREAM_SILENT_AFTER, stream_lags, usage_catching_up
from streaming import delta_files
from streaming.settings import StreamSettings
from streaming.sweep import sweep

pytestmark = pytest.mark.db

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("says", "age", "held"),
    [
        (False, SECOND, False),
        (True, SECOND, True),
        (False, STREAM_SILENT_AFTER, False),
        (False, STREAM_SILENT_AFTER + SECOND, True),
        (True, timedelta(days=1), True),
    ],
)
def test_a_silent_stream_counts_as_catching_up(db: Engine, says: bool, age: timedelta, held: bool) -> None:
    with db.begin() as connection:
        insert = text("INSERT INTO stream_state (topic, catching_up, updated_at) VALUES ('usage', :says, :at)")
        connection.execute(insert, {"says": says, "at": NOW - age})
        assert usage_catching_up(connection, NOW) is held
        assert [lag.catching_up for lag in stream_lags(connection, NOW)] == [held]


def test_side_topics_are_silent_while_nothing_is_refused(db: Engine) -> None:
    with db.begin() as connection:
        insert = text("INSERT INTO stream_state (topic, catching_up, updated_at) VALUES ('quarantine', false, :at)")
        connection.execute(insert, {"at": NOW - timedelta(days=1)})
        assert [lag.silent for lag in stream_lags(connection, NOW)] == [False]


def test_a_stream_that_never_ran_holds_nothing(db: Engine) -> None:
    with db.connect() as connection:
        assert not usage_catching_up(connection, NOW)


def visible_segment(data: Path, lines: list[str]) -> str:
    log = SpoolLog(data / "log", SpoolSettings(reserve_bytes=1, reserve_percent=0), lambda: NOW)
    try:
        return log.append("usage", LogBatch(lines)).segment
    finally:
        log.close()


def test_bookkeeping_goes_with_what_it_is_about(db: Engine, tmp_path: Path) -> None:
    settings = StreamSettings(tmp_path, str(db.url), keep_delta_days=35)
    still_there = visible_segment(tmp_path, ["x"])
    with db.begin() as connection:
        for name, days in (("young", 34), ("old", 37)):
            at = NOW - timedelta(days=days)
            file = settings.deltas / "usage" / f"part-{name}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("row\n")
            delta_files.keep_applied(settings.deltas, delta_files.finished(settings.deltas, "usage"), at)
            row = text("INSERT INTO applied_file (name, kind, rows, applied_at) VALUES (:name, 'usage', 1, :at)")
            connection.execute(row, {"name": f"usage/part-{name}", "at": at})
            row = text("INSERT INTO segment_progress (topic, segment, lines, updated_at) VALUES ('usage', :name, 1, :at)")
            connection.execute(row, {"name": name, "at": at})
        connection.execute(row, {"name": still_there, "at": NOW - timedelta(days=99)})
    sweep(settings, db, lambda: NOW)
    with db.connect() as connection:
        assert connection.execute(text("SELECT name FROM applied_file")).scalars().all() == ["usage/part-young"]
        left = connection.execute(text("SELECT segment FROM segment_progress")).scalars().all()
    assert sorted(left) == sorted(["young", still_there]), "a segment in the log keeps its count, however old"
    assert [f.name for f in delta_files.kept_since(settings.deltas, "usage", NOW - timedelta(days=99))] == ["usage/part-young"]

"""Rollups are the sums of the raw archive: a difference has a name, and is a fault once it was seen twice."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, text

from bench.year import coarser
from control.standing_check import CONFIRM_AFTER, check_day, check_next, due_days
from core.ports import LogBatch
from core.tokens import TokenCounts
from core.usage import Deployment, TenantPath, UsageRecord, encode_line, line_fields
from core.windows import Window
from eventlog.archive import archive_segments
from eventlog.archive_sql import usage_minutes
from eventlog.manifest import segments
from eventlog.spool import SpoolLog, SpoolSettings
from models.partitions import ensure_months
from models.quality_repo import data_faults
from models.standing_repo import list_checks, newest_check
from models.tables import UsageMinuteRow
from models.tables_usage import USAGE_KEYS, USAGE_MEASURES

pytestmark = pytest.mark.db

DAY = date(2026, 11, 20)
NAMES = (*USAGE_KEYS, *USAGE_MEASURES)
START = datetime(2026, 11, 20, tzinfo=UTC)
NOW = START + timedelta(days=1, hours=4)
WHOLE = Window(START - timedelta(days=1), START + timedelta(days=2))


def request(name: str, at: datetime, model: str = "m") -> UsageRecord:
    return UsageRecord(name, at, at, Deployment("c", "n", model), TenantPath("acme"), TokenCounts(input_uncached=10, output=5))


@pytest.fixture
def counted(db: Engine, tmp_path: Path) -> Path:
    """Two models, three requests on the day (one sent twice) and one at the midnight after it; archive and rollups agree."""
    noon = START + timedelta(hours=12)
    sent = [request("a", noon), request("b", noon + timedelta(minutes=1)), request("a", noon), request("c", noon, "other")]
    sent.append(request("d", START + timedelta(days=1)))
    log = SpoolLog(tmp_path / "log", SpoolSettings(), lambda: NOW)
    log.append("usage", LogBatch([encode_line(line_fields(one)) for one in sent], [b"{}" for _ in sent]))
    log.flush()
    log.close()
    archive_segments(tmp_path, "usage", "000001", [file.segment for file in segments(tmp_path / "log", "usage", "000001")])
    with db.begin() as connection:
        ensure_months(connection, [START])
        rows = [
            {"minute": r.minute, **dict(zip(NAMES, (*r.keys, *r.measures), strict=True))} for r in usage_minutes(tmp_path, WHOLE)
        ]
        connection.execute(insert(UsageMinuteRow), rows)
        coarser(connection, "usage")
    return tmp_path


def test_rollups_that_are_the_archives_sums_are_ok(db: Engine, counted: Path) -> None:
    found = check_day(db, counted, DAY, NOW)
    assert [(str(c.deployment), c.status, c.requests) for c in found] == [("c/n/m", "ok", 2), ("c/n/other", "ok", 1)]
    with db.connect() as connection:
        assert list_checks(connection, DAY, DAY) == found
        assert newest_check(connection) == NOW


def test_a_difference_names_the_measure_and_both_sums(db: Engine, counted: Path) -> None:
    with db.begin() as connection:
        connection.execute(text("UPDATE usage_hour SET output = output + 7 WHERE model_id = 'other'"))
    found = {c.deployment.model_id: c for c in check_day(db, counted, DAY, NOW)}
    assert found["m"].status == "ok"
    assert found["other"].status == "difference"
    assert found["other"].detail == {"output": {"archive": 5, "minute": 5, "hour": 12, "day": 5}}


def test_a_difference_is_a_fault_once_it_was_seen_twice(db: Engine, counted: Path) -> None:
    with db.begin() as connection:
        connection.execute(text("UPDATE usage_day SET requests = requests + 1 WHERE model_id = 'other'"))
    check_day(db, counted, DAY, NOW)
    with db.connect() as connection:
        assert data_faults(connection, WHOLE, 10) == ([], 0)
    check_day(db, counted, DAY, NOW + CONFIRM_AFTER)
    check_day(db, counted, DAY, NOW + 2 * CONFIRM_AFTER)
    with db.connect() as connection:
        (fault,), total = data_faults(connection, WHOLE, 10)
    assert (total, fault.kind, fault.source) == (1, "rollup_difference", "c/n/other")
    assert fault.detail["requests"] == {"archive": 1, "minute": 1, "hour": 1, "day": 2}


def test_what_went_is_no_fault(db: Engine, counted: Path) -> None:
    with db.begin() as connection:
        connection.execute(text("UPDATE usage_day SET requests = requests + 1"))
    check_day(db, counted, DAY, NOW)
    with db.begin() as connection:
        connection.execute(text("UPDATE usage_day SET requests = requests - 1"))
    assert {c.status for c in check_day(db, counted, DAY, NOW + CONFIRM_AFTER)} == {"ok"}
    with db.connect() as connection:
        assert data_faults(connection, WHOLE, 10)[1] == 0


def test_rows_that_only_one_side_has_are_a_difference(db: Engine, counted: Path) -> None:
    with db.begin() as connection:
        connection.execute(text("DELETE FROM usage_minute WHERE model_id = 'other'"))
    found = {c.deployment.model_id: c for c in check_day(db, counted, DAY, NOW)}
    assert found["other"].detail["requests"] == {"archive": 1, "minute": 0, "hour": 1, "day": 1}


def test_the_loop_takes_finished_days_one_at_a_time_and_comes_back_to_differences(db: Engine, counted: Path) -> None:
    early = START + timedelta(days=1, hours=2)
    assert list(due_days(db, counted, early)) == []
    later = START + timedelta(days=2, hours=4)
    assert list(due_days(db, counted, later)) == [DAY + timedelta(days=1), DAY]
    assert check_next(db, counted, later) == DAY + timedelta(days=1)
    with db.begin() as connection:
        connection.execute(text("UPDATE usage_day SET requests = requests + 1"))
    assert check_next(db, counted, later) == DAY
    assert check_next(db, counted, later) is None
    assert list(due_days(db, counted, later + CONFIRM_AFTER)) == [DAY]
    assert list(due_days(db, counted, later + timedelta(days=8))) == [DAY, DAY + timedelta(days=1)]

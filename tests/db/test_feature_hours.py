"""Features of requests kept up to date with the archive: each file once, late records too, and the figures read of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from core.errors import BadInput
from core.feature_figures import p90_bucket
from core.features import MEASURES, HourFeatures, facts_of, hour_features
from core.ports import LogBatch
from core.tokens import TokenCounts
from core.usage import Deployment, TenantPath, UsageRecord, encode_line, line_fields
from core.usage_codec import encode_usage
from core.windows import Window, epoch_ms, floor_time
from eventlog.archive import archive_segments
from eventlog.manifest import segments
from eventlog.spool import SpoolLog, SpoolSettings
from models.database import transaction
from models.feature_figures_repo import feature_rows, tool_edges
from models.features_repo import dirty_hours, lock_features
from models.partitions import ensure_months
from streaming.features import FeatureKeeper

pytestmark = pytest.mark.db
NOW = datetime(2026, 11, 30, 12, 30, tzinfo=UTC)
NINE = datetime(2026, 11, 30, 9, tzinfo=UTC)
DAY = Window(datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
SKETCH = tuple(range(64))
HOUR = timedelta(hours=1)


def request(request_id: str, minutes: float, **changes: Any) -> UsageRecord:
    """An ordinary request that finished so many minutes after nine."""
    at = NINE + timedelta(minutes=minutes)
    record = UsageRecord(
        request_id=request_id, started_at=at, finished_at=at, deployment=Deployment("c", "n", "m"),
        tenant=TenantPath("acme", "search"), tokens=TokenCounts(input_uncached=80, input_cache_read=20, output=25),
    )  # fmt: skip
    return replace(record, **changes)


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., None]:
    """Appends records to the log and packs them at once, as one batch."""

    def pack(*records: UsageRecord) -> None:
        log = SpoolLog(tmp_path / "log", SpoolSettings(segment_age_s=3600.0), lambda: NOW)
        log.append("usage", LogBatch([encode_line(line_fields(r)) for r in records], [encode_usage(r) for r in records]))
        log.close()
        names = [s.segment for s in segments(tmp_path / "log", "usage", "000001")]
        archive_segments(tmp_path, "usage", "000001", names)

    return pack


@pytest.fixture
def keeper(db: Engine, tmp_path: Path) -> FeatureKeeper:
    return FeatureKeeper(db, tmp_path, 400, lambda: NOW)


def stored(db: Engine) -> dict[datetime, HourFeatures]:
    """What the tables hold, by hour."""
    found: dict[datetime, HourFeatures] = {}
    with transaction(db) as connection:
        for hour, *row in connection.execute(
            text(f"SELECT hour, cluster, namespace, model_id, org, team, {', '.join(MEASURES)} FROM feature_hour")
        ):
            found.setdefault(hour.astimezone(UTC), HourFeatures()).rows[tuple(row[:5])] = tuple(row[5:])
        for hour, *row in connection.execute(
            text("SELECT hour, cluster, namespace, model_id, org, from_tool, to_tool, steps FROM tool_edge_hour")
        ):
            found.setdefault(hour.astimezone(UTC), HourFeatures()).edges[tuple(row[:6])] = row[6]
    return found


def expected(records: list[UsageRecord]) -> dict[datetime, HourFeatures]:
    facts = [facts_of(record) for record in records]
    hours = {floor_time(record.finished_at, HOUR) for record in records}
    found = {hour: hour_features(facts, epoch_ms(hour)) for hour in hours}
    return {hour: features for hour, features in found.items() if features.rows}


@st.composite
def batches(draw: st.DrawFn) -> list[list[UsageRecord]]:
    return [
        [
            request(
                f"r{number}",
                minutes=number * 37 + draw(st.integers(0, 20)),
                tenant=TenantPath("acme", draw(st.sampled_from(["", "search"]))),
                status=draw(st.sampled_from(["ok", "ok", "error", "aborted"])),
                session_id=draw(st.sampled_from(["", "s1", "s2"])),
                tools=tuple(draw(st.lists(st.sampled_from(["a", "b"]), max_size=2))),
                repeat_ratio=draw(st.sampled_from([None, Decimal("0.25")])),
                prefix_sketch=draw(st.sampled_from([(), SKETCH, tuple(range(10, 74))])),
            )
            for number in draw(st.lists(st.integers(-9, 9), min_size=1, max_size=8))
        ]
        for _ in range(draw(st.integers(1, 3)))
    ]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches())
def test_the_tables_hold_what_the_rules_say_whatever_comes_late_or_twice(
    db: Engine, tmp_path_factory: pytest.TempPathFactory, found: list[list[UsageRecord]]
) -> None:
    """Third form of the rule: records through log, archive and database, computed after every batch."""
    folder = tmp_path_factory.mktemp("late")
    with transaction(db) as connection:
        for table in ("feature_hour", "tool_edge_hour", "feature_file", "feature_dirty"):
            connection.execute(text(f"TRUNCATE {table}"))
    keeper = FeatureKeeper(db, folder, 400, lambda: NOW + timedelta(days=1))
    for batch in found:
        log = SpoolLog(folder / "log", SpoolSettings(segment_age_s=3600.0), lambda: NOW)
        log.append("usage", LogBatch([encode_line(line_fields(r)) for r in batch], [encode_usage(r) for r in batch]))
        log.close()
        archive_segments(folder, "usage", "000001", [s.segment for s in segments(folder / "log", "usage", "000001")])
        keeper.catch_up()
    assert stored(db) == expected([record for batch in found for record in batch])


def test_a_file_is_looked_at_once(db: Engine, keeper: FeatureKeeper, archive: Callable[..., None]) -> None:
    archive(request("a", 5))
    assert keeper.note() == 1
    with transaction(db) as connection:
        assert dirty_hours(connection) == [NINE + n * HOUR for n in (3, 2, 1, 0, -1)], "no hour to come"
    assert (keeper.note(), FeatureKeeper(db, keeper.data_dir, 400, lambda: NOW).note()) == (0, 0)
    assert (keeper.catch_up(), keeper.catch_up()) == (5, 0)
    archive(request("b", 6))
    assert keeper.catch_up() == 5
    assert stored(db) == expected([request("a", 5), request("b", 6)])


def test_marking_waits_for_the_hour_that_is_computed(db: Engine, keeper: FeatureKeeper, archive: Callable[..., None]) -> None:
    """Else rows of an older look at the archive could replace newer ones and take their mark away."""
    archive(request("a", 5))
    keeper.note()
    with transaction(db) as connection:
        lock_features(connection)
        with transaction(db) as other:
            other.execute(text("SET LOCAL lock_timeout = '50ms'"))
            with pytest.raises(OperationalError, match="lock timeout"):
                lock_features(other)
    assert (keeper.compute(NINE), keeper.compute(NINE)) == (True, False)


def test_a_late_turn_moves_the_turns_after_it(db: Engine, keeper: FeatureKeeper, archive: Callable[..., None]) -> None:
    archive(request("b", 70, session_id="s"))
    keeper.catch_up()
    archive(request("a", 5, session_id="s"))
    keeper.catch_up()
    with transaction(db) as connection:
        rows = feature_rows(connection, ["hour"], DAY)
    assert [(row["hour"], row["turn_1"], row["turn_2"]) for row in rows] == [(NINE, 1, 0), (NINE + HOUR, 0, 1)]


def test_a_lost_database_row_comes_back_from_the_archive(db: Engine, keeper: FeatureKeeper, archive: Callable[..., None]) -> None:
    """As after a database restored from yesterday: what it does not know of is computed again."""
    archive(request("a", 5))
    keeper.catch_up()
    with transaction(db) as connection:
        connection.execute(text("TRUNCATE feature_file, feature_hour"))
    FeatureKeeper(db, keeper.data_dir, 400, lambda: NOW).catch_up()
    assert stored(db) == expected([request("a", 5)])


def test_hours_whose_archive_is_going_keep_their_rows(db: Engine, keeper: FeatureKeeper, archive: Callable[..., None]) -> None:
    archive(request("a", 5))
    keeper.catch_up()
    with transaction(db) as connection:
        connection.execute(text("INSERT INTO feature_dirty VALUES (:hour)"), {"hour": NINE})
    later = FeatureKeeper(db, keeper.data_dir, 1, lambda: NOW + timedelta(days=2))
    assert later.compute(NINE)
    assert stored(db) == expected([request("a", 5)])
    with transaction(db) as connection:
        assert dirty_hours(connection) == []


def test_figures_are_divided_last_and_unknown_has_a_reason(
    db: Engine, keeper: FeatureKeeper, archive: Callable[..., None]
) -> None:
    archive(
        request("a", 5, session_id="s", tools=("search",), repeat_ratio=Decimal("0.3"), prefix_sketch=SKETCH),
        request("b", 6, session_id="s", repeat_ratio=Decimal("0.1"), prefix_sketch=SKETCH, tools=("fetch", "mail")),
        request("c", 7, usage_source="missing", tokens=TokenCounts()),
        request("d", 8, deployment=Deployment("c", "n", "other"), tenant=TenantPath("else"), tokens=TokenCounts(output=5)),
    )
    keeper.catch_up()
    with transaction(db) as connection:
        mine, other = feature_rows(connection, ["deployment"], DAY)
        assert feature_rows(connection, [], DAY, {"org": "nobody"}) == []
        whole = feature_rows(connection, [], DAY)
        edges = tool_edges(connection, DAY)
    assert mine["deployment"] == "c/n/m"
    figures = {
        "context_mean": Decimal(100), "over_p90_share": None, "input_output_log2": Decimal(2), "cached_share": Decimal("0.2"),
        "follow_up_share": Decimal("0.5"), "repeat_ratio": Decimal("0.2"), "tool_share": Decimal(1),
        "tools_per_request": Decimal("1.5"), "similar_share": Decimal("0.5"), "shareable_share": Decimal("0.4"),
    }  # fmt: skip
    assert {name: mine[name] for name in figures} == figures
    assert set(mine["reasons"]) == {"over_p90_share"}
    assert (mine["shareable_tokens"], mine["requests"], mine["counted_requests"]) == (80, 3, 2)
    assert set(other["reasons"]) == set(figures) - {"context_mean"}, "no input: neither ratio nor cached share, and nobody looked"
    assert [row["requests"] for row in whole] == [4]
    assert [(row["from_tool"], row["to_tool"], row["steps"]) for row in edges] == [
        ("", "search", 1), ("fetch", "mail", 1), ("search", "fetch", 1),
    ]  # fmt: skip


def test_hours_of_the_week_follow_the_zone(db: Engine, keeper: FeatureKeeper, archive: Callable[..., None]) -> None:
    archive(request("a", 5), request("b", 60 * -10))
    keeper.catch_up()
    with transaction(db) as connection:
        utc = feature_rows(connection, ["hour_of_week"], Window(DAY.start - timedelta(days=1), DAY.end))
        berlin = feature_rows(
            connection, ["hour_of_week"], Window(DAY.start - timedelta(days=1), DAY.end), zone_name="Europe/Berlin"
        )
    assert [row["hour_of_week"] for row in utc] == [9, 167], "2026-11-30 is a Monday"
    assert [row["hour_of_week"] for row in berlin] == [0, 10]


def test_requests_over_the_p90_of_the_week_before(db: Engine, keeper: FeatureKeeper, archive: Callable[..., None]) -> None:
    archive(request("a", 5))
    keeper.catch_up()
    before = DAY.start - timedelta(days=1)
    lengths = [(before, 20, 179), (before, 24, 21), (NINE, 20, 5), (NINE, 24, 2), (NINE, 28, 3)]
    with transaction(db) as connection:
        ensure_months(connection, [before])
        insert = text("INSERT INTO usage_length_hour VALUES (:hour, 'c', 'n', 'm', 'acme', 'input', :bucket, :requests, 0)")
        connection.execute(insert, [dict(zip(("hour", "bucket", "requests"), row, strict=True)) for row in lengths])
        (row,) = feature_rows(connection, ["org"], DAY)
        (by_team,) = feature_rows(connection, ["team"], DAY)
    assert (row["over_p90_requests"], row["over_p90_of"], row["over_p90_share"]) == (3, 10, Decimal("0.3"))
    assert (by_team["over_p90_of"], by_team["over_p90_share"]) == (0, None)


@pytest.mark.parametrize(
    ("requests", "bucket"),
    [({}, None), ({5: 199}, None), ({5: 200}, 5), ({5: 180, 9: 20}, 5), ({5: 179, 9: 21}, 9), ({-1: 190, 3: 10}, -1)],
)
def test_p90_needs_two_hundred_requests(requests: dict[int, int], bucket: int | None) -> None:
    assert p90_bucket(requests) == bucket


@pytest.mark.parametrize(
    ("by", "filters", "word"),
    [(["user"], {}, "user"), (["org", "org"], {}, "twice"), ([], {"hour": "x"}, "hour"), ([], {"deployment": "x"}, "CLUSTER")],
)
def test_a_key_that_is_none_is_named(db: Engine, by: list[str], filters: dict[str, str], word: str) -> None:
    with transaction(db) as connection, pytest.raises(BadInput, match=word):
        feature_rows(connection, by, DAY, filters)
    with transaction(db) as connection, pytest.raises(BadInput, match="team"):
        tool_edges(connection, DAY, {"team": "x"})

"""Any window of whole minutes gives the sum of its minutes, whatever rollups it is read from; coverage names its gaps."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import Connection, Engine, insert

from bench.year import coarser
from core.errors import BadInput
from core.windows import Window
from models.partitions import ensure_months
from models.tables_usage import EngineMinuteRow, UsageMinuteRow
from models.usage_pieces import Piece, coarsest_for, pieces
from models.usage_repo import coverage_rows, usage_rows

pytestmark = pytest.mark.db

START = datetime(2026, 10, 23, tzinfo=UTC)
KEYS = {"cluster": "c1", "namespace": "ns", "model_id": "org/m", "org": "acme", "team": "t", "project": "p", "user_id": "u"}
KEYS |= {"key_id": "k", "service_tier": "P1", "status": "ok", "usage_source": "exact"}
TOKENS = ("input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h", "output", "output_reasoning")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def line(minute: datetime, requests: int = 1, **changes: Any) -> dict[str, Any]:
    counts = dict.fromkeys(TOKENS, 0) | {
        "prefill_context": 0,
        "kv_work_x2": 0,
        "duration_ms": 0,
        "repeated_input": 0,
        "operations": 0,
        "end_unknown": 0,
        "requests": requests,
    }
    return {"minute": minute, "workload_class": 0, **KEYS, **counts, **changes}


def load(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Rows of minutes into every rollup."""
    ensure_months(connection, {row["minute"] for row in rows})
    connection.execute(insert(UsageMinuteRow), rows)
    coarser(connection, "usage")


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    chance = random.Random(7)
    found = {}
    for _ in range(600):
        minute = START + timedelta(minutes=chance.randrange(5 * 1440))
        status, source = chance.choice([("ok", "exact"), ("error", "missing"), ("aborted", "estimated"), ("refused", "exact")])
        team = chance.choice(["a", "b"])
        counts = {} if source == "missing" else {"input_uncached": chance.randrange(9000), "output": chance.randrange(900)}
        found[minute, status, team] = line(minute, status=status, usage_source=source, team=team, **counts)
    return list(found.values())


WINDOWS = [
    (START, START + timedelta(days=5)),
    (at("2026-10-23T00:01:00"), at("2026-10-23T00:02:00")),
    (at("2026-10-23T05:17:00"), at("2026-10-23T05:59:00")),
    (at("2026-10-23T05:17:00"), at("2026-10-23T07:00:00")),
    (at("2026-10-23T05:00:00"), at("2026-10-26T05:01:00")),
    (at("2026-10-23T23:59:00"), at("2026-10-27T00:01:00")),
    (at("2026-10-24T00:00:00"), at("2026-10-25T00:00:00")),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_is_the_sum_of_its_minutes(db: Engine, rows: list[dict[str, Any]], window: tuple[datetime, datetime]) -> None:
    inside = [row for row in rows if window[0] <= row["minute"] < window[1]]
    with db.begin() as connection:
        load(connection, rows)
        found = usage_rows(connection, [], Window(*window))
        by_team = usage_rows(connection, ["team", "status"], Window(*window))
    total = found[0] if found else defaultdict(int)
    assert total["requests"] == sum(row["requests"] for row in inside)
    for name in TOKENS:
        assert total[name] == sum(row[name] for row in inside)
        assert sum(row[name] for row in by_team) == total[name]
    for name, status in (("errors", "error"), ("aborted", "aborted"), ("refused", "refused")):
        assert total[name] == sum(row["requests"] for row in inside if row["status"] == status)
    for name in ("estimated", "missing"):
        assert total[name] == sum(row["requests"] for row in inside if row["usage_source"] == name)


@pytest.mark.parametrize("zone_name", ["UTC", "Europe/Berlin", "Asia/Kolkata"])
def test_days_follow_the_reporting_zone(db: Engine, rows: list[dict[str, Any]], zone_name: str) -> None:
    """Across 2026-10-25, the day of 25 hours in Berlin; Kolkata is 5:30 ahead."""
    expected: dict[str, int] = defaultdict(int)
    for row in rows:
        expected[row["minute"].astimezone(ZoneInfo(zone_name)).date().isoformat()] += row["input_uncached"]
    with db.begin() as connection:
        load(connection, rows)
        found = usage_rows(connection, ["day"], Window(START, START + timedelta(days=5)), zone_name=zone_name)
    assert {row["day"]: row["input_uncached"] for row in found} == expected
    assert [row["day"] for row in found] == sorted(expected)


def test_operations_attempts_and_waste_are_apart(db: Engine) -> None:
    """B10: two operations, five attempts, 240/60 tokens once; a left stream burned 5/2."""
    rows = [
        line(START, requests=2, operations=2, input_uncached=240, output=60),
        line(START, status="error", requests=3, end_unknown=1, input_uncached=7, input_cache_read=1),
        line(START, status="aborted", requests=1, operations=1, input_uncached=5, output=2),
    ]
    with db.begin() as connection:
        load(connection, rows)
        (row,) = usage_rows(connection, [], Window(START, START + timedelta(minutes=1)))
    assert (row["operations"], row["attempts"], row["attempts_end_unknown"], row["requests"]) == (3, 6, 1, 6)
    assert (row["wasted_input"], row["wasted_output"], row["input_uncached"], row["output"]) == (13, 2, 252, 62)


def test_hours_and_minutes_are_instants(db: Engine) -> None:
    with db.begin() as connection:
        load(connection, [line(at("2026-10-23T05:17:00"), output=3), line(at("2026-10-23T05:18:00"), output=4)])
        window = Window(at("2026-10-23T05:00:00"), at("2026-10-23T06:00:00"))
        assert [(r["hour"], r["output"]) for r in usage_rows(connection, ["hour"], window)] == [(at("2026-10-23T05:00:00"), 7)]
        assert [r["minute"].minute for r in usage_rows(connection, ["minute"], window)] == [17, 18]


def test_filters_and_deployment_key(db: Engine) -> None:
    with db.begin() as connection:
        load(connection, [line(START, model_id="org/m", output=1), line(START, model_id="other", output=2, user_id="zoe")])
        window = Window(START, START + timedelta(days=1))
        assert [r["deployment"] for r in usage_rows(connection, ["deployment"], window)] == ["c1/ns/org/m", "c1/ns/other"]
        assert usage_rows(connection, [], window, {"deployment": "c1/ns/org/m"})[0]["output"] == 1
        assert usage_rows(connection, ["user"], window, {"user": "zoe", "workload_class": "0"})[0]["output"] == 2
        assert usage_rows(connection, [], window, {"team": "nobody'; DROP TABLE usage_day --"}) == []


@pytest.mark.parametrize(
    ("by", "filters", "start", "field"),
    [
        (["colour"], {}, START, "by"),
        (["team", "team"], {}, START, "by"),
        (["hour", "day"], {}, START, "by"),
        ([], {"hour": "1"}, START, "filter"),
        ([], {"deployment": "half"}, START, "filter.deployment"),
        ([], {"workload_class": "x"}, START, "filter.workload_class"),
        ([], {}, START + timedelta(seconds=1), "from"),
    ],
)
def test_bad_questions_say_what_is_wrong(db: Engine, by: list[str], filters: dict[str, str], start: datetime, field: str) -> None:
    with db.connect() as connection, pytest.raises(BadInput) as caught:
        usage_rows(connection, by, Window(start, START + timedelta(days=1)), filters)
    assert caught.value.field == field


def test_pieces_are_disjoint_and_cover() -> None:
    window = Window(at("2026-10-23T05:17:00"), at("2026-10-26T02:03:00"))
    found = pieces(window, "day")
    assert [(p.level, p.start, p.end) for p in found] == [
        ("minute", at("2026-10-23T05:17:00"), at("2026-10-23T06:00:00")),
        ("hour", at("2026-10-23T06:00:00"), at("2026-10-24T00:00:00")),
        ("day", at("2026-10-24T00:00:00"), at("2026-10-26T00:00:00")),
        ("hour", at("2026-10-26T00:00:00"), at("2026-10-26T02:00:00")),
        ("minute", at("2026-10-26T02:00:00"), at("2026-10-26T02:03:00")),
    ]
    assert pieces(window, "minute") == (Piece("minute", window.start, window.end),)
    assert coarsest_for("day", window, "Asia/Kolkata") == "minute"
    assert coarsest_for("day", window, "America/New_York") == "hour"


def engine_line(minute: datetime, prompt: int, generated: int, **changes: int) -> dict[str, Any]:
    names = {"cluster": "c1", "namespace": "ns", "model_id": "org/m", "target": "http://e", "engine": "0", "node": "n1"}
    return {
        "minute": minute,
        **names,
        "prompt_tokens": prompt,
        "generation_tokens": generated,
        "resets": 0,
        "gap_us": 0,
        **changes,
    }


def test_coverage_is_the_explained_share_of_engine_tokens(db: Engine) -> None:
    usage = [
        line(START, input_uncached=600, input_cache_read=200, output=80),
        line(START, usage_source="estimated", input_uncached=100, output=10, requests=2),
        line(START, status="aborted", usage_source="estimated", output=5),
        line(START, status="error", usage_source="missing", requests=3),
        line(START, cluster="vendor", namespace="openai", model_id="gpt", input_uncached=10_000),
    ]
    with db.begin() as connection:
        load(connection, usage)
        connection.execute(insert(EngineMinuteRow), [engine_line(START, 1000, 90, resets=1, gap_us=7_500_000)])
        coarser(connection, "engine")
        found = coverage_rows(connection, ["deployment", "day"], Window(START, START + timedelta(days=1)))
    assert len(found) == 1
    row = found[0]
    assert (row["engine_prompt_tokens"], row["engine_generation_tokens"]) == (1000, 90)
    assert (row["gateway_input_tokens"], row["gateway_output_tokens"]) == (900, 95)
    assert row["coverage"] == (Decimal(900 + 90) / 1090).quantize(Decimal("0.000001"))
    assert row["day"] == "2026-10-23"
    assert (row["difference_in"], row["difference_out"]) == (100, -5)
    reasons = {reason["name"]: reason for reason in row["reasons"]}
    assert sum(reason["tokens_in"] or 0 for reason in row["reasons"]) == 100
    assert sum(reason["tokens_out"] or 0 for reason in row["reasons"]) == -5
    estimated = reasons["estimated_stream"]
    assert (estimated["tokens_out"], estimated["requests"], estimated["rests_in"], estimated["rests_out"]) == (-5, 3, 100, 15)
    missing = reasons["missing_usage"]
    assert (missing["tokens_in"], missing["tokens_out"], missing["requests"]) == (None, None, 3)
    assert reasons["unattributed"]["tokens_in"] == 100
    assert reasons["engine_reset"]["count"] == 1
    assert reasons["scrape_gap"]["seconds"] == Decimal("7.5")
    assert all(reason["known"] for reason in row["reasons"])


def test_coverage_is_unknown_without_engine_samples(db: Engine) -> None:
    with db.begin() as connection:
        load(connection, [line(START, input_uncached=5)])
        found = coverage_rows(connection, [], Window(START, START + timedelta(days=1)))
        assert coverage_rows(connection, [], Window(START + timedelta(days=2), START + timedelta(days=3))) == []
    assert (found[0]["coverage"], found[0]["engine_prompt_tokens"]) == (None, None)
    assert [reason["name"] for reason in found[0]["reasons"]] == ["no_engine_samples"]

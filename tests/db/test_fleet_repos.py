"""The token heat map and the efficiency series, from rollups of the test's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from money_rows import D
from sqlalchemy import Connection, Engine, insert

from bench.year import coarser
from core.capacity import NodeService
from core.errors import BadInput
from core.fleet_checks import Finding
from core.lengths import bucket
from core.windows import Window
from models.efficiency_repo import efficiency_rows
from models.fleet_repo import replace_findings
from models.heat_map_repo import heat_map
from models.partitions import ensure_months
from models.rates_repo import declare_service
from models.tables import EngineMinuteRow, UsageLengthRow

pytestmark = pytest.mark.db

DAY = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)
WEEK = Window(DAY, DAY + timedelta(days=7))
PLACE = {"cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id}


def lengths(connection: Connection, at: datetime, length: int, requests: int, **changes: Any) -> None:
    ensure_months(connection, [at])
    row = {"hour": at, **PLACE, "org": "acme", "kind": "input", "bucket": bucket(length), "requests": requests}
    connection.execute(insert(UsageLengthRow), [{**row, "tokens": length * requests, **changes}])


def test_hours_of_the_day_are_the_reporting_zones_and_lose_nothing(db: Engine) -> None:
    with db.begin() as connection:
        lengths(connection, DAY + 20 * HOUR, 5000, 60)
        lengths(connection, DAY + 44 * HOUR, 7000, 1)
        lengths(connection, DAY + 44 * HOUR, 40_000, 39)
        lengths(connection, DAY + 44 * HOUR, 90, 5, kind="output")
        found = heat_map(connection, "input", "hour_of_day", WEEK, zone_name="Asia/Shanghai")
    assert [(c["at"], c["label"], c["requests"], c["tokens"]) for c in found.cells] == [
        (4, "4–8 K tokens", 61, 307_000),
        (4, "32–64 K tokens", 39, 1_560_000),
    ]
    assert found.whole["requests"] == 100
    assert [row["at"] for row in found.lengths] == [4]
    assert found.whole["spread"] > 4


@pytest.mark.parametrize(
    ("axis", "places"), [("hour", [DAY + 20 * HOUR, DAY + 44 * HOUR]), ("day", ["2026-11-20", "2026-11-21"])]
)
def test_along_the_time_line(db: Engine, axis: str, places: list[Any]) -> None:
    with db.begin() as connection:
        lengths(connection, DAY + 20 * HOUR, 5000, 60)
        lengths(connection, DAY + 44 * HOUR, 40_000, 39, org="other")
        found = heat_map(connection, "input", axis, WEEK)
        narrowed = heat_map(connection, "input", axis, WEEK, {"org": "acme", "deployment": str(D)})
        nothing = heat_map(connection, "output", axis, WEEK)
    assert [row["at"] for row in found.lengths] == places
    assert [row["at"] for row in narrowed.lengths] == places[:1]
    assert (nothing.cells, nothing.whole["p50"], nothing.whole["requests"]) == ([], None, 0)


def test_a_wrong_question_is_named(db: Engine) -> None:
    with db.connect() as connection:
        for kind, axis, filters in (("both", "hour", {}), ("input", "week", {}), ("input", "hour", {"user": "x"})):
            with pytest.raises(BadInput):
                heat_map(connection, kind, axis, WEEK, filters)


def engine(connection: Connection, at: datetime, name: str, **sums: int) -> None:
    ensure_months(connection, [at])
    row = {"minute": at, **PLACE, "target": "t", "engine": name, "node": "n1", "observed_us": 60_000_000, **sums}
    connection.execute(insert(EngineMinuteRow), [row])


def test_a_days_figures_are_its_sums_divided_last(db: Engine) -> None:
    with db.begin() as connection:
        engine(connection, DAY, "0", busy_us=60_000_000, kv_seen_us=60_000_000, kv_full_us=54_000_000)
        engine(connection, DAY, "1", busy_us=0, kv_seen_us=60_000_000, kv_full_us=6_000_000)
        engine(connection, DAY + HOUR, "0", busy_us=30_000_000)
        coarser(connection, "engine")
        (day,) = efficiency_rows(connection, "day", WEEK)
        hours = efficiency_rows(connection, "hour", WEEK)
        minutes = efficiency_rows(connection, "minute", WEEK, {"deployment": str(D)})
        (whole,) = efficiency_rows(connection, None, WEEK)
    assert (day["day"], day["deployment"], day["engines"]) == ("2026-11-20", str(D), 2)
    assert (day["busy_share"], day["kv_use"], day["kv_use_max"]) == (Decimal("0.5"), Decimal("0.5"), Decimal("0.9"))
    assert [row["busy_share"] for row in hours] == [Decimal("0.5"), Decimal("0.5")]
    assert [row["minute"] for row in minutes] == [DAY, DAY + HOUR]
    assert hours[1]["kv_use"] is None
    assert hours[1]["reasons"]["kv_use"]
    assert whole["busy_share"] == day["busy_share"]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (["8192", "8192"], Decimal("0.25")),
        (["8192", ""], None),
        (["8192", "4096"], None),
        (["8192"], None),
        (["8k", "8192"], None),
    ],
)
def test_a_step_is_full_by_the_limit_all_engines_say(db: Engine, seen: list[str], expected: Decimal | None) -> None:
    read = [
        Finding(target, "engine", "max_num_batched_tokens", "pass", value, "/server_info", "", "")
        for target, value in zip("tu", seen, strict=False)
    ]
    with db.begin() as connection:
        for target in "tu":
            declare_service(connection, NodeService(D, target, "n", "A10G", 1, DAY), "test")
        replace_findings(connection, read, DAY)
        engine(connection, DAY, "0", steps=10, iteration_tokens=20_480)
        (row,) = efficiency_rows(connection, "minute", WEEK)
    assert row["batch_efficiency"] == expected
    assert ("as read at 2026-11-20 00:00Z" in row["notes"].get("batch_efficiency", "")) is (expected is not None)


def test_growth_at_equal_load_is_told_of_the_whole_time(db: Engine) -> None:
    with db.begin() as connection:
        for hour in range(8):
            for target, growth in (("t", 0), ("leaky", 30)):
                sums = {"running_us": 60_000_000, "torch_seen_us": 60_000_000, "torch_reserved_mib_us": 2000 * 60_000_000}
                sums |= {"torch_allocated_mib_us": (1000 + growth * hour) * 60_000_000, "target": target}
                engine(connection, DAY + hour * HOUR, "0", **sums)  # type: ignore[arg-type]
        coarser(connection, "engine")
        (whole,) = efficiency_rows(connection, None, Window(DAY, DAY + 24 * HOUR))
        (day,) = efficiency_rows(connection, "day", Window(DAY, DAY + 24 * HOUR))
    assert (whole["memory_growth_mib_h"], whole["fragmentation"]) == (30, Decimal("0.47375"))
    assert whole["notes"]["memory_growth_mib_h"] == "by 8 windows over 7 hours"
    assert (day["memory_growth_mib_h"], day["fragmentation"]) == (None, whole["fragmentation"])
    assert "whole time range" in day["reasons"]["memory_growth_mib_h"]


def test_no_engine_no_row(db: Engine) -> None:
    with db.connect() as connection:
        assert efficiency_rows(connection, "hour", WEEK) == []
        with pytest.raises(BadInput):
            efficiency_rows(connection, "week", WEEK)

"""Sums without users and keys say what the minutes say, whatever is asked of generated work; ``test_loader`` and
``test_loader_recompute`` say the same of delta files and of the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from bench.year import END, make_work
from core.tokens import TOKEN_FIELDS
from core.windows import Window, zone
from models.tables_usage import USAGE_MEASURES
from models.usage_repo import usage_rows
from streaming.load_sql import ROLLUPS

pytestmark = pytest.mark.db

DAY = timedelta(days=1)
SHORT = timedelta(minutes=7)
WINDOWS = (
    Window(END - 60 * DAY, END),
    Window(END - 30 * DAY - SHORT, END - SHORT),
    Window(END.replace(hour=0) - 45 * DAY, END.replace(hour=0)),
    Window(END - timedelta(hours=30), END - timedelta(hours=1)),
    Window(END - timedelta(minutes=50), END - SHORT),
)
QUESTIONS: tuple[tuple[tuple[str, ...], Mapping[str, str]], ...] = (
    ((), {}),
    (("model_id",), {}),
    (("deployment", "status"), {"service_tier": "P1"}),
    (("day",), {}),
    (("hour",), {"deployment": "bench/inference/model-1"}),
    (("org", "team"), {}),
    (("day",), {"org": "org1", "team": "team1"}),
    (("team", "usage_source"), {"org": "org2"}),
    (("team", "model_id"), {}),
    (("user",), {"team": "team3"}),
    (("project", "day"), {}),
)
COLUMNS = {"deployment": "cluster || '/' || namespace || '/' || model_id", "user": "user_id"}


def from_minutes(
    connection: Connection, by: Sequence[str], window: Window, filters: Mapping[str, str], zone_name: str
) -> list[tuple[Any, ...]]:
    """The same question of the minutes alone."""
    times = {
        "day": f"((minute AT TIME ZONE '{zone(zone_name).key}')::date)::text",
        "hour": "date_trunc('hour', minute, 'UTC')",
    }
    keys = [times.get(key) or COLUMNS.get(key, key) for key in by]
    where = "".join(f" AND {COLUMNS.get(name, name)} = :{name}" for name in filters)
    sums = ["sum(requests)", "coalesce(sum(requests) FILTER (WHERE status = 'aborted'), 0)", *(f"sum({n})" for n in TOKEN_FIELDS)]
    grouped = f"GROUP BY {', '.join(keys)} ORDER BY {', '.join(keys)}" if keys else "HAVING count(*) > 0"
    sql = f"SELECT {', '.join([*keys, *sums])} FROM usage_minute WHERE minute >= :start AND minute < :end{where} {grouped}"
    return [tuple(row) for row in connection.execute(text(sql), {"start": window.start, "end": window.end, **filters})]


@pytest.fixture
def quarter(db: Engine) -> Engine:
    make_work(db, 4_000, 60 * DAY)
    return db


def test_every_question_is_answered_as_its_minutes_would(quarter: Engine) -> None:
    with quarter.connect() as connection:
        for by, filters in QUESTIONS:
            for window in WINDOWS:
                for zone_name in ("UTC", "Asia/Shanghai", "Asia/Kolkata") if "day" in by else ("UTC",):
                    rows = usage_rows(connection, by, window, filters, zone_name=zone_name)
                    found = [tuple(row[name] for name in (*by, "requests", "aborted", *TOKEN_FIELDS)) for row in rows]
                    assert found == from_minutes(connection, by, window, filters, zone_name), (by, filters, window, zone_name)


def test_every_rollup_holds_the_sums_of_the_minutes(quarter: Engine) -> None:
    with quarter.connect() as connection:
        for rollup in ROLLUPS["usage"]:
            keys, sums = ", ".join(rollup.keys), ", ".join(f"sum({name})" for name in USAGE_MEASURES)
            kept = f"SELECT {rollup.time} AS at, {keys}, {sums} FROM {rollup.table} GROUP BY at, {keys}"
            minutes = (
                f"SELECT date_trunc('{rollup.time}', minute, 'UTC') AS at, {keys}, {sums} FROM usage_minute GROUP BY at, {keys}"
            )
            for one, other in ((kept, minutes), (minutes, kept)):
                assert connection.execute(text(f"SELECT count(*) FROM ({one} EXCEPT {other}) d")).scalar_one() == 0, rollup.table

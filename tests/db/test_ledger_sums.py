"""Day and month sums of the ledger say what the lines say: for any window, after re-closes, with nothing left of old ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import money_rows as rows
import pytest
from sqlalchemy import Connection, Engine, text

from control.ledger_close import CloseSettings, close_all
from core.capacity import NodeService
from core.windows import Window
from models.ledger_repo import ledger_rows, unit_cost_rows
from models.rates_repo import add_rates, declare_service

FIRST = datetime(2026, 10, 30, 22, tzinfo=UTC)
DEAR = replace(rows.D, model_id="dear")
DAYS = (0, 1, 2, 3)
NO_GRACE = CloseSettings(grace=timedelta(0))
BY_LINES = """
    SELECT x.team, x.kind, x.token_kind, sum(x.tokens)::bigint, sum(x.requests)::bigint, sum(x.cost), sum(x.allocated)
    FROM ledger_line x JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version)
    WHERE x.window_start >= :start AND x.window_start < :end GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""


@pytest.fixture
def closed(db: Engine) -> Engine:
    """Four evenings from October into November with work of two teams, closed."""
    with db.begin() as connection:
        add_rates(connection, [rows.a10g(since=FIRST - timedelta(days=1))], FIRST)
        declare_service(connection, rows.service(since=FIRST), "test")
        for day in DAYS:
            for team, minute in (("search", 1), ("ads", 31)):
                rows.use(connection, FIRST + timedelta(days=day, minutes=minute), team=team, input_uncached=100 + day)
    close_all(db, FIRST + timedelta(days=4), NO_GRACE)
    return db


def by_lines(connection: Connection, window: Window) -> list[tuple[Any, ...]]:
    found = connection.execute(text(BY_LINES), {"start": window.start, "end": window.end})
    return [tuple(row) for row in found]


def by_sums(connection: Connection, window: Window) -> list[tuple[Any, ...]]:
    keys, sums = ("team", "kind", "token_kind"), ("tokens", "requests", "cost", "allocated")
    return [tuple(row[name] for name in (*keys, *sums)) for row in ledger_rows(connection, keys, window)]


@pytest.mark.parametrize(
    ("start_hours", "hours"),
    [(0, 96), (2, 24), (2, 48), (1, 72.25), (0, 0.25), (-22, 24), (-500, 2000), (26, 30 * 24), (0.1, 25)],
)
def test_any_window_is_the_sum_of_its_lines(closed: Engine, start_hours: float, hours: float) -> None:
    start = FIRST + timedelta(hours=start_hours)
    window = Window(start, start + timedelta(hours=hours))
    with closed.connect() as connection:
        assert by_sums(connection, window) == by_lines(connection, window)
        by_kind = {
            (row["kind"], row["token_kind"]): row["cost"] for row in ledger_rows(connection, ("kind", "token_kind"), window)
        }
        expected: dict[tuple[str, str], Decimal] = {}
        for _team, kind, token_kind, _tokens, _requests, cost, _allocated in by_lines(connection, window):
            expected[kind, token_kind] = expected.get((kind, token_kind), Decimal(0)) + cost
        assert by_kind == expected


def test_a_day_of_the_reporting_zone_is_the_sum_of_its_lines(closed: Engine) -> None:
    window = Window(FIRST - timedelta(days=1), FIRST + timedelta(days=5))
    for zone in ("UTC", "Asia/Shanghai", "Asia/Kolkata"):
        with closed.connect() as connection:
            found = ledger_rows(connection, ("day",), window, zone_name=zone)
            whole = sum((row[5] for row in by_lines(connection, window)), Decimal(0))
        assert sum((row["cost"] for row in found), Decimal(0)) == whole
        assert len(found) > 3


def test_a_reclose_leaves_nothing_of_the_version_before(closed: Engine) -> None:
    """The only work of a team is re-attributed: its sums end at no line, and it is no longer shown."""
    with closed.begin() as connection:
        connection.execute(text("UPDATE usage_minute SET team = 'mail' WHERE team = 'ads'"))
        marks = "SELECT cluster, namespace, model_id, window_start, now() FROM ledger_head"
        connection.execute(text(f"INSERT INTO dirty_window {marks} ON CONFLICT DO NOTHING"))
    report = close_all(closed, FIRST + timedelta(days=4), NO_GRACE)
    assert report.reclosed == len(DAYS)
    window = Window(FIRST, FIRST + timedelta(days=4))
    with closed.connect() as connection:
        assert {row["team"] for row in ledger_rows(connection, ("team",), window)} == {"", "search", "mail"}
        assert by_sums(connection, window) == by_lines(connection, window)
        left = "SELECT count(*) FROM ledger_line_day WHERE lines = 0 AND (tokens, requests, cost, allocated) <> (0, 0, 0, 0)"
        assert connection.execute(text(left)).scalar_one() == 0


@pytest.mark.parametrize("by", [(), ("deployment",), ("day",), ("hour",), ("team", "day"), ("model_id",)])
@pytest.mark.parametrize(("start_hours", "hours"), [(0, 96), (2, 24), (1, 72.25), (-500, 2000)])
def test_the_newest_ledger_is_the_ledger_as_of_now(closed: Engine, by: tuple[str, ...], start_hours: float, hours: float) -> None:
    """Sums and sources kept by hour, day and month say what the versions themselves say, with work that has no price among them
    and after a re-close."""
    dear = FIRST + timedelta(days=1, minutes=5)
    with closed.begin() as connection:
        declare_service(connection, NodeService(DEAR, "http://dear", "dear", "TPU9", 1, FIRST), "test")
        rows.use(connection, dear, model_id=DEAR.model_id, team="search", input_uncached=50)
        rows.use(connection, FIRST + timedelta(minutes=1), team="search", input_uncached=999, key_id="late")
        places = "SELECT cluster, namespace, model_id, date_bin('15 minutes', minute, TIMESTAMPTZ 'epoch'), now()"
        connection.execute(text(f"INSERT INTO dirty_window {places} FROM usage_minute ON CONFLICT DO NOTHING"))
    close_all(closed, FIRST + timedelta(days=4), NO_GRACE)
    start = FIRST + timedelta(hours=start_hours)
    window, later = Window(start, start + timedelta(hours=hours)), FIRST + timedelta(days=9)
    with closed.connect() as connection:
        for zone in ("UTC", "Asia/Shanghai", "Asia/Kolkata"):
            newest = unit_cost_rows(connection, by, window, "allocation", zone_name=zone)
            assert newest == unit_cost_rows(connection, by, window, "allocation", as_of=later, zone_name=zone)
            assert newest

"""Every kind of fault in the database: counted, placed, with the money that rests on it and what to do."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from money_rows import T0, D, a10g, engine_runs, service, use
from sqlalchemy import Connection, Engine, insert, text

from control.data_quality import data_quality
from control.ledger_close import close_due
from core.windows import Window
from models.rates_repo import add_rates, declare_service
from models.tables import DataFaultRow, QuarantineRow, StandingCheckRow, StreamStateRow
from models.tables_usage import USAGE_MEASURES

pytestmark = pytest.mark.db

HOUR = timedelta(hours=1)
NOW = T0 + 3 * HOUR
SPAN = Window(T0 - HOUR, T0 + 2 * HOUR)
QUARTER_COST = Decimal("0.2515")


def closed(db: Engine, *, priced: bool = True) -> None:
    """The first quarter hour: 1000/100 exact, 500/50 estimated, an error without counts; the engine did 1800/180 in all."""
    with db.begin() as connection:
        if priced:
            add_rates(connection, [a10g()], T0)
        declare_service(connection, service(), "test")
        use(connection)
        use(connection, usage_source="estimated", input_uncached=500, output=50)
        use(connection, usage_source="missing", status="error", input_uncached=0, output=0, kv_work_x2=0)
        engine_runs(connection, prompt_tokens=120, generation_tokens=12)
        _narrow(connection)
    close_due(db, T0 + timedelta(minutes=31))


def _narrow(connection: Connection) -> None:
    keys = "cluster, namespace, model_id, service_tier, status, usage_source, workload_class"
    sums = ", ".join(f"sum({name})" for name in USAGE_MEASURES)
    connection.execute(
        text(
            f"INSERT INTO usage_deployment_hour (hour, {keys}, {', '.join(USAGE_MEASURES)}) "
            f"SELECT date_trunc('hour', minute, 'UTC'), {keys}, {sums} FROM usage_minute GROUP BY 1, {keys}"
        )
    )


def fault(connection: Connection, kind: str, source: str, at: datetime, minutes: int = 1) -> None:
    body = {"window_start": at, "window_end": at + timedelta(minutes=minutes), "detail": {}, "noticed_at": at}
    connection.execute(insert(DataFaultRow), [{"id": f"{kind}{source}{at}", "kind": kind, "source": source, **body}])


def read(db: Engine) -> tuple[dict[str, dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    with db.connect() as connection:
        found = data_quality(connection, SPAN, NOW)
    assert all(row["what_to_do"] and row["money_is"] and row["counts"] for row in found["kinds"])
    return {row["kind"]: row for row in found["kinds"]}, found["money"], found["standing"]


def amount(row: dict[str, Any]) -> Decimal:
    (part,) = row["money"]
    assert part["currency"] == "USD"
    return Decimal(part["amount"])


def test_a_bypass_and_estimates_hold_their_part_of_the_ledger(db: Engine) -> None:
    closed(db)
    kinds, money, _ = read(db)
    with db.connect() as connection:
        costs = dict(connection.execute(text("SELECT kind, sum(cost) FROM ledger_line GROUP BY kind")).tuples().all())
        served = connection.execute(text("SELECT sum(cost) FROM ledger_line WHERE kind = 'served'")).scalar_one()
    assert amount(kinds["bypass"]) == costs["unattributed"]
    assert amount(kinds["estimated"]) == pytest.approx(served / 3, rel=Decimal("1e-9"))
    assert (kinds["estimated"]["count"], kinds["missing"]["count"]) == (1, 1)
    assert kinds["missing"]["money"] == []
    (total,) = money
    assert total["total"] == amount(kinds["bypass"]) + amount(kinds["estimated"])
    assert total["counted_twice"] == 0


def test_a_gap_and_a_restart_touch_quarter_hours_which_count_once(db: Engine) -> None:
    closed(db)
    with db.begin() as connection:
        connection.execute(text("UPDATE engine_minute SET gap_us = 5000000, resets = 1 WHERE minute = :at"), {"at": T0})
    kinds, money, _ = read(db)
    assert amount(kinds["scrape_gap"]) == amount(kinds["engine_reset"]) == QUARTER_COST
    assert kinds["scrape_gap"]["first"] == T0
    (total,) = money
    assert total["total"] == QUARTER_COST
    assert total["by_kind"] - total["counted_twice"] == total["total"]
    assert total["counted_twice"] > 0


def test_what_a_reader_reports_touches_the_deployment_it_serves(db: Engine) -> None:
    closed(db)
    with db.begin() as connection:
        fault(connection, "target_down", "http://engine", T0 + timedelta(minutes=3))
        fault(connection, "target_down", "http://engine", T0 + timedelta(minutes=4))
        fault(connection, "target_down", "http://nobody-knows", T0 + timedelta(minutes=4))
        fault(connection, "a_new_kind", "prometheus", T0)
        fault(connection, "rollup_difference", str(D), T0.replace(hour=0), 1440)
    kinds, _, _ = read(db)
    down = kinds["target_down"]
    assert (down["count"], amount(down)) == (3, QUARTER_COST)
    assert down["places"] == [{"place": "http://engine", "count": 2}, {"place": "http://nobody-knows", "count": 1}]
    assert (kinds["a_new_kind"]["title"], kinds["a_new_kind"]["money"]) == ("A new kind", [])
    assert amount(kinds["rollup_difference"]) == QUARTER_COST


def test_what_has_no_price_says_so(db: Engine) -> None:
    closed(db, priced=False)
    kinds, money, _ = read(db)
    assert kinds["no_price"]["count"] == 1
    assert kinds["no_price"]["money"] == []
    assert money == []


def test_refused_records_skewed_clocks_and_a_silent_stream(db: Engine) -> None:
    rows = [("finished_at", "is more than 5 minutes after now (x)"), ("tokens.output", "must not be negative")]
    with db.begin() as connection:
        for n, (name, reason) in enumerate(rows):
            body = {"id": str(n), "received_at": T0, "source": "gateway", "field": name, "reason": reason, "body": {}}
            connection.execute(insert(QuarantineRow), [body])
        state = {"topic": "usage", "catching_up": True, "log_lines": 9, "read_lines": 2, "updated_at": NOW}
        connection.execute(insert(StreamStateRow), [state])
    kinds, _, _ = read(db)
    assert {name: kinds[name]["count"] for name in ("clock_skew", "quarantined", "stale_stream")} == {
        "clock_skew": 1, "quarantined": 1, "stale_stream": 7,
    }  # fmt: skip


def test_late_usage_is_named_once_its_quarter_hour_is_closed_again(db: Engine) -> None:
    closed(db)
    with db.begin() as connection:
        use(connection, team="late")
    close_due(db, T0 + HOUR)
    kinds, _, _ = read(db)
    assert (kinds["late"]["count"], kinds["late"]["places"]) == (1, [{"place": str(D), "count": 1}])


def test_the_standing_checks_stand_beside(db: Engine) -> None:
    place = {"cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id}
    with db.begin() as connection:
        body = {"day": date(2026, 11, 30), **place, "requests": 3, "checked_at": NOW, "differs_since": NOW}
        detail = {"output": {"archive": 1, "minute": 2, "hour": 2, "day": 2}}
        connection.execute(insert(StandingCheckRow), [{**body, "status": "difference", "detail": detail}])
    _, _, standing = read(db)
    assert (standing["checked_at"], standing["days"]) == (NOW, 1)
    assert standing["differences"][0]["measures"] == detail


def test_a_platform_without_faults_has_none(db: Engine) -> None:
    kinds, money, standing = read(db)
    assert (kinds, money) == ({}, [])
    assert standing == {"checked_at": None, "days": 0, "differences": []}
    assert NOW.tzinfo is UTC

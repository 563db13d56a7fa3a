"""The ledger on a real database: closing, re-closing, versions, holds, unit costs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from money_rows import LATER, T0, WINDOW, D, a10g, engine_runs, service, use
from sqlalchemy import Engine, insert, text

from control.ledger_close import CloseSettings, close_all, close_due, import_rates, ledger_show
from core.capacity import NodeService
from core.errors import BadInput
from core.windows import QUARTER_HOUR, Window
from models.ledger_repo import ledger_rows, ledger_windows, unit_cost_rows
from models.rates_repo import add_rates, declare_service, end_service, read_rates
from models.tables import StreamStateRow

pytestmark = pytest.mark.db


@pytest.fixture
def priced(db: Engine) -> Engine:
    """One A10G at 1.006 USD/h in service since 12:00."""
    with db.begin() as connection:
        add_rates(connection, [a10g()], T0)
        declare_service(connection, service(), "test")
    return db


def test_a_quarter_hour_of_one_a10g_closes_to_the_last_decimal(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection)
        use(connection, team="ads", status="aborted", input_uncached=500, output=7)
        engine_runs(connection, prompt_tokens=100, generation_tokens=10)
    report = close_due(priced, LATER)
    assert (report.closed, report.reclosed, report.failures) == (1, 0, [])
    with priced.connect() as connection:
        shown = ledger_show(connection, WINDOW)
    assert shown["totals"] == [
        {"currency": "USD", "capacity_cost": Decimal("0.2515"), "lines_cost": Decimal("0.2515"), "difference": Decimal(0)}
    ]
    assert {row["kind"] for row in shown["rows"]} == {"served", "wasted", "unattributed", "idle"}
    assert {row["kind"]: row["cost"] for row in shown["rows"]}["idle"] == Decimal("0.12575")


def test_before_the_grace_nothing_closes(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection)
    assert close_due(priced, T0 + timedelta(minutes=29, seconds=59)).closed == 0
    assert close_due(priced, T0 + timedelta(minutes=30)).closed == 1


def test_an_idle_node_costs_money_without_any_traffic(priced: Engine) -> None:
    close_due(priced, T0 + timedelta(hours=1))
    with priced.connect() as connection:
        rows = ledger_rows(connection, ("quarter_hour", "kind"), Window(T0, T0 + timedelta(hours=1)))
    assert [(row["kind"], row["cost"]) for row in rows] == [("starting", Decimal("0.2515"))] * 3


def test_the_same_inputs_make_no_new_version(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection)
    close_due(priced, LATER)
    again = close_due(priced, LATER, since=T0)
    assert (again.closed, again.reclosed, again.unchanged) == (0, 0, 1)
    assert close_due(priced, LATER).unchanged == 0


def test_late_usage_re_allocates_the_window_whole_as_the_next_version(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection)
        engine_runs(connection)
    close_due(priced, LATER)
    with priced.begin() as connection:
        use(connection, T0 + timedelta(minutes=1), team="late")
    report = close_due(priced, LATER + timedelta(minutes=5))
    assert (report.closed, report.reclosed) == (0, 1)
    with priced.connect() as connection:
        newest = ledger_rows(connection, ("team",), WINDOW)
        first = ledger_rows(connection, ("team",), WINDOW, as_of=LATER)
        versions = [row["version"] for row in ledger_windows(connection, WINDOW)]
    assert versions == [2]
    assert {row["team"]: row["cost"] for row in first} == {"": Decimal("0.12575"), "search": Decimal("0.12575")}
    assert {row["team"]: row["cost"] for row in newest} == {
        "": Decimal("0.12575"),
        "late": Decimal("0.062875"),
        "search": Decimal("0.062875"),
    }


def test_day_sums_follow_the_newest_version(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection)
    close_due(priced, LATER)
    with priced.begin() as connection:
        use(connection, T0 + timedelta(minutes=1), team="late")
    close_due(priced, LATER)
    with priced.connect() as connection:
        found = connection.execute(text("SELECT team, kind, cost FROM ledger_day WHERE cost <> 0"))
        day = {(row.team, row.kind): row.cost for row in found}
        lines = {(r["team"], r["kind"]): r["cost"] for r in ledger_rows(connection, ("team", "kind"), WINDOW) if r["cost"]}
    assert day == lines


def test_while_the_stream_catches_up_the_close_is_held(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection)
        connection.execute(insert(StreamStateRow), [{"topic": "usage", "catching_up": True, "updated_at": T0}])
    report = close_due(priced, LATER)
    assert (report.closed, report.held) == (0, "the stream is catching up on usage")


@pytest.mark.parametrize("topic", ["usage", "engine"])
def test_a_silent_stream_holds_the_loop_but_not_a_close_by_hand(priced: Engine, topic: str) -> None:
    last_word = LATER - timedelta(seconds=61)
    with priced.begin() as connection:
        use(connection)
        connection.execute(insert(StreamStateRow), [{"topic": topic, "catching_up": False, "updated_at": last_word}])
    report = close_due(priced, LATER)
    assert (report.closed, report.held) == (0, f"the stream is silent on {topic} since 2026-11-30T12:29:59Z")
    assert close_due(priced, LATER, CloseSettings(silence_holds=False)).closed == 1


def test_side_topics_hold_nothing(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection)
        connection.execute(insert(StreamStateRow), [{"topic": "quarantine", "catching_up": True, "updated_at": T0}])
    assert close_due(priced, LATER).closed == 1


def test_without_a_rate_nothing_is_priced_and_nothing_is_zero(db: Engine) -> None:
    with db.begin() as connection:
        declare_service(connection, service(), "test")
        use(connection)
    assert close_due(db, LATER).unpriced == 1
    with db.connect() as connection:
        window = ledger_windows(connection, WINDOW)[0]
        assert (window["capacity_cost"], window["used_cost"]) == (None, None)
        assert window["detail"]["unpriced"] == {"requests": 1, "input": 1000, "input_cached": 0, "output": 100}
        assert "no list rate gpu_hour for A10G" in window["detail"]["reason"]
        assert ledger_rows(connection, ("kind",), WINDOW) == []
        (row,) = unit_cost_rows(connection, ("deployment",), WINDOW, "usage")
    assert row["blended_per_mtok"] is None
    assert "without a price" in row["reasons"]["blended_per_mtok"]


def test_a_rate_that_arrives_later_prices_the_window_as_version_two(db: Engine) -> None:
    with db.begin() as connection:
        declare_service(connection, service(), "test")
        use(connection)
    close_due(db, LATER)
    with db.begin() as connection:
        assert import_rates(connection, [a10g()], LATER) == 1
        assert import_rates(connection, [a10g()], LATER) == 0
    assert close_due(db, LATER).reclosed == 1
    with db.connect() as connection:
        assert [row["capacity_cost"] for row in ledger_windows(connection, WINDOW)] == [Decimal("0.2515")]


def test_usage_without_an_inventory_says_what_to_declare(db: Engine) -> None:
    with db.begin() as connection:
        add_rates(connection, [a10g()], T0)
        use(connection)
    close_due(db, LATER)
    with db.connect() as connection:
        reason = ledger_windows(connection, WINDOW)[0]["detail"]["reason"]
    assert reason == "no GPU inventory in this window: declare the target's GPU type and count"


def test_longer_periods_are_sums_of_quarter_hours(priced: Engine) -> None:
    with priced.begin() as connection:
        for n in range(8):
            use(connection, T0 + n * QUARTER_HOUR, input_uncached=100 * n + 1)
        engine_runs(connection, minutes=120, prompt_tokens=77, generation_tokens=3)
    close_all(priced, T0 + timedelta(hours=3), CloseSettings(limit=3))
    whole = Window(T0, T0 + timedelta(hours=2))
    with priced.connect() as connection:
        hours = ledger_rows(connection, ("hour",), whole)
        quarters = ledger_rows(connection, ("quarter_hour",), whole)
    assert len(quarters) == 8
    assert [row["cost"] for row in hours] == [Decimal("1.006")] * 2
    assert sum(row["cost"] for row in quarters) == Decimal("2.012")


def test_a_node_out_of_service_costs_nothing_more(priced: Engine) -> None:
    with priced.begin() as connection:
        assert end_service(connection, "http://engine", T0 + timedelta(minutes=10)) == 1
    close_due(priced, T0 + timedelta(hours=2))
    with priced.connect() as connection:
        windows = ledger_windows(connection, Window(T0, T0 + timedelta(hours=2)))
    assert [w["capacity_cost"] for w in windows] == [Decimal("0.167666666667")]


def test_the_same_inventory_twice_is_one_entry_and_other_gpus_end_it(priced: Engine) -> None:
    with priced.begin() as connection:
        assert not declare_service(connection, service(T0 + timedelta(hours=1)), "test")
        bigger = NodeService(D, "http://engine", "node1", "A10G", 4, T0 + timedelta(minutes=15))
        assert declare_service(connection, bigger, "test")
    close_due(priced, T0 + timedelta(hours=1))
    with priced.connect() as connection:
        windows = ledger_windows(connection, Window(T0, T0 + timedelta(minutes=30)))
    assert [w["capacity_cost"] for w in windows] == [Decimal("0.2515"), Decimal("1.006")]


@pytest.mark.parametrize(("gpu_type", "count", "field"), [("", 1, "gpu_type"), ("A10G", 0, "gpu_count")])
def test_an_inventory_names_and_counts_its_gpus(db: Engine, gpu_type: str, count: int, field: str) -> None:
    with db.begin() as connection, pytest.raises(BadInput) as error:
        declare_service(connection, NodeService(D, "t", "n", gpu_type, count, T0), "test")
    assert error.value.field == field


def test_unit_costs_on_both_bases(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection, input_uncached=1_000, input_cache_read=500, output=100)
        use(connection, team="ads", input_uncached=3_000, input_cache_read=0, output=0, requests=0)
        engine_runs(connection, prompt_tokens=300, prompt_tokens_cached=34, generation_tokens=7)
    close_due(priced, LATER)
    with priced.connect() as connection:
        (usage,) = unit_cost_rows(connection, ("deployment",), WINDOW, "usage")
        (whole,) = unit_cost_rows(connection, ("deployment",), WINDOW, "allocation")
        teams = {r["team"]: r for r in unit_cost_rows(connection, ("team",), WINDOW, "usage")}
    assert (usage["cost"], whole["cost"]) == (Decimal("0.12575"), Decimal("0.2515"))
    assert whole["blended_per_mtok"] == (Decimal("0.2515") * 1_000_000 / 4_605).quantize(Decimal("1e-12"))
    assert usage["input_cached_per_mtok"] < usage["input_per_mtok"] < usage["output_per_mtok"]
    assert usage["meta"]["price_source"] == "test card (list)"
    assert usage["meta"]["utilisation_source"] == "share of time with running > 0"
    assert usage["meta"]["coverage"] == Decimal("0.998914")
    assert teams["ads"]["per_request"] is None
    assert teams["ads"]["reasons"]["per_request"] == "no requests in closed, priced windows"
    assert sum(r["cost"] for r in teams.values()) == usage["cost"]


def test_unknown_keys_and_bases_are_refused_by_name(priced: Engine) -> None:
    with priced.connect() as connection:
        with pytest.raises(BadInput, match="colour"):
            unit_cost_rows(connection, ("colour",), WINDOW, "usage")
        with pytest.raises(BadInput, match="basis"):
            unit_cost_rows(connection, (), WINDOW, "guess")  # type: ignore[arg-type]


def test_money_days_follow_the_reporting_zone(priced: Engine) -> None:
    at = datetime(2026, 11, 30, 16, tzinfo=UTC)
    with priced.begin() as connection:
        use(connection, at)
    close_due(priced, at + timedelta(hours=1))
    with priced.connect() as connection:
        rows = ledger_rows(connection, ("day",), Window(at, at + QUARTER_HOUR), zone_name="Asia/Shanghai")
    assert [row["day"].astimezone(UTC) for row in rows] == [datetime(2026, 11, 30, 16, tzinfo=UTC)]


def test_rates_come_back_as_they_went_in(db: Engine) -> None:
    rates = [a10g(), a10g("0.9", T0), a10g("8.1", T0, "CNY")]
    with db.begin() as connection:
        add_rates(connection, rates, T0)
        assert list(read_rates(connection)) == rates


def test_two_closers_at_once_close_each_window_once(priced: Engine) -> None:
    with priced.begin() as connection:
        for n in range(4):
            use(connection, T0 + n * QUARTER_HOUR)
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda _: close_due(priced, T0 + timedelta(hours=2)), range(2)))
    assert sum(report.closed for report in reports) == 7
    assert all(report.reclosed == 0 and report.failures == [] for report in reports)
    with priced.connect() as connection:
        assert [row["version"] for row in ledger_windows(connection, Window(T0, T0 + timedelta(hours=2)))] == [1] * 7


def test_a_restatement_moves_the_newest_reading_and_no_earlier_one(priced: Engine) -> None:
    with priced.begin() as connection:
        use(connection)
        engine_runs(connection)
    close_due(priced, LATER)
    with priced.begin() as connection:
        import_rates(connection, [a10g("2.012", T0)], LATER)
    close_due(priced, LATER + timedelta(minutes=1))
    with priced.connect() as connection:
        costs = [ledger_rows(connection, (), WINDOW, as_of=at)[0]["cost"] for at in (LATER, LATER + timedelta(minutes=1))]
    assert costs == [Decimal("0.2515"), Decimal("0.503")]

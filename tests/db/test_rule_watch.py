"""Rules over a real database: baselines, verdicts, alerts and their messages, late rows, catching up, prices, restarts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from rule_world import BLUE, DEPLOYMENT, NOW, RED, STEP, only, pass_time, price, rows, run_engine, steady, use
from sqlalchemy import Engine, text

from control.rule_watch import watch_rules
from control.rules import answer_alert, remove_rule, seed_rules, switch_rule
from core.rule_metrics import METRICS
from core.windows import Window
from models.decision_price_repo import decision_prices, hold_prices
from models.rule_repo import list_rules, read_states
from models.rule_series import SUMS, read_points

pytestmark = pytest.mark.db
HOUR = timedelta(hours=1)
T = NOW.replace(minute=0)
SPEND = {
    "metric": "spend_rate", "scope": "each:team", "for": "10m", "recover": "15m", "severity": "warning",
    "detector": {"kind": "percentile", "banded": False, "lookback": "7d", "min_windows": 200},
}  # fmt: skip


def shown(db: Engine) -> dict[str, str]:
    with db.connect() as connection:
        return {state.scope: state.shown for state in read_states(connection, "mine")}


def test_a_tenant_that_spends_three_times_its_usual_fires_alone_and_recovers(db: Engine) -> None:
    steady(db)
    only(db, **SPEND)
    use(db, T, T + 3 * HOUR)
    use(db, T + HOUR, T + 2 * HOUR, teams=("red",), requests=40, input=80_000, output=8_000)
    reports = pass_time(db, NOW, NOW + 3 * HOUR)
    events = [event for report in reports for event in report.events]
    assert events == [("mine", RED, "fired"), ("mine", RED, "recovered")]
    alert = rows(db, "SELECT scope, window_start, fired_at, recovered_at, at_risk > 0, currency FROM alert")
    assert alert == [(RED, T + HOUR, T + HOUR + 2 * STEP, T + 2 * HOUR + 3 * STEP, True, "USD")]
    told = rows(db, "SELECT key, payload ->> 'event', payload ->> 'severity' FROM outbox WHERE kind = 'notify' ORDER BY id")
    assert told == [(f"rule:mine:{RED}:1", "fired", "warning"), (f"rule:mine:{RED}:2", "recovered", "warning")]
    assert shown(db) == {RED: "OK", BLUE: "OK"}


def test_another_pass_over_the_same_windows_and_late_rows_judge_nothing_again(db: Engine) -> None:
    steady(db)
    only(db, **SPEND)
    use(db, T, T + HOUR)
    pass_time(db, NOW, NOW + HOUR)
    before = rows(db, "SELECT rule, scope, epoch, window_end, verdict FROM rule_state ORDER BY scope")
    use(db, T + 10 * STEP, T + 11 * STEP, teams=("red",), requests=4000, input=8_000_000)
    assert watch_rules(db, NOW + HOUR).windows == 0
    assert rows(db, "SELECT rule, scope, epoch, window_end, verdict FROM rule_state ORDER BY scope") == before


def test_while_the_stream_catches_up_nothing_is_judged(db: Engine) -> None:
    steady(db)
    only(db, **SPEND)
    with db.begin() as connection:
        behind = (
            "INSERT INTO stream_state (topic, catching_up, log_lines, read_lines, updated_at) VALUES ('usage', true, 9, 1, :n)"
        )
        connection.execute(text(behind), {"n": NOW})
    assert watch_rules(db, NOW).held
    assert shown(db) == {}
    with db.begin() as connection:
        connection.execute(text("UPDATE stream_state SET catching_up = false, read_lines = 9"))
    assert watch_rules(db, NOW).windows == 2


def test_a_short_history_is_no_data_and_says_what_is_missing(db: Engine) -> None:
    steady(db, days=0)
    use(db, T - HOUR, T)
    only(db, **SPEND)
    pass_time(db, NOW, NOW + HOUR)
    assert set(shown(db).values()) == {"NO_DATA"}
    assert "needed" in str(rows(db, "SELECT verdict ->> 'reason' FROM rule_state")[0])


def test_a_new_price_moves_no_verdict_and_is_told(db: Engine) -> None:
    """Every window, old and new, is priced anew: nothing fires, though an hour costs ten times as much."""
    steady(db)
    only(db, metric="unit_cost", **{"for": "5m"}, detector={"kind": "percentile", "min_windows": 200})
    use(db, T, T + 2 * HOUR)
    run_engine(db, T, T + 2 * HOUR)
    pass_time(db, NOW, NOW + HOUR)
    price(db, at=T + HOUR, capacity="9")
    reports = pass_time(db, NOW + HOUR + STEP, NOW + 2 * HOUR)
    assert [event for report in reports for event in report.events] == []
    assert shown(db) == {DEPLOYMENT: "OK"}
    told = rows(db, "SELECT payload ->> 'what', payload ->> 'severity' FROM outbox")
    assert told == [("decision_price", "notice")]


def test_a_dearer_token_fires_on_the_deployment(db: Engine) -> None:
    steady(db)
    only(db, metric="unit_cost", **{"for": "5m"}, detector={"kind": "percentile", "min_windows": 200})
    use(db, T, T + HOUR)
    run_engine(db, T, T + HOUR, busy=250_000_000)
    events = [event for report in pass_time(db, NOW, NOW + HOUR) for event in report.events]
    assert events == [("mine", DEPLOYMENT, "fired")]
    assert rows(db, "SELECT why -> 'causes' FROM alert") == [([],)]


def test_the_team_with_more_work_of_its_own_is_named_in_the_alert_and_its_message(db: Engine) -> None:
    steady(db)
    only(db, metric="unit_cost", **{"for": "5m"}, detector={"kind": "percentile", "min_windows": 200})
    use(db, T, T + HOUR, teams=("blue",))
    use(db, T, T + HOUR, teams=("red",), input=8_000_000_000)
    run_engine(db, T, T + HOUR, busy=250_000_000)
    pass_time(db, NOW, NOW + 3 * STEP)
    assert rows(db, "SELECT why -> 'causes' FROM alert") == [([RED],)]
    assert rows(db, "SELECT payload -> 'why' -> 'causes' FROM outbox WHERE payload ->> 'event' = 'fired'") == [([RED],)]


@pytest.mark.parametrize(("min_money", "fires"), [("0.000001", True), ("5", False)])
def test_too_little_money_is_no_alert(db: Engine, min_money: str, fires: bool) -> None:
    steady(db)
    only(db, **SPEND, min_money=min_money)
    use(db, T, T + HOUR, teams=("red",), input=400_000)
    reports = pass_time(db, NOW, NOW + HOUR)
    assert bool([event for report in reports for event in report.events]) == fires


def test_a_rule_in_shadow_keeps_its_alerts_and_tells_nobody(db: Engine) -> None:
    steady(db)
    only(db, **{**SPEND, "shadow": True})
    use(db, T, T + HOUR, teams=("red",), input=400_000)
    pass_time(db, NOW, NOW + HOUR)
    assert rows(db, "SELECT shadow FROM alert") == [(True,)]
    assert rows(db, "SELECT count(*) FROM outbox") == [(0,)]


def test_hours_of_an_alert_are_in_no_baseline_unless_a_person_says_they_are_usual(db: Engine) -> None:
    steady(db)
    only(db, **SPEND)
    use(db, T, T + 9 * HOUR, teams=("red",), input=400_000)
    pass_time(db, NOW, NOW + HOUR)
    first = rows(db, f"SELECT baseline -> 'windows' FROM rule_state WHERE scope = '{RED}'")
    watch_rules(db, NOW + 7 * HOUR)
    apart = rows(db, f"SELECT baseline -> 'windows' FROM rule_state WHERE scope = '{RED}'")
    with db.begin() as connection:
        answer_alert(connection, 1, "ignore", "ann", "the new product", NOW + 8 * HOUR)
        connection.execute(text("UPDATE rule_state SET basis = 'again'"))
    watch_rules(db, NOW + 8 * HOUR)
    usual = rows(db, f"SELECT baseline -> 'windows' FROM rule_state WHERE scope = '{RED}'")
    assert apart < first
    assert usual > apart


def test_a_rule_switched_off_ends_its_alerts_and_a_removed_one_stays_away(db: Engine) -> None:
    steady(db)
    only(db, **SPEND)
    use(db, T, T + 2 * HOUR, teams=("red",), input=400_000)
    pass_time(db, NOW, NOW + HOUR)
    with db.begin() as connection:
        switch_rule(connection, "mine", False, "ann", NOW + HOUR)
    assert rows(db, "SELECT count(*) FROM alert WHERE recovered_at IS NULL") == [(0,)]
    with db.begin() as connection:
        switch_rule(connection, "mine", True, "ann", NOW + HOUR)
    pass_time(db, NOW + HOUR, NOW + 2 * HOUR)
    assert rows(db, "SELECT array_agg(epoch ORDER BY epoch) FROM alert") == [([1, 3],)]
    with db.begin() as connection:
        remove_rule(connection, "mine", "ann", NOW)
        assert seed_rules(connection, NOW) == 0
        assert list_rules(connection) == []


def test_one_rules_failure_stops_no_other(db: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    steady(db)
    monkeypatch.setitem(SUMS, "kv_use", ("1 / 0", "1", 1.0))  # type: ignore[misc]
    report = watch_rules(db, NOW)
    assert set(report.failed) == {"kv-pressure"}
    assert report.windows > 0


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scope", ["each:deployment", "each:org", "each:team", "tenant:acme", DEPLOYMENT])
def test_every_metric_is_read_of_every_scope_it_is_of(db: Engine, metric: str, scope: str) -> None:
    kind = "deployment" if "deployment" in scope else "tenant"
    if kind not in METRICS[metric].scopes:
        pytest.skip("is not measured of this kind of scope")
    steady(db, days=1)
    with db.begin() as connection:
        hold_prices(connection, NOW)
        prices = decision_prices(connection)
        found = read_points(connection, metric, scope, Window(T - 2 * HOUR, T), max(STEP, METRICS[metric].step), prices)
    measured = METRICS[metric].source != "length"
    assert bool(found) == measured
    for scope_points in found.values():
        assert len(scope_points.points) == 24


@pytest.mark.parametrize(
    ("metric", "scope", "value"),
    [
        ("requests", RED, 4.0),
        ("tokens_per_request", RED, 2200.0),
        ("output_per_request", DEPLOYMENT, 200.0),
        ("failed_share", RED, 0.0),
        ("cached_share", RED, 0.0),
        ("kv_use", DEPLOYMENT, 0.3),
        ("idle_share", DEPLOYMENT, 2 / 3),
        ("batch_gap", DEPLOYMENT, 2.0),
        ("unit_cost", DEPLOYMENT, 0.9 / 900 * 100 / 0.088),
        ("spend_rate", RED, 0.0000005 * 80_000 * 12),
        ("tenant_unit_cost", RED, 0.0000005 * 80_000 / 0.044),
    ],
)
def test_metrics_have_the_unit_they_say(db: Engine, metric: str, scope: str, value: float) -> None:
    steady(db, days=1)
    with db.begin() as connection:
        hold_prices(connection, NOW)
        found = read_points(connection, metric, scope, Window(T - HOUR, T), STEP, decision_prices(connection))
    values = [p.value for p in found[scope].points if p.value is not None]
    assert sum(values) / len(values) == pytest.approx(value, rel=0.05)


def test_work_without_a_price_has_no_cost(db: Engine) -> None:
    use(db, T - HOUR, T)
    with db.begin() as connection:
        found = read_points(connection, "spend_rate", RED, Window(T - HOUR, T), STEP, ())
    assert {p.value for p in found[RED].points} == {None}

"""`tokenfuse rules` and the back-test as a person uses them, over a real database."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from rule_world import DEPLOYMENT, NOW, RED, only, pass_time, price, rows, run_engine, steady, use
from sqlalchemy import Engine

from cli.main import main
from control.rule_backtest import backtest
from control.rule_files import shipped_rules
from core.rules import rule_from
from core.windows import Window

pytestmark = pytest.mark.db
HOUR = timedelta(hours=1)
T = NOW.replace(minute=0)
SPEND = {
    "name": "mine", "metric": "spend_rate", "scope": "each:team", "for": "10m", "recover": "15m",
    "detector": {"kind": "percentile", "banded": False, "lookback": "3d", "min_windows": 200},
}  # fmt: skip


@pytest.fixture
def rules(db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0) -> Any:
        with pytest.raises(SystemExit) as left:
            main(["rules", *arguments, "--db", db_url, "--data-dir", str(tmp_path / "data")])
        out, err = capsys.readouterr()
        assert left.value.code == code, err
        return json.loads(out) if "--json" in arguments else out + err

    return call


def test_shipped_rules_are_there_before_anything_ran(rules: Any) -> None:
    listed = rules("list", "--json")
    assert [row["name"] for row in listed] == sorted(rule.name for rule in shipped_rules())
    assert {row["shadow"] for row in listed} == {True}
    assert "none seen yet" in rules("list")
    assert "source:" in rules("show", "kv-pressure")


def test_rules_go_out_and_come_back_as_yaml(rules: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    body = yaml.safe_load(rules("export", "kv-pressure"))
    body["rules"][0]["detector"]["fire"] = 0.9
    file.write_text(yaml.safe_dump(body))
    assert rules("set", str(file), "--dry-run", "--json") == [{"rule": "kv-pressure", "change": "changed"}]
    assert rules("set", str(file), "--json") == [{"rule": "kv-pressure", "change": "changed"}]
    assert rules("set", str(file), "--json") == [{"rule": "kv-pressure", "change": "none"}]
    assert rules("show", "kv-pressure", "--json")["detector"]["fire"] == 0.9


def test_faults_name_the_place(rules: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("rules:\n  - name: a\n    metric: gpu\n")
    assert "bad.yaml:2: metric: is not a metric (value 'gpu')" in rules("set", str(file), code=2)
    assert "there is no rule" in rules("enable", "nothing", code=1)
    file.write_text("time,value\n2026-11-02T00:00:00Z,x\n")
    assert "bad.yaml:2: value: is not a number" in rules("test", "kv-pressure", "--series", str(file), code=2)


def test_a_rule_is_switched_and_tried_on_a_file(rules: Any, tmp_path: Path) -> None:
    assert rules("enable", "hit-rate", "--json")[0]["enabled"] is True
    assert rules("tell", "kv-pressure", "--json")[0]["shadow"] is False
    file = tmp_path / "kv.csv"
    file.write_text("time,value\n" + "".join(f"2026-11-02T00:{n:02}:00Z,{0.9 if 5 <= n < 10 else 0.2}\n" for n in range(40)))
    found = rules("test", "kv-pressure", "--series", str(file), "--json")
    assert [(f["started_at"], f["fired_at"], f["recovered"]) for f in found["firings"]] == [
        ("2026-11-02T00:05:00Z", "2026-11-02T00:07:00Z", True)
    ]
    assert found["windows"] == 40


def test_a_backtest_says_how_often_whom_and_whether_it_may_be_enforced(db: Engine, rules: Any) -> None:
    steady(db)
    use(db, T - 30 * HOUR, T - 29 * HOUR, teams=("red",), requests=40, input=400_000)
    rule = rule_from(SPEND)
    week = Window(T - timedelta(days=4), T)
    with db.begin() as connection:
        plain = backtest(connection, rule, Window(T - timedelta(days=8), T), NOW)
        known = backtest(connection, rule, week, NOW, [Window(T - 30 * HOUR, T - 28 * HOUR)])
    assert [(f.scope, f.false, f.tenants) for f in plain.firings] == [(RED, True, (RED,))]
    assert (plain.false_trips_per_week, plain.offerable) == (Decimal("0.88"), True)
    assert plain.requests_refused == (40 + 20) * 10 + 20 * 3
    assert [f.false for f in known.firings] == [False]
    assert known.reason == "a back-test needs 7 days"
    told = rules("backtest", "spend-rate-tenant", "--from", "2026-11-20", "--to", "2026-11-27")
    assert "false trips a week" in told


def test_only_the_tenant_with_more_work_of_its_own_is_a_culprit(db: Engine) -> None:
    """The engine is busy three times as long for everybody; red alone did more."""
    price(db)
    start = T - timedelta(days=8)
    use(db, start, T)
    run_engine(db, start, T - 2 * HOUR)
    run_engine(db, T - 2 * HOUR, T, busy=300_000_000)
    rule = rule_from({**SPEND, "metric": "unit_cost", "scope": "each:deployment"})
    with db.begin() as connection:
        dearer = backtest(connection, rule, Window(T - timedelta(days=7), T), NOW)
    use(db, T - 2 * HOUR, T, teams=("red",), input=8_000_000_000)
    with db.begin() as connection:
        caused = backtest(connection, rule, Window(T - timedelta(days=7), T), NOW)
    assert [(f.scope, f.tenants) for f in dearer.firings] == [(DEPLOYMENT, ())]
    assert [(f.scope, f.tenants) for f in caused.firings] == [(DEPLOYMENT, (RED,))]


def test_alerts_are_listed_and_answered_with_a_reason(db: Engine, rules: Any) -> None:
    steady(db)
    only(db, **{key: value for key, value in SPEND.items() if key != "name"})
    use(db, T, T + HOUR, teams=("red",), input=800_000)
    pass_time(db, NOW, NOW + HOUR)
    window = ("--from", "2026-11-27", "--to", "2026-11-28")
    assert "still firing" in rules("alerts", *window)
    assert rules("ack", "1", "--reason", "we are at it", "--by", "ann", "--json")[0]["said"] == "acknowledged"
    assert rules("alerts", *window, "--json")[0]["person_reason"] == "we are at it"
    assert "there is no alert 9" in rules("ignore", "9", "--reason", "x", code=1)
    assert rows(db, "SELECT count(*) FROM audit WHERE action = 'alert.ack'") == [(1,)]

"""The demo's start: once prepared it keeps its place in time, whatever stopped the first load."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from cli.demo import load
from cli.demo.bill import demo_deliveries, load_bill
from cli.settings import Settings
from cli.settings import load as load_settings
from control.bill_reconcile import reconcile
from core.windows import Window
from models.billing_repo import deliveries
from models.node_charge_repo import read_node_charges

pytestmark = pytest.mark.db


@pytest.fixture
def settings(tmp_path: Path, db_url: str, db: Engine, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))
    return load_settings(data_dir=tmp_path, db_url=db_url)


def test_a_load_cut_short_is_begun_again_at_the_same_place(settings: Settings) -> None:
    first = load.prepare(settings, 2)
    assert first is not None
    assert load.prepare(settings, 30) == first


def test_a_loaded_demo_is_not_loaded_again(settings: Settings) -> None:
    demo = load.prepare(settings, 1)
    assert demo is not None
    assert load.load_history(settings, demo).requests > 0
    assert load.prepare(settings, 1) == demo
    load.mark_loaded(settings, demo)
    assert load.prepare(settings, 1) is None


def test_loading_twice_offers_the_same_requests(settings: Settings) -> None:
    demo = load.prepare(settings, 1)
    assert demo is not None
    once, twice = load.load_recording(settings, demo), load.load_recording(settings, demo)
    assert once == twice


def test_the_generated_bills_are_the_historys_machines_and_are_imported_once(settings: Settings, db: Engine) -> None:
    demo = load.prepare(settings, 40)
    assert demo is not None
    once, twice = load_bill(settings, demo.history), load_bill(settings, demo.history)
    assert once == twice
    assert once.deliveries >= 2
    with db.connect() as connection:
        bills = deliveries(connection, every=True)
        charges = read_node_charges(connection, demo.history)
        (first, *_) = reconcile(connection)
    assert len(bills) == once.deliveries
    assert bills[0].is_final
    assert all(bill.export.startswith("generated-") for bill in bills)
    assert {charge.node for charge in charges} == {"gpu-a", "gpu-b"}
    assert (first["difference"], first["state"]) == (0, "final")


@pytest.mark.parametrize(
    ("start", "end", "finals"),
    [
        ("2026-11-04T02:00:00Z", "2026-12-04T02:00:00Z", [True, False]),
        ("2026-11-01T02:00:00Z", "2026-12-01T02:00:00Z", [True]),
        ("2026-12-02T02:00:00Z", "2026-12-03T02:00:00Z", [False]),
        ("2026-12-01T02:00:00Z", "2026-12-01T04:00:00Z", []),
    ],
)
def test_ended_months_are_final_and_the_running_one_reaches_until_yesterday(start: str, end: str, finals: list[bool]) -> None:
    history = Window(datetime.fromisoformat(start), datetime.fromisoformat(end))
    found = demo_deliveries(history)
    assert [bool(one.invoice) for one in found] == finals
    assert all(one.until <= history.end for one in found)

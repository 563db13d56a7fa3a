"""``tokenfuse costbook issue``: own racks close as a cloud does: delivery, machines, ledger, versions, invoice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cli_command import Command
from sqlalchemy import Engine, insert, text

from core.capacity import NodeService
from core.money import money
from core.rates import Rate
from core.usage import Deployment
from models.rates_repo import add_rates, declare_service
from models.tables import GpuHourRow

pytestmark = pytest.mark.db
JULY = datetime(2026, 7, 1, tzinfo=UTC)
BOOK = """version: cost-book/1
name: racks
issuer: Example GmbH
currency: EUR
assets:
  - id: dgx-1
    nodes: [gpu-01]
    cluster: lab
    gpu_type: H100-80GB
    gpus: 2
    price: "111600"
    in_service_from: 2026-01-15
    useful_life_months: 60
costs:
  - {id: colo, kind: rent, monthly: "620", from: 2026-01-01, vat_percent: "19"}
  - {id: admin, kind: staff, monthly: "310", from: 2026-01-01, spread: none}
power:
  - {id: rack-7, nodes: [gpu-01], meter: declared, site: rack-7, kwh: {2026-07: "1488"}}
"""


@pytest.fixture
def tariff(db: Engine) -> None:
    with db.begin() as connection:
        kwh = Rate("kwh", "rack-7", money("0.25", "EUR"), "contracted", "supply contract", JULY - timedelta(days=400))
        pue = Rate("pue", "rack-7", money("1.25", "XXX"), "effective", "measured 2026", JULY - timedelta(days=400))
        add_rates(connection, [kwh, pue], JULY)


def issue(command: Command, folder: Path, body: str = BOOK, *more: str, month: str = "2026-07") -> tuple[int, Any, str]:
    path = folder / "book.yaml"
    path.write_text(body)
    return command("costbook", "issue", str(path), "--month", month, *more)


def test_a_month_is_a_bill_of_machines_costs_and_taxes(command: Command, tmp_path: Path, tariff: None) -> None:
    """1860 depreciation, 620 rent and 1488 kWh × 0.25 × 1.25 on the node; 310 staff on nobody; 19 % of 620 as tax."""
    code, done, error = issue(command, tmp_path)
    assert code == 0, error
    assert done["by_kind"] == {"depreciation": "1860", "rent": "620", "staff": "310", "power": "465", "tax": "117.8"}
    assert done["by_node"] == {"": "310", "gpu-01": "2945"}
    (bill,) = done["imported"]
    assert (bill["source"], bill["export"], bill["version"], bill["is_final"]) == ("costbook", "racks", 1, False)
    _, rows, _ = command("show", "charges", "--by", "bucket")
    assert {row["bucket"]: (row["billed_cost"], row["effective_cost"]) for row in rows} == {
        "gpu": ("2945", "2945"), "non_gpu": ("310", "310"), "tax": ("117.8", "117.8"),
    }  # fmt: skip
    _, rows, _ = command("show", "charges", "--by", "resource_id,instance_type", "--from", "2026-07-02", "--to", "2026-07-03")
    node = next(row for row in rows if row["resource_id"] == "gpu-01")
    assert (node["instance_type"], node["billed_cost"], node["hours"]) == ("2x H100-80GB", "95", "24")


def test_an_invoice_of_two_nodes_has_no_dust(command: Command, db: Engine, tmp_path: Path) -> None:
    """1000 kWh × 0.24 × 1.28 over two nodes and 31 days is 307.20, and the bill's total is what the entries say."""
    with db.begin() as connection:
        since = JULY - timedelta(days=400)
        kwh = Rate("kwh", "rack-7", money("0.24", "EUR"), "contracted", "supply contract", since)
        add_rates(connection, [kwh, Rate("pue", "rack-7", money("1.28", "XXX"), "effective", "measured", since)], JULY)
    body = BOOK.replace("[gpu-01]", "[gpu-01, gpu-02]").replace('{2026-07: "1488"}', '{2026-07: "1000"}')
    _, done, _ = issue(command, tmp_path, body)
    assert done["by_kind"]["power"] == "307.2"
    assert done["imported"][0]["totals"][0]["billed"] == "3215"  # 1860 + 620 + 310 + 307.20 + 117.80
    code, shown, _ = command("show", "charges", "--by", "source")
    assert (code, [row["billed_cost"] for row in shown]) == (0, ["3215"])
    _, out, _ = command("costbook", "issue", str(tmp_path / "book.yaml"), "--month", "2026-07", as_json=False)
    assert [line.split()[1] for line in out.splitlines() if "gpu-0" in line] == ["1393.6", "1393.6"]


def test_the_ledger_closes_on_it(command: Command, db: Engine, tmp_path: Path, tariff: None) -> None:
    """One of two GPUs served for two hours of a day that cost 95 for the node: 95 / 24 / 2 an hour; the other is unassigned."""
    with db.begin() as connection:
        at = datetime(2026, 7, 2, 10, tzinfo=UTC)
        d = Deployment("lab", "prod", "m")
        declare_service(connection, NodeService(d, "t", "gpu-01", "H100-80GB", 1, at, at + timedelta(hours=2)), "test")
    issue(command, tmp_path)
    assert command("ledger", "close")[0] == 0
    _, shown, _ = command("ledger", "show", "--from", "2026-07-02", "--to", "2026-07-03")
    (total,) = shown["totals"]
    assert (total["currency"], total["difference"]) == ("EUR", "0")
    assert abs(Decimal(total["capacity_cost"]) - Decimal(95) / 24) < Decimal("1e-10")
    with db.connect() as connection:
        rows = connection.execute(
            text("SELECT sum(effective), max(gpus), sum(hours) FROM node_charge WHERE node = 'gpu-01'")
        ).one()
    assert tuple(rows) == (Decimal(2945), 2, Decimal(744))


def test_the_same_again_changes_nothing_and_a_change_is_restated(command: Command, tmp_path: Path, tariff: None) -> None:
    issue(command, tmp_path)
    assert issue(command, tmp_path)[1]["imported"][0]["status"] == "unchanged"
    dearer = BOOK.replace('monthly: "620"', 'monthly: "651"')
    _, dry, _ = issue(command, tmp_path, dearer, "--dry-run")
    assert (dry["imported"][0]["status"], dry["imported"][0]["restated"][0]["billed"]) == ("dry run", "36.89")
    _, again, _ = issue(command, tmp_path, dearer)
    assert (again["imported"][0]["version"], again["imported"][0]["restated"][0]["billed"]) == (2, "36.89")
    _, back, _ = issue(command, tmp_path)
    assert back["imported"][0]["restated"][0]["billed"] == "-36.89"
    _, bills, _ = command("show", "bills")
    assert [(bill["version"], bill["totals"][0]["billed"]) for bill in bills] == [(3, "3372.8")]


def test_final_under_an_invoice(command: Command, tmp_path: Path, tariff: None) -> None:
    code, done, error = issue(command, tmp_path, BOOK, "--final", "--invoice-id", "2026-07-R1")
    assert code == 0, error
    assert (done["imported"][0]["is_final"], done["imported"][0]["invoice_ids"]) == (True, ["2026-07-R1"])
    code, _, error = issue(command, tmp_path)
    assert (code, "2026-07 is final (invoice 2026-07-R1)" in error) == (1, True)
    code, done, _ = issue(command, tmp_path, BOOK.replace('"310"', '"341"'), "--final", "--invoice-id", "2026-07-R2")
    assert (code, done["imported"][0]["version"]) == (0, 2)
    actions = [record["action"] for record in command("audit", "list")[1]]
    assert actions.count("costbook.issue") == 2


def test_of_the_running_month_the_days_that_are_over(
    command: Command, tmp_path: Path, tariff: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.commands.costbook.utc_now", lambda: datetime(2026, 7, 11, 9, tzinfo=UTC))
    _, part, _ = issue(command, tmp_path)
    assert (part["until"], part["by_kind"]["rent"], part["by_kind"]["power"]) == ("2026-07-11", "200", "150")
    code, _, error = issue(command, tmp_path, BOOK, "--final", "--invoice-id", "X")
    assert (code, "is not over yet" in error) == (1, True)
    code, _, error = issue(command, tmp_path, month="2026-08")
    assert (code, "no day of this month is over yet" in error) == (2, True)
    monkeypatch.setattr("cli.commands.costbook.utc_now", lambda: datetime(2026, 8, 1, 9, tzinfo=UTC))
    _, whole, _ = issue(command, tmp_path)
    (restated,) = whole["imported"][0]["restated"]
    assert (restated["changed"], restated["removed"]) == (0, 0)  # what was issued stands


def test_measured_power_and_what_was_not_measured(command: Command, db: Engine, tmp_path: Path, tariff: None) -> None:
    """Two hours of 0.5 kWh are measured; the other 742 are named, and hold up --final until that is accepted."""
    body = BOOK.replace('meter: declared, site: rack-7, kwh: {2026-07: "1488"}', "meter: gpus, site: rack-7")
    hour = 3_600_000_000
    with db.begin() as connection:
        key = {"cluster": "lab", "node": "gpu-01", "gpu_model": "H100", "mig": "", "pods": ""}
        seen = {"energy_uj": 900_000_000_000, "energy_seen_us": hour, "observed_us": hour}
        rows = [{**key, "hour": JULY + timedelta(hours=n), "gpu": gpu, **seen} for n in (0, 1) for gpu in ("a", "b")]
        connection.execute(insert(GpuHourRow), rows)
    _, done, _ = issue(command, tmp_path, body)
    assert done["by_kind"]["power"] == "0.31"
    assert done["unmeasured"] == ["rack-7: gpu-01: 742 of 744 hours were not measured"]
    final = ("--final", "--invoice-id", "R")
    code, _, error = issue(command, tmp_path, body, *final)
    assert (code, "742 of 744 hours" in error) == (1, True)
    assert issue(command, tmp_path, body, *final, "--accept", "unmeasured")[0] == 0


def test_a_kwh_without_a_tariff_stops_the_issue(command: Command, tmp_path: Path) -> None:
    code, _, error = issue(command, tmp_path)
    assert (code, "no tariff for 48 kWh of gpu-01 in the hours from 2026-07-01" in error) == (2, True)
    assert command("show", "bills")[1] == []


def test_people_read_it(command: Command, tmp_path: Path, tariff: None) -> None:
    path = tmp_path / "book.yaml"
    path.write_text(BOOK)
    code, out, error = command("costbook", "issue", str(path), "--month", "2026-07", as_json=False)
    assert code == 0
    assert "racks 2026-07" in out
    assert "costbook racks 2026-07 version 1: current" in error


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cost-book/1", "cost-book/2", "book.yaml:1: version: must be cost-book/1"),
        ('price: "111600"', 'price: "much"', "book.yaml:11: price: not a decimal number"),
        ("gpus: 2", "gpus: two", "book.yaml:10: gpus: must be a whole number"),
        ("in_service_from: 2026-01-15", "in_service_from: soon", "book.yaml:12: in_service_from: is no day"),
        ("    useful_life_months: 60\n", "", "book.yaml:6: useful_life_months: is missing in this asset"),
        ("kind: rent", "kind: rental", "kind: must be one of rent, support"),
        ('monthly: "620"', 'monthly: "-620"', "book.yaml:15: monthly: must not be negative (value '-620')"),
        ('price: "111600"', 'price: "-1"', "book.yaml:11: price: must not be negative (value '-1')"),
        ('{2026-07: "1488"}', '{2026-07: "-5"}', "book.yaml:18: kwh: must not be negative (value '-5')"),
        ("spread: none", "spread: all", "book.yaml:16: spread: must be one of gpus, nodes, none"),
        ("[gpu-01], meter", "[gpu-02], meter", "nodes: is no node of an asset"),
        ("currency: EUR", "currency: euro", "book.yaml:4: currency: must be a three-letter"),
        ("name: racks", "name: ../racks", "book.yaml:2: name: may hold letters"),
        ("{2026-07:", "{July:", "kwh: is no month"),
        ("power:", "energy:", "energy: unknown field"),
    ],
)
def test_a_wrong_book_is_named(command: Command, tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in BOOK
    code, _, error = issue(command, tmp_path, BOOK.replace(old, new))
    assert code == 2
    assert said in error


def test_final_needs_an_invoice_id(command: Command, tmp_path: Path) -> None:
    assert issue(command, tmp_path, BOOK, "--final")[0] == 2
    assert issue(command, tmp_path, BOOK, "--invoice-id", "X")[0] == 2

"""A cost book's month as a FOCUS delivery: valid by the specification's rules, each amount once, machines by what they hold."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from focus_rules import FocusChecker

from core.book_power import Prices, known_energy, power_lines
from core.cost_book import BookLine, month_lines
from core.money import money, total
from core.rates import Rate
from ingest.billing.cost_book import parse_cost_book
from ingest.billing.cost_book_bill import COLUMNS, write_delivery
from ingest.billing.instance_types import instance_type

JULY, AUGUST = date(2026, 7, 1), date(2026, 8, 1)
CRITERIA = ("ACCOUNT_NAMING_SUPPORTED", "RESOURCE_TYPE_ASSIGNMENT_SUPPORTED", "TAGGING_SUPPORTED", "USAGE_MEASUREMENT_SUPPORTED")
NUMBERS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "ConsumedQuantity", "PricingQuantity")
FILE = parse_cost_book(b"""
version: cost-book/1
name: racks
issuer: Example GmbH
currency: EUR
assets:
  - {id: dgx-1, nodes: [n1], cluster: lab, gpu_type: H100-80GB, gpus: 8, price: "260000", in_service_from: 2026-01-15,
     useful_life_months: 60}
costs:
  - {id: colo, kind: rent, monthly: "4200", from: 2026-01-01, vat_percent: "19"}
  - {id: admin, kind: staff, monthly: "2500", from: 2026-01-01, spread: none}
power:
  - {id: rack-7, nodes: [n1], meter: declared, site: rack-7, kwh: {2026-07: "7440"}}
""")


def lines() -> list[BookLine]:
    kwh = Rate("kwh", "rack-7", money("0.2", "EUR"), "contracted", "contract", datetime.fromisoformat("2026-01-01T00:00:00Z"))
    (entry,) = FILE.power
    energy = known_energy(FILE.book, entry, JULY, AUGUST).energy
    power = power_lines(entry, energy, Prices([kwh], "EUR"), AUGUST)
    return [*month_lines(FILE.book, JULY, AUGUST).lines, *power]


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, Any]]:
    """The delivery's rows, typed as its columns are."""
    path = tmp_path / "july.csv"
    assert write_delivery(path, FILE.book, JULY, lines(), "2026-07-R1") == len(lines())
    with path.open(encoding="utf-8", newline="") as file:
        return [dict(_typed(row)) for row in csv.DictReader(file)]


def _typed(row: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for name, cell in row.items():
        if not cell:
            yield name, None
        elif name in NUMBERS:
            yield name, Decimal(cell)
        else:
            yield name, datetime.fromisoformat(cell) if name.endswith(("PeriodStart", "PeriodEnd")) else cell


def test_no_row_breaks_a_rule_of_the_specification(rows: list[dict[str, Any]]) -> None:
    """Taxes apart: the model judges their empty pricing cells without the condition above them ("when not null"). Units of power
    apart: the list of units that SHOULD be used knows no kWh."""
    judged = [row for row in rows if row["ChargeCategory"] != "Tax"]
    checked = FocusChecker([row for row in judged if row["ConsumedUnit"] != "kWh"], COLUMNS, CRITERIA).run()
    assert checked.failed == []
    assert checked.count("pass") > 200
    power = FocusChecker([row for row in judged if row["ConsumedUnit"] == "kWh"], COLUMNS, CRITERIA).run()
    leaves = [reason for reason in power.failed if "children failed" not in reason]
    assert {reason.partition("-")[0] for reason in leaves} == {"ConsumedUnit", "PricingUnit"}


def test_each_amount_stands_once_on_every_basis(rows: list[dict[str, Any]]) -> None:
    for column in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert total(row[column] for row in rows) == total(line.amount for line in lines())


def test_a_machines_day_counts_its_hours_once(rows: list[dict[str, Any]]) -> None:
    hours = [row["ConsumedQuantity"] for row in rows if row["ConsumedUnit"] == "Hours"]
    assert hours == [Decimal(24)] * 31
    kwh = total(row["ConsumedQuantity"] for row in rows if row["ConsumedUnit"] == "kWh")
    assert kwh == 7440


def test_a_machine_is_named_by_what_it_holds(rows: list[dict[str, Any]]) -> None:
    node = next(row for row in rows if row["ResourceId"] == "n1")
    details = json.loads(node["SkuPriceDetails"])
    assert details == {"InstanceType": "8x H100-80GB", "GpuCount": 8}
    machine = instance_type("own-racks", details["InstanceType"])
    assert machine is not None
    assert (machine.gpu, machine.gpus) == ("H100-80GB", 8)
    assert json.loads(node["Tags"])["cluster"] == "lab"


@pytest.mark.parametrize("name", ["H100-80GB", "0x H100", "8 x H100", ""])
def test_another_name_is_no_machine_of_own_racks(name: str) -> None:
    assert instance_type("own-racks", name) is None

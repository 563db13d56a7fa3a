"""Ledger lines as FOCUS 1.2 rows: sums, units, names, and the specification's own rules."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from focus_rules import MISWRITTEN, FocusChecker, model
from focus_samples import ISSUER, START, origins, rows, sample_rows
from hypothesis import given, settings

from core.focus_rows import COLUMNS, CRITERIA, Origin, Part, allocated_rows, origin_row, spreadsheet_safe
from core.money import total
from core.usage import Deployment
from core.windows import Window

Case = tuple[Origin, list[Part]]


@given(origins())
@settings(max_examples=100, deadline=None)
def test_each_amount_stands_once(case: Case) -> None:
    origin, parts = case
    made = rows(origin, parts)
    for column in ("BilledCost", "EffectiveCost", "ContractedCost"):
        assert total(row[column] for row in made) == origin.cost  # type: ignore[misc]
    assert total(row["x_CostWithIdle"] for row in made[1:]) == origin.cost  # type: ignore[misc]
    assert (made[0]["x_OriginCost"], made[0]["EffectiveCost"]) == (origin.cost, 0)
    assert {row["x_OriginId"] for row in made} == {origin.id}


@given(origins())
@settings(max_examples=60, deadline=None)
def test_no_row_breaks_a_rule_of_the_specification(case: Case) -> None:
    checked = FocusChecker(rows(*case), COLUMNS, CRITERIA).run()
    assert checked.failed == []


def test_what_of_the_rules_is_checked() -> None:
    """The counts are part of the claim: a rule that stops being judged changes them."""
    checked = FocusChecker(sample_rows(), COLUMNS, CRITERIA).run()
    assert checked.failed == []
    assert (len(model()), checked.count("pass"), checked.count("skipped")) == COUNTS
    assert dict(checked.skipped) == SKIPPED


COUNTS = (621, 232, 389)
SKIPPED = {
    "criterion does not hold": 26,
    "MAY: nothing to fail": 35,
    "no child was judged": 81,
    "column is not in the file": 68,
    "words alone, no machine form": 175,
    "the machine form contradicts the words": 4,
}


@pytest.mark.parametrize(
    ("column", "value", "rule"),
    [
        ("EffectiveCost", None, "EffectiveCost-C-003-M"),
        ("BillingCurrency", "usd", "BillingCurrency-C-006-M"),
        ("ChargeCategory", "Use", "ChargeCategory-C-003-M"),
        ("ConsumedUnit", None, "ConsumedUnit-C-006-C"),
        ("SubAccountName", None, "SubAccountName-C-005-C"),
        ("Tags", "{'a': 1}", "Tags-C-001-M"),
        ("ServiceCategory", "Compute", "ServiceSubcategory-C-004-M"),
        ("ChargeClass", "Restated", "ChargeClass-C-005-C"),
        ("ProviderName", "", "ProviderName-C-002-M"),
        ("PricingUnit", "1e6 tokens", "PricingUnit-C-003-O"),
        ("SkuId", "another", "SkuPriceId-C-008-M"),
    ],
)
def test_the_checker_finds_a_broken_row(column: str, value: object, rule: str) -> None:
    broken = sample_rows()
    broken[1] = {**broken[1], column: value}  # type: ignore[dict-item]
    failed = FocusChecker(broken, COLUMNS, CRITERIA).run().failed
    assert rule in {name.partition(":")[0] for name in failed}
    assert not MISWRITTEN.keys() & {name.partition(":")[0] for name in failed}


def test_a_missing_column_fails_its_presence() -> None:
    failed = FocusChecker(sample_rows(), set(COLUMNS) - {"ListCost", "ConsumedUnit"}, CRITERIA).run().failed
    named = {name.partition(":")[0] for name in failed}
    assert {"CostAndUsage-D-032-M", "CostAndUsage-D-066-C"} <= named


def test_columns_are_named_as_the_specification_asks() -> None:
    own = [name for name in COLUMNS if name.startswith("x_")]
    assert list(COLUMNS)[-len(own) :] == own
    assert all(re.fullmatch(r"(x_)?[A-Z][A-Za-z]{1,49}", name) for name in COLUMNS)
    known = {rule["entity"] for rule in model().values()}
    assert {name for name in COLUMNS if not name.startswith("x_")} <= known


def test_an_origin_row_alone_carries_the_cost() -> None:
    origin, parts = _hour()
    row = origin_row(origin, parts, ISSUER, carries_cost=True)
    assert (row["EffectiveCost"], row["ConsumedQuantity"], row["PricingUnit"]) == (Decimal(8), Decimal(4), "Hours")
    assert json.loads(str(row["SkuPriceDetails"])) == {"GpuCount": 1, "x_GpuType": "A100"}


def test_idle_hours_are_the_origins_by_cost_and_nobodys() -> None:
    origin, parts = _hour()
    idle = allocated_rows(origin, parts, ISSUER)[-1]
    assert (idle["ConsumedQuantity"], idle["ConsumedUnit"], idle["SkuMeter"]) == (Decimal(1), "Hours", "Idle GPU Hours")
    assert (idle["SubAccountId"], idle["x_LineKind"], idle["x_Utilisation"]) == (None, "idle", Decimal("0.75"))


@pytest.mark.parametrize(
    ("basis", "known"), [("list", "known"), ("effective", "unknown"), ("effective; list", "unknown"), ("", "unknown")]
)
def test_an_unknown_list_cost_is_said_to_be_unknown(basis: str, known: str) -> None:
    origin, parts = _hour(basis)
    (first, *_) = allocated_rows(origin, parts, ISSUER)
    assert (first["x_ListCostState"], first["ListCost"]) == (known, first["EffectiveCost"] if known == "known" else 0)


def test_bought_tokens_name_their_vendor_and_have_no_gpu_hours() -> None:
    origin, _ = _hour()
    bought = replace(origin, deployment=Deployment("vendor", "deepseek", "chat"), gpu_us=0, gpu_types=())
    tokens, calls = allocated_rows(
        bought, [_part("acme", "chat"), Part("served", "", 0, 3, Decimal(1), Decimal(1), "acme")], ISSUER
    )
    assert (tokens["PublisherName"], tokens["ServiceName"], tokens["SkuId"]) == (
        "deepseek", "Bought LLM tokens", "deepseek/chat/input",
    )  # fmt: skip
    assert (calls["ConsumedQuantity"], calls["ConsumedUnit"]) == (3, "Requests")
    assert FocusChecker([tokens, calls], COLUMNS, CRITERIA).run().failed == []


def test_two_tenants_never_share_an_account() -> None:
    origin, _ = _hour()
    made = allocated_rows(origin, [_part("a/b", "c"), _part("a", "b/c"), _part("a%2Fb", "c")], ISSUER)
    assert [row["SubAccountId"] for row in made] == ["a%2Fb/c", "a/b%2Fc", "a%252Fb/c"]
    assert [row["x_Organisation"] for row in made] == ["a/b", "a", "a%2Fb"]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\tx"])
def test_names_stay_as_they_are_unless_asked(name: str) -> None:
    origin, _ = _hour()
    (row,) = allocated_rows(origin, [_part(name, "")], ISSUER)
    assert row["x_Organisation"] == name
    assert (spreadsheet_safe(name), spreadsheet_safe("acme")) == (f"'{name}", "acme")


def _hour(basis: str = "list") -> tuple[Origin, list[Part]]:
    window, place = Window(START, START + timedelta(hours=1)), Deployment("lab", "prod", "chat")
    origin = Origin(window, place, "USD", Decimal(8), Decimal(6), 4 * 3_600_000_000, ("A100",), basis, "card")
    return origin, [_part("acme", "chat", Decimal(6)), Part("idle", "", 0, 0, Decimal(2), Decimal(0))]


def _part(org: str, team: str, cost: Decimal = Decimal(1)) -> Part:
    return Part("served", "input", 10, 1, cost, cost, org, team)

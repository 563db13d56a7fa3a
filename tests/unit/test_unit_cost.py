"""Unit costs: Σ cost / Σ tokens divided last, None with a reason where undefined; the field's formulas beside them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from core.errors import BadInput
from core.field_estimate import LABEL, instance_second_formula, power_cost, utilisation_formula
from core.money import money
from core.unit_cost import CostSum, UnitCost, unit_cost


def sums(cost: dict[str, str], tokens: dict[str, int], requests: int = 0, unpriced: int = 0) -> CostSum:
    return CostSum({k: Decimal(v) for k, v in cost.items()}, tokens, requests, unpriced)


def test_each_kind_the_blend_and_the_request() -> None:
    found = unit_cost(sums({"input": "1", "input_cached": "0.1", "output": "3", "": "0.9"}, {"input": 10**6, "output": 10**6}, 5))
    lacking = {"input_cached_per_mtok": "no input_cached tokens in closed, priced windows"}
    assert found == UnitCost(Decimal(1), None, Decimal(3), Decimal("2.5"), Decimal(1), lacking)


def test_an_hour_of_an_amortised_node_and_a_million_tokens() -> None:
    assert unit_cost(sums({"input": "13.00"}, {"input": 10**6})).blended_per_mtok == Decimal("13.00")


def test_averages_are_never_averaged() -> None:
    quiet = sums({"input": "1"}, {"input": 1_000}, 1)
    busy = sums({"input": "1"}, {"input": 999_000}, 9)
    assert unit_cost(quiet + busy).input_per_mtok == Decimal(2)
    assert unit_cost(quiet + busy).per_request == Decimal("0.2")
    assert unit_cost(quiet + busy) == unit_cost(busy + quiet)


def test_no_tokens_is_a_reason_not_a_zero() -> None:
    found = unit_cost(sums({"": "0.2515"}, {}, unpriced=12))
    assert found.blended_per_mtok is None
    assert found.reasons["blended_per_mtok"] == "no tokens in closed, priced windows; 12 tokens have no price"
    assert set(found.reasons) == {"input_per_mtok", "input_cached_per_mtok", "output_per_mtok", "blended_per_mtok", "per_request"}


def test_the_fields_formulas_with_their_units_mended() -> None:
    power = power_cost(Decimal("10"), money("0.12", "USD"), Decimal("1.3"))
    assert power == money("1.56", "USD")
    first = utilisation_formula(Decimal("0.5"), money(4, "USD"), Decimal(1), power, money("0.44", "USD"), 2_000_000)
    assert (first.per_mtok, first.label) == (money(2, "USD"), LABEL)
    second = instance_second_formula(money("3.6", "USD"), Decimal(1_000), 2, money(0, "USD"), 1_000_000)
    assert second.per_mtok == money(2, "USD")


def test_the_fields_formulas_without_tokens_and_with_a_percentage() -> None:
    zero = money(0, "USD")
    assert instance_second_formula(money(1, "USD"), Decimal(1), 1, zero, 0).per_mtok is None
    with pytest.raises(BadInput, match="utilisation"):
        utilisation_formula(Decimal(50), money(4, "USD"), Decimal(1), zero, zero, 1)
    with pytest.raises(BadInput, match="PUE"):
        power_cost(Decimal(1), money(1, "USD"), Decimal("0.9"))

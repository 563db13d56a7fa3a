"""Shared cost: taken once, by the first rule that asks for it, and shared to the last decimal."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.shared_cost import Selector, SharedCharge, SharedRule, Weights, parse_shares, place_of, share_costs

JULY, DAY = date(2026, 7, 1), date(2026, 7, 10)
WEIGHTS = {
    "USD": Weights({"lab/prod/a": Decimal(30), "lab/prod/b/x": Decimal(10)}, {"acme": Decimal(1), "beta/search": Decimal(3)}),
}


def rule(name: str = "storage", **changes: Any) -> SharedRule:
    given: dict[str, Any] = {
        "name": name, "position": 100, "selector": Selector(frozenset({"non_gpu"})), "method": "weight", "target": "deployment",
        "valid_from": JULY, "owner": "platform team",
    }  # fmt: skip
    return SharedRule(**{**given, **changes})


def charge(cost: str = "8", **changes: Any) -> SharedCharge:
    given: dict[str, Any] = {
        "day": DAY, "bucket": "non_gpu", "service": "AmazonS3", "resource_id": "", "currency": "USD", "cost": Decimal(cost),
    }  # fmt: skip
    return SharedCharge(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "amounts"),
    [
        ({}, {"lab/prod/a": "6", "lab/prod/b/x": "2"}),
        ({"target": "tenant"}, {"acme": "2", "beta/search": "6"}),
        ({"method": "even"}, {"lab/prod/a": "4", "lab/prod/b/x": "4"}),
        (
            {"method": "fixed", "shares": {"lab/prod/a": Decimal("0.25"), "lab/x/y": Decimal("0.75")}},
            {"lab/prod/a": "2", "lab/x/y": "6"},
        ),
        ({"method": "fixed", "target": "tenant", "shares": {"acme": Decimal(1)}}, {"acme": "8"}),
    ],
    ids=["by capacity cost", "by tenants' allocated cost", "even", "fixed", "fixed, one tenant"],
)
def test_a_rule_shares_by_weight_even_or_fixed(changes: dict[str, Any], amounts: dict[str, str]) -> None:
    lines = share_costs([charge()], [rule(**changes)], WEIGHTS, JULY)
    found = {"/".join(p for p in (x.org, x.team, x.cluster, x.namespace, x.model_id) if p): x.amount for x in lines}
    assert found == {holder: Decimal(amount) for holder, amount in amounts.items()}
    assert {line.kind for line in lines} == {"shared"}


def test_the_first_rule_in_order_has_a_charge_and_no_other() -> None:
    rules = [rule("late", position=2, method="even"), rule("early", position=1), rule("same", position=1)]
    assert {line.name for line in share_costs([charge()], rules, WEIGHTS, JULY)} == {"early"}


@pytest.mark.parametrize(
    ("selector", "takes"),
    [
        ({"service": "AmazonS3"}, True),
        ({"service": "amazons3"}, False),
        ({"buckets": frozenset({"tax"})}, False),
        ({"resource_id": "b-1"}, True),
        ({"tag": ("app", "gateway")}, True),
        ({"tag": ("app", "other")}, False),
        ({"service": "AmazonS3", "tag": ("app", "other")}, False),
    ],
)
def test_a_selector_takes_what_has_every_property(selector: dict[str, Any], takes: bool) -> None:
    one = charge(resource_id="b-1", tags=(("app", "gateway"), ("team", "x")))
    assert Selector(**selector).takes(one) is takes


@pytest.mark.parametrize(
    ("day", "shared"),
    [(date(2026, 7, 9), False), (DAY, True), (date(2026, 7, 19), True), (date(2026, 7, 20), False), (None, False)],
)
def test_a_rule_takes_the_days_it_is_for(day: date | None, shared: bool) -> None:
    lines = share_costs([charge(day=day)], [rule(valid_from=DAY, valid_to=date(2026, 7, 20))], WEIGHTS, JULY)
    assert {line.kind for line in lines} == {"shared" if shared else "not_shared"}


def test_what_no_rule_takes_and_what_cannot_be_shared_is_listed() -> None:
    lines = share_costs([charge(), charge("5", bucket="tax", service=""), charge("70", currency="CNY")], [rule()], WEIGHTS, JULY)
    assert [(x.name, x.currency, x.amount) for x in lines if x.kind == "not_shared"] == [
        ("storage: no deployment has cost in CNY to share it by", "CNY", 70), ("tax: no service named", "USD", 5),
    ]  # fmt: skip


costs = st.decimals(min_value=-1000, max_value=1000, places=20, allow_nan=False, allow_infinity=False)
charges = st.lists(
    st.builds(
        lambda cost, bucket, service, currency, day: replace(charge(), **locals()),
        costs, st.sampled_from(["non_gpu", "tax", "credit"]), st.sampled_from(["S3", "EKS", ""]), st.sampled_from(["USD", "CNY"]),
        st.sampled_from([DAY, date(2026, 7, 31), None]),
    ),
    max_size=12,
)  # fmt: skip
rules = st.lists(
    st.sampled_from([
        rule(), rule("gateway", selector=Selector(service="EKS"), method="even", target="tenant", position=1),
        rule("tax", selector=Selector(frozenset({"tax", "credit"})), valid_to=DAY),
        rule("fixed", selector=Selector(service="S3"), method="fixed", shares={"l/p/a": Decimal("0.3"), "l/p/b": Decimal("0.7")}),
    ]),
    unique_by=lambda r: r.name,
)  # fmt: skip


@given(charges, rules)
def test_shared_and_not_shared_are_the_charges_exactly(given_charges: list[SharedCharge], given_rules: list[SharedRule]) -> None:
    lines = share_costs(given_charges, given_rules, WEIGHTS, JULY)
    for currency in ("USD", "CNY"):
        assert sum(x.amount for x in lines if x.currency == currency) == sum(
            c.cost for c in given_charges if c.currency == currency
        )
    assert share_costs(list(reversed(given_charges)), list(reversed(given_rules)), WEIGHTS, JULY) == lines


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Selector(), "selector"),
        (lambda: Selector(frozenset({"gpus"})), "bucket"),
        (lambda: Selector(frozenset({"split_memo"})), "bucket"),
        (lambda: rule(method="fixed", shares={"lab/prod/a": Decimal("0.9")}), "shares"),
        (lambda: rule(method="fixed", shares={"lab/prod/a": Decimal(2), "lab/prod/b": Decimal(-1)}), "shares"),
        (lambda: rule(method="fixed", shares={"acme": Decimal(1)}), "shares"),
        (lambda: rule(method="fixed"), "shares"),
        (lambda: rule(shares={"lab/prod/a": Decimal(1)}), "shares"),
        (lambda: rule(valid_to=JULY), "valid_to"),
        (lambda: rule(owner=" "), "owner"),
        (lambda: rule(method="best"), "method"),
        (lambda: parse_shares(["acme"]), "shares"),
        (lambda: parse_shares(["acme=much"]), "shares"),
        (lambda: place_of("tenant", "a/b/c"), "shares"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_by_field(make: Any, field: str) -> None:
    with pytest.raises(BadInput) as error:
        make()
    assert error.value.field == field


def test_shares_are_read_from_their_texts() -> None:
    assert parse_shares(["acme/search=0.25", "lab/prod/a=b=0.75"]) == {
        "acme/search": Decimal("0.25"),
        "lab/prod/a=b": Decimal("0.75"),
    }

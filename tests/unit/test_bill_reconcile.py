"""The waterfall from an invoice to the tenants: each step's parts add up to it, and what does not agree shows."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bill_facts import BillFacts, Costs, LedgerMoney, MachineMoney
from core.bill_reconcile import UNNAMED, rows, unnamed, waterfall
from core.billing import BUCKETS
from core.money import ZERO, total


def d(text: str) -> Decimal:
    return Decimal(text)


def costs(billed: str, effective: str | None = None) -> Costs:
    return Costs(d(billed), d(billed if effective is None else effective))


JULY = BillFacts(
    view="invoice",
    own="2026-07",
    buckets={
        "gpu": costs("39.30", "26.20"),
        "commitment_fee": costs("52.40", "0"),
        "commitment_negation": costs("-39.30", "0"),
        "unused_commitment": costs("0", "26.20"),
        "non_gpu": costs("5"),
        "tax": costs("4.80"),
        "discount": costs("-1.0000000000001"),
        "unknown": costs("0.37"),
    },
    months={"2026-07": costs("62.5699999999999", "62.5699999999999"), "2026-06": costs("-1")},
    stated=costs("61.5699999999999", "61.5699999999999"),
    joined={"gpu": costs("30.30", "20.20"), "discount": costs("-1.0000000000001")},
    unmatched={("gpu", "no machine"): costs("9", "6")},
    machines=MachineMoney(held=d("15"), unassigned=d("4.2"), rounding=d("-0.0000000000001")),
    ledger=LedgerMoney(
        capacity=d("12"),
        other_bills=d("-1"),
        by_rates=d("2"),
        open={"not closed yet": d("4")},
        lines={"served": d("7"), "idle": d("5")},
        tenants={"acme/search": d("9"), "(no tenant)": d("3")},
    ),
    shared={("platform", "non_gpu"): d("3")},
)


def test_the_example_has_a_name_for_every_cent() -> None:
    steps = waterfall(JULY)
    assert unnamed(steps) == []
    named = {(row.step, row.bucket): (row.billed, row.effective) for row in rows(steps)}
    assert named["invoice", "gpu"] == (d("39.30"), d("26.20"))
    assert named["months", "used in 2026-06"] == (-1, -1)
    assert named["basis", "effective less billed: commitment_fee"] == (None, d("-52.40"))
    assert named["machines", "machines: gpu"] == (d("30.30"), d("20.20"))
    assert named["machines", "unmatched (no machine): gpu"] == (9, 6)
    assert named["holders", "unassigned"] == (None, d("4.2"))
    assert named["holders", "rounding"] == (None, d("-0.0000000000001"))
    assert named["ledger", "of it, paid by other bills"] == (None, 1)
    assert named["ledger", "of it, priced by rates"] == (None, -2)
    assert named["ledger", "not closed yet"] == (None, 4)
    assert named["tenants", "acme/search"] == (None, 9)
    assert named["shared", "shared by platform: non_gpu"] == (None, 3)
    assert named["shared", "not shared: non_gpu"] == (None, 2)
    assert named["shared", "apart: tax"] == (None, d("4.80"))


def test_every_open_row_says_what_to_do_and_the_settled_ones_are_not_open() -> None:
    found = rows(waterfall(JULY))
    assert {row.bucket for row in found if row.is_open} == {
        "unknown", "unmatched (no machine): gpu", "unassigned", "of it, priced by rates", "not closed yet",
    }  # fmt: skip
    assert all(row.hint for row in found if row.is_open)


@pytest.mark.parametrize(
    ("step", "changed", "gap"),
    [
        ("invoice", {"stated": costs("61.57", "61.5699999999999")}, (d("1E-13"), ZERO)),
        ("months", {"months": {"2026-07": costs("60")}}, (d("1.5699999999999"), d("1.5699999999999"))),
        ("machines", {"unmatched": {}}, (9, 6)),
        ("holders", {"machines": MachineMoney(held=d("15"), unassigned=d("4.2"))}, (ZERO, d("-1E-13"))),
        ("ledger", {"ledger": replace(JULY.ledger, open={})}, (ZERO, 4)),
        ("lines", {"ledger": replace(JULY.ledger, lines={"served": d("7")})}, (ZERO, 5)),
        ("tenants", {"ledger": replace(JULY.ledger, tenants={})}, (ZERO, 12)),
    ],
)
def test_what_two_places_say_differently_is_a_difference_without_a_name(
    step: str, changed: dict[str, object], gap: tuple[Decimal, Decimal]
) -> None:
    found = unnamed(waterfall(replace(JULY, **changed)))  # type: ignore[arg-type]
    assert [(one.name, (one.difference.billed, one.difference.effective)) for one in found] == [(step, gap)]
    (row,) = [row for row in rows(found) if row.is_difference]
    assert (row.bucket, row.is_open) == (UNNAMED, True)
    assert row.hint


def test_machines_of_deliveries_that_never_were_joined_are_named_so() -> None:
    steps = waterfall(replace(JULY, joined={}, unmatched={}, is_joined=False, machines=MachineMoney(), ledger=LedgerMoney()))
    assert unnamed(steps) == []
    (row,) = [row for row in rows(steps) if row.bucket == "not joined yet: gpu"]
    assert (row.effective, row.is_open, row.hint) == (d("26.20"), True, "run `tokenfuse match run`")


def test_by_usage_the_rest_of_machines_is_unmatched_without_a_reason() -> None:
    steps = waterfall(replace(JULY, view="usage", stated=None, unmatched=None))
    assert unnamed(steps) == []
    found = {row.bucket: row.effective for row in rows(steps)}
    assert (found["unmatched: gpu"], found["billed in 2026-06"]) == (6, -1)


def test_nothing_at_all_closes_too() -> None:
    steps = waterfall(BillFacts("invoice", "2026-07", {}, {}))
    assert unnamed(steps) == []
    assert [row.bucket for row in rows(steps) if not row.parent] == ["invoice total"]


amounts = st.decimals(min_value=-1000, max_value=1000, places=13)
pairs = st.builds(Costs, amounts, amounts)


@given(st.dictionaries(st.sampled_from(BUCKETS), pairs), st.dictionaries(st.sampled_from(BUCKETS), pairs), amounts, amounts)
def test_whatever_the_amounts_parts_and_differences_add_up_to_each_whole(
    buckets: dict[str, Costs], joined: dict[str, Costs], held: Decimal, closed: Decimal
) -> None:
    facts = BillFacts(
        "invoice", "2026-07", buckets, {}, joined=joined, unmatched={}, machines=MachineMoney(held=held),
        ledger=LedgerMoney(capacity=closed),
    )  # fmt: skip
    for step in waterfall(facts):
        parts = [row for row in rows([step]) if row.parent]
        assert total(row.effective for row in parts if row.effective is not None) == (step.effective or ZERO)
        if step.billed is not None:
            assert total(row.billed for row in parts if row.billed is not None) == step.billed


@given(st.dictionaries(st.sampled_from(BUCKETS), pairs, min_size=1))
def test_each_bucket_stands_once_in_the_first_step(buckets: dict[str, Costs]) -> None:
    facts = BillFacts("invoice", "2026-07", buckets, {"2026-07": sum(buckets.values(), Costs())}, is_joined=False)
    first = [row for row in rows(waterfall(facts)) if row.step == "invoice" and row.parent]
    assert {row.bucket: Costs(row.billed or ZERO, row.effective or ZERO) for row in first} == {
        n: c for n, c in buckets.items() if c
    }

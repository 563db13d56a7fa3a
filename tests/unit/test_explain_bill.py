"""Why a bill changed: buckets add up, machine time is split order-free, and a lost commitment is named with its money."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.bill_facts import Costs
from core.explain_bill import (
    MACHINE_EFFECTS,
    BillPeriod,
    MachineTime,
    bill_only_changes,
    bucket_changes,
    covered_hours,
    machine_changes,
)
from core.money import total

amounts = st.decimals("-1e6", "1e6", places=6)
times = st.builds(
    MachineTime,
    st.sampled_from(["p4d.24xlarge", "p5.48xlarge", ""]),
    st.sampled_from(["i-1", "i-2", "i-3", ""]),
    st.sampled_from(["", "sp-1", "sp-2"]),
    st.none() | st.decimals("0", "744", places=3),
    amounts,
)
costs = st.builds(Costs, amounts, amounts)
buckets = st.dictionaries(st.sampled_from(["gpu", "tax", "credit", "correction", "house rule"]), costs, max_size=5)
periods = st.builds(BillPeriod, st.integers(1, 31), buckets, buckets, st.lists(times, max_size=6).map(tuple), amounts)


@given(periods, periods)
@settings(max_examples=200, deadline=None)
def test_the_effects_are_the_change_exactly(first: BillPeriod, second: BillPeriod) -> None:
    for change in machine_changes(first, second):
        assert set(change.effects) == set(MACHINE_EFFECTS)
        assert total(change.effects.values()) == change.change
    sums = [total(line.effective for line in period.machines) for period in (first, second)]
    assert total(change.change for change in machine_changes(first, second)) == sums[1] - sums[0]


@given(periods, periods)
@settings(max_examples=100, deadline=None)
def test_looking_back_negates_every_effect(first: BillPeriod, second: BillPeriod) -> None:
    swap = {"new": "retired", "retired": "new"}
    back = {change.instance_type: change for change in machine_changes(second, first)}
    for change in machine_changes(first, second):
        for name, amount in change.effects.items():
            assert abs(back[change.instance_type].effects[swap.get(name, name)] + amount) <= Decimal("1e-11")


@given(periods, periods)
def test_buckets_add_up_to_the_bill_on_both_bases(first: BillPeriod, second: BillPeriod) -> None:
    changed = sum((change.change for change in bucket_changes(first, second)), Costs())
    assert changed == second.whole - first.whole
    joined = [sum(period.joined.values(), Costs()) for period in (first, second)]
    alone = sum((change.change for change in bill_only_changes(first, second)), Costs())
    assert alone == changed - (joined[1] - joined[0])
    assert total([second.held, second.not_held]) == joined[1].effective


def time(resource: str, hours: str, price: str, commitment: str = "", kind: str = "p4d.24xlarge") -> MachineTime:
    return MachineTime(kind, resource, commitment, Decimal(hours), Decimal(hours) * Decimal(price))


@pytest.mark.parametrize(
    ("first", "second", "days", "effects"),
    [
        ([time("i", "100", "13", "sp-1")], [time("i", "100", "32.77")], (30, 30), {"coverage": "1977"}),
        ([time("i", "100", "55.04")], [time("i", "100", "60")], (30, 30), {"rate": "496"}),
        ([time("i", "100", "13", "sp-1")], [time("i", "100", "15", "sp-1")], (30, 30), {"covered_rate": "200"}),
        ([time("i", "100", "5")], [time("i", "100", "5"), time("j", "50", "5")], (30, 30), {"new": "250"}),
        ([time("i", "100", "5")], [time("j", "100", "5")], (30, 30), {"new": "500", "retired": "-500"}),
        ([time("i", "100", "5")], [time("i", "160", "5")], (30, 30), {"scale": "300"}),
        ([time("i", "744", "5")], [time("i", "720", "5")], (31, 30), {"days": "-120"}),
        ([], [time("i", "10", "5")], (30, 30), {"new": "50"}),
        (
            [MachineTime("x", "i", "", None, Decimal(3))],
            [MachineTime("x", "i", "", None, Decimal(7))],
            (30, 30),
            {"unsplit": "4"},
        ),
    ],
)
def test_one_cause_alone_has_the_whole_change(
    first: list[MachineTime], second: list[MachineTime], days: tuple[int, int], effects: dict[str, str]
) -> None:
    (change,) = machine_changes(BillPeriod(days[0], machines=tuple(first)), BillPeriod(days[1], machines=tuple(second)))
    assert {name: amount for name, amount in change.effects.items() if amount} == {k: Decimal(v) for k, v in effects.items()}


def test_a_commitment_that_ended_is_named_with_its_hours() -> None:
    first, second = BillPeriod(30, machines=(time("i", "100", "13", "sp-1"),)), BillPeriod(30, machines=(time("i", "9", "32"),))
    assert covered_hours(first, second) == {"sp-1": (Decimal(100), Decimal(0))}
    assert covered_hours(first, first) == {}

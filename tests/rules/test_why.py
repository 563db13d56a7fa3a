"""Causes and victims: who made it dear, what share of the excess, and causes that add up to the change exactly."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.explain import EFFECTS, NO_CHANGE, Change
from core.money import total
from core.why import CAUSES, by_cause, culprits, own_parts

USUAL = {"red": 1, "blue": 1, "green": 1}


def costs(given: dict[str, int]) -> dict[str, Decimal]:
    return {name: Decimal(value) for name, value in given.items()}


@pytest.mark.parametrize(
    ("title", "after", "excess", "named"),
    [
        ("one floods with long prompts; the engine slows, and everybody's tokens cost twice as much", {**USUAL, "red": 4}, 6,
         ("red",)),
        ("a dearer engine: nobody did more", USUAL, 9, ()),
        ("a slower engine under the usual noise", {**USUAL, "blue": 2}, 9, ()),
        ("two share the excess evenly", {"red": 4, "blue": 4, "green": 1}, 6, ("blue", "red")),
        ("four share it: none explains half", {"a": 2, "b": 2, "c": 2, "d": 2, **USUAL}, 8, ()),
        ("a new tenant", {**USUAL, "new": 5}, 5, ("new",)),
        ("one grows while another leaves", {"red": 5, "green": 1}, 3, ("red",)),
        ("no excess", {**USUAL, "red": 40}, 0, ()),
        ("cheaper than usual", {**USUAL, "red": 40}, -3, ()),
        ("nothing left", {}, 1, ()),
    ],
)  # fmt: skip
def test_a_tenant_is_a_cause_only_by_its_own_extra_work(
    title: str, after: dict[str, int], excess: int, named: tuple[str, ...]
) -> None:
    assert culprits(costs(USUAL), costs(after), Decimal(excess)) == named, title


def test_own_parts_tell_the_share_of_the_excess_the_most_first() -> None:
    found = own_parts(costs(USUAL), costs({"red": 2, "blue": 4, "green": 1}), Decimal(4))
    assert [(own.tenant, own.share) for own in found] == [("blue", Decimal("0.75")), ("red", Decimal("0.25"))]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100)),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100)),
)
def test_splitting_a_victim_in_two_names_nobody_else(before: dict[str, int], after: dict[str, int]) -> None:
    excess = Decimal(max(1, sum(after.values()) - sum(before.values())))
    halves = {key: Decimal(after["a"]) / 2 for key in ("a1", "a2")} if "a" in after else {}
    firsts = {key: Decimal(before["a"]) / 2 for key in ("a1", "a2")} if "a" in before else {}
    rest = {key: Decimal(v) for key, v in after.items() if key != "a"}
    own = {key: Decimal(v) for key, v in before.items() if key != "a"}
    whole = set(culprits(costs(before), costs(after), excess)) - {"a"}
    assert set(culprits({**own, **firsts}, {**rest, **halves}, excess)) - {"a1", "a2"} == whole


AMOUNTS = st.decimals("-1000", "1000", places=6)


@given(st.fixed_dictionaries({name: AMOUNTS for name in NO_CHANGE.effects}))
def test_causes_add_up_to_the_change_exactly(effects: dict[str, Decimal]) -> None:
    change = replace(Change(Decimal(5), Decimal(5), effects), after=total([Decimal(5), *effects.values()]))
    assert total(by_cause(change).values()) == change.change


def test_every_effect_has_one_cause() -> None:
    assert sorted(name for names in CAUSES.values() for name in names) == sorted(EFFECTS)

"""Why a cost changed: effects add up to the change, in no order, to the last decimal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.explain import EFFECTS, US_PER_HOUR, Change, DeploymentUse, explain_deployment, total_change
from core.shapley import MAX_FACTORS, round_parts, shapley
from core.windows import Window

START = datetime(2026, 5, 1, tzinfo=UTC)
FIRST = Window(START, START + timedelta(hours=100))
SECOND = Window(FIRST.end, FIRST.end + timedelta(hours=100))
LONGER = Window(FIRST.end, FIRST.end + timedelta(hours=125))

BEFORE = DeploymentUse(
    gpu_us=2 * 100 * US_PER_HOUR,
    served={"input": Decimal(400), "input_cached": Decimal(0)},
    tokens={"input": 100_000, "input_cached": 100_000},
    idle=Decimal(400),
)
AFTER = DeploymentUse(
    gpu_us=3 * 100 * US_PER_HOUR,
    served={"input": Decimal(900), "input_cached": Decimal(0)},
    tokens={"input": 180_000, "input_cached": 60_000},
    idle=Decimal(600),
)
"""The worked example of docs/explain.md."""

costs = st.decimals(min_value=0, max_value=10_000, places=12)
counts = st.integers(min_value=0, max_value=10**9)


@st.composite
def uses(draw: st.DrawFn) -> DeploymentUse:
    tokens = {kind: draw(counts) for kind in ("input", "input_cached", "output")}
    served = {kind: draw(costs) if count else Decimal(0) for kind, count in tokens.items()}
    rest = {name: draw(costs) for name in ("wasted", "unattributed", "idle", "starting")}
    return DeploymentUse(gpu_us=draw(st.just(0) | st.integers(10**9, 10**13)), served=served, tokens=tokens, **rest)


def of(change: Change) -> dict[str, Decimal]:
    """The effects that are not zero."""
    return {name: amount for name, amount in change.effects.items() if amount}


def test_the_worked_example_of_the_documentation() -> None:
    change = explain_deployment(BEFORE, AFTER, FIRST, SECOND)
    assert (change.before, change.after, change.change) == (Decimal(800), Decimal(1500), Decimal(700))
    assert of(change) == {"rate": Decimal(250), "volume": Decimal("112.5"), "cache": Decimal("247.5"), "idle": Decimal(90)}
    assert change.node_hours == change.scale == Decimal(450)


def scaled(use: DeploymentUse, money: int = 1, gpus: int = 1, tokens: int = 1, hours: Fraction = Fraction(1)) -> DeploymentUse:
    times = money * gpus * hours
    grow = Decimal(times.numerator) / Decimal(times.denominator)
    return replace(
        use,
        gpu_us=int(use.gpu_us * gpus * hours),
        served={kind: cost * grow for kind, cost in use.served.items()},
        tokens={kind: int(count * tokens * hours) for kind, count in use.tokens.items()},
        idle=use.idle * grow,
    )


@pytest.mark.parametrize(
    ("case", "after", "second", "effects"),
    [
        ("nothing", BEFORE, SECOND, {}),
        ("price doubled", scaled(BEFORE, money=2), SECOND, {"rate": 800}),
        ("five quarters of the days", scaled(BEFORE, hours=Fraction(5, 4)), LONGER, {"days": 200}),
        ("twice the GPUs for twice the tokens", scaled(BEFORE, gpus=2, tokens=2), SECOND, {"volume": 400, "idle": 400}),
        ("one more GPU that idles", replace(BEFORE, gpu_us=3 * 100 * US_PER_HOUR, idle=Decimal(800)), SECOND, {"idle": 400}),
        (
            "idle time put to use by more tokens costs nothing more",
            replace(
                BEFORE, served={"input": Decimal(600)}, tokens={"input": 150_000, "input_cached": 150_000}, idle=Decimal(200)
            ),
            SECOND,
            {"volume": 200, "idle": -200},
        ),
        (
            "the same tokens took longer",
            replace(BEFORE, served={"input": Decimal(500), "input_cached": Decimal(0)}, idle=Decimal(300)),
            SECOND,
            {"speed": 100, "idle": -100},
        ),
        (
            "a GPU that boots",
            replace(BEFORE, gpu_us=3 * 100 * US_PER_HOUR, starting=Decimal(400)),
            SECOND,
            {"starting": 400},
        ),
        ("calls that failed", replace(BEFORE, wasted=Decimal(100), idle=Decimal(300)), SECOND, {"waste": 100, "idle": -100}),
        (
            "work no record explains",
            replace(BEFORE, unattributed=Decimal(100), idle=Decimal(300)),
            SECOND,
            {"unattributed": 100, "idle": -100},
        ),
        ("retired", None, SECOND, {"retired": -800}),
        ("no GPU time known", replace(AFTER, gpu_us=0), SECOND, {"unsplit": 700}),
    ],
)
def test_one_cause_has_one_name(case: str, after: DeploymentUse | None, second: Window, effects: Mapping[str, int]) -> None:
    assert of(explain_deployment(BEFORE, after, FIRST, second)) == effects, case


def test_a_new_deployment_and_another_currency() -> None:
    assert of(explain_deployment(None, BEFORE, FIRST, SECOND)) == {"new": 800}
    assert of(explain_deployment(None, BEFORE, FIRST, SECOND, other_currency=True)) == {"currency": 800}


@given(uses(), uses())
def test_effects_add_up_to_the_change_exactly(before: DeploymentUse, after: DeploymentUse) -> None:
    change = explain_deployment(before, after, FIRST, LONGER)
    assert set(change.effects) == set(EFFECTS)
    assert sum(change.effects.values()) == change.change == after.cost - before.cost


def test_bought_tokens_are_their_number_and_their_price() -> None:
    first = DeploymentUse(0, {"input": Decimal(2), "output": Decimal(8)}, {"input": 1_000_000, "output": 1_000_000})
    second = DeploymentUse(0, {"input": Decimal(3), "output": Decimal(16)}, {"input": 1_000_000, "output": 2_000_000}, Decimal(1))
    change = explain_deployment(first, second, FIRST, LONGER, is_bought=True)
    assert of(change) == {"bought": Decimal(9), "bought_rate": Decimal(1)}
    assert change.node_hours == 0


@given(uses(), uses())
def test_effects_of_bought_tokens_add_up_and_turn_round(before: DeploymentUse, after: DeploymentUse) -> None:
    there = explain_deployment(before, after, FIRST, LONGER, is_bought=True)
    back = explain_deployment(after, before, LONGER, FIRST, is_bought=True)
    assert sum(there.effects.values()) == there.change
    assert all(abs(there.effects[name] + back.effects[name]) <= Decimal("1e-11") for name in EFFECTS)


@given(uses(), uses())
def test_exchanging_the_periods_negates_every_effect(before: DeploymentUse, after: DeploymentUse) -> None:
    there = explain_deployment(before, after, FIRST, LONGER)
    back = explain_deployment(after, before, LONGER, FIRST)
    assert back.effects == {name: -amount for name, amount in there.effects.items()}


@given(uses())
def test_what_did_not_change_has_no_effect(use: DeploymentUse) -> None:
    assert of(explain_deployment(use, use, FIRST, SECOND)) == {}


@given(uses(), uses())
def test_a_thousand_times_the_money_is_a_thousand_times_each_effect(before: DeploymentUse, after: DeploymentUse) -> None:
    small = explain_deployment(before, after, FIRST, LONGER)
    large = explain_deployment(_money(before, 1000), _money(after, 1000), FIRST, LONGER)
    for name, amount in small.effects.items():
        assert abs(large.effects[name] - 1000 * amount) <= Decimal("1e-8")


def _money(use: DeploymentUse, times: int) -> DeploymentUse:
    rest = {name: getattr(use, name) * times for name in ("wasted", "unattributed", "idle", "starting")}
    return replace(use, served={kind: cost * times for kind, cost in use.served.items()}, **rest)


@given(st.lists(st.tuples(uses(), uses()), max_size=3))
def test_deployments_add_up_to_the_whole(pairs: list[tuple[DeploymentUse, DeploymentUse]]) -> None:
    whole = total_change(explain_deployment(a, b, FIRST, LONGER) for a, b in pairs)
    assert sum(whole.effects.values()) == whole.change == sum(b.cost - a.cost for a, b in pairs)


def test_shapley_values_of_a_product_of_two_factors() -> None:
    """2 x 3 to 4 x 5: each factor at the mean of the other."""
    side = {"a": (Fraction(2), Fraction(4)), "b": (Fraction(3), Fraction(5))}
    effects = shapley(("a", "b"), lambda changed: side["a"]["a" in changed] * side["b"]["b" in changed])
    assert effects == {"a": 2 * Fraction(4), "b": 2 * Fraction(3)}


def test_too_many_factors_are_refused() -> None:
    with pytest.raises(ValueError, match="13 factors are too many"):
        shapley([str(n) for n in range(MAX_FACTORS + 1)], lambda _: Fraction(0))


def test_what_rounding_leaves_goes_to_the_largest_part() -> None:
    thirds = {"a": Fraction(1, 3), "b": Fraction(1, 3), "none": Fraction(0), "c": Fraction(1, 3)}
    assert round_parts(Decimal(1), thirds) == {
        "a": Decimal("0.333333333333"),
        "b": Decimal("0.333333333333"),
        "none": Decimal(0),
        "c": Decimal("0.333333333334"),
    }

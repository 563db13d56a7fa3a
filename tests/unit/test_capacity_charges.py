"""A machine's billed hour: shared exactly, over those who held it, whatever the order; never on top of a rate."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.capacity import NodeService
from core.capacity_charges import priced_capacity, share_hour
from core.gpu_use import GpuUse, with_energy
from core.ledger import WindowInputs, close_window
from core.money import money
from core.node_charge import NodeCharge
from core.rates import Rate
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window

T0 = datetime(2026, 7, 1, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
D, E = Deployment("lab", "prod", "qwen"), Deployment("lab", "prod", "llama")
QUARTERS = [Window(T0 + n * QUARTER_HOUR, T0 + (n + 1) * QUARTER_HOUR) for n in range(4)]
LIST = Rate("gpu_hour", "A100", money("4.09625", "USD"), "list", "test card", T0 - timedelta(days=30))


def charge(**changes: Any) -> NodeCharge:
    """A p4d.24xlarge's hour: 13.00 amortised."""
    given: dict[str, Any] = {
        "cluster": "lab", "node": "n1", "hour": T0, "currency": "USD", "billed": Decimal("32.77"), "effective": Decimal("13.00"),
        "list": Decimal("32.77"), "contracted": None, "hours": Decimal(1), "gpus": 8, "resource_id": "i-1",
        "instance_type": "p4d.24xlarge", "source": "aws cur 2026-07 v1", "is_final": False, "delivery": 1, "bucket": "gpu",
    }  # fmt: skip
    return NodeCharge(**{**given, **changes})


def held(
    deployment: Deployment = D, count: int = 8, since: datetime = T0, until: datetime | None = None, node: str = "n1"
) -> NodeService:
    return NodeService(deployment, f"http://{deployment.model_id}", node, "A100", count, since, until)


def priced(
    services: tuple[NodeService, ...],
    charges: tuple[NodeCharge, ...],
    quarter: int = 0,
    who: Deployment = D,
    rates: tuple[Rate, ...] = (LIST,),
):  # type: ignore[no-untyped-def]
    window = QUARTERS[quarter]
    near = [s for s in services if s.within(window)]
    return priced_capacity(who, window, near, rates, charges, services)


def test_the_bill_is_the_price_and_the_list_price_is_shown_beside_it() -> None:
    """H3: list 32.77 an hour, amortised 13.00."""
    closed = close_window(
        WindowInputs(
            D, QUARTERS[0], (held(),), (LIST,), (), (), None, charges=(charge(),), hour_services=(held(),),
        )
    )  # fmt: skip
    assert (closed.capacity_cost, closed.charged_cost, closed.estimate_cost) == (
        Decimal("3.25"),
        Decimal("3.25"),
        Decimal("8.1925"),
    )
    assert closed.state == "trued_up"
    assert closed.price_source == "aws cur 2026-07 v1 (effective)"
    assert closed.detail["trueup"] == {"estimate": "8.1925", "difference": "-4.9425", "price_source": "test card (list)"}


@pytest.mark.parametrize(
    ("services", "changes", "of_d", "of_e", "unassigned"),
    [
        ((held(),), {}, "13", "0", "0"),
        ((held(count=2),), {}, "3.25", "0", "9.75"),
        ((held(count=2),), {"gpus": None}, "13", "0", "0"),
        ((held(count=4), held(E, 4)), {}, "6.5", "6.5", "0"),
        ((held(count=8, until=T0 + HOUR / 2),), {}, "6.5", "0", "6.5"),
        ((held(count=4), held(E, 4, T0 + HOUR / 2)), {}, "6.5", "3.25", "3.25"),
        ((), {}, "0", "0", "13"),
        ((held(),), {"hours": Decimal("0.5")}, "13", "0", "0"),
        ((held(),), {"bucket": "credit", "hours": Decimal(0)}, "0", "0", "13"),
        ((held(node="n2"),), {}, "0", "0", "13"),
    ],
    ids=[
        "whole machine", "a quarter of it", "GPUs not known: those held are all", "two deployments", "half an hour",
        "one joined late", "nobody", "held longer than billed", "a credit alone is no price", "another machine",
    ],
)  # fmt: skip
def test_an_hour_is_shared_by_gpu_time_held(
    services: tuple[NodeService, ...], changes: dict[str, Any], of_d: str, of_e: str, unassigned: str
) -> None:
    (share,) = share_hour([charge(**changes)], services).shares
    sums = {d: sum(v for (s, _), v in share.held.items() if s.deployment == d) for d in (D, E)}
    assert (sums[D], sums[E], share.unassigned) == (Decimal(of_d), Decimal(of_e), Decimal(unassigned))


costs = st.decimals(min_value=-50, max_value=500, places=15, allow_nan=False, allow_infinity=False)
charges_of_an_hour = st.lists(
    st.builds(
        lambda cost, delivery, gpus, hours, currency, n, bucket: charge(
            effective=cost, delivery=delivery, gpus=gpus, hours=hours, currency=currency, resource_id=f"i-{n}", bucket=bucket
        ),
        costs, st.integers(1, 2), st.sampled_from([8, 4, None]), st.sampled_from([Decimal(0), Decimal("0.37"), Decimal(1)]),
        st.sampled_from(["USD", "CNY"]), st.integers(1, 3), st.sampled_from(["gpu", "correction", "credit"]),
    ),
    min_size=1, max_size=4,
)  # fmt: skip
minutes = st.integers(-30, 89)
holders = st.lists(
    st.builds(
        lambda d, count, start, length, n: replace(
            held(d, count, T0 + timedelta(minutes=start, seconds=7), T0 + timedelta(minutes=start + length, seconds=7)),
            target=f"t{n}",
        ),
        st.sampled_from([D, E]), st.integers(1, 8), minutes, st.integers(1, 120), st.integers(0, 2),
    ),
    max_size=4,
)  # fmt: skip


@given(charges_of_an_hour, holders)
def test_shares_unassigned_and_rounding_are_the_charges_to_the_last_decimal(
    charges: list[NodeCharge], services: list[NodeService]
) -> None:
    found = share_hour(charges, services)
    for share in found.shares:
        mine = [c.effective for c in charges if (c.delivery, c.currency) == (share.delivery, share.currency)]
        assert sum(share.held.values()) + share.unassigned + share.rounding == sum(mine) == share.money
        assert abs(share.rounding) < Decimal("1e-12")
    assert {(s.delivery, s.currency) for s in found.shares} == {(c.delivery, c.currency) for c in charges}


@given(charges_of_an_hour, holders, st.randoms(use_true_random=False))
def test_the_order_of_charges_and_services_changes_nothing(
    charges: list[NodeCharge], services: list[NodeService], random: Any
) -> None:
    other_charges, other_services = list(charges), [*services, *services[:1]]
    random.shuffle(other_charges)
    random.shuffle(other_services)
    assert share_hour(charges, services) == share_hour(other_charges, other_services)


@given(st.lists(costs, min_size=1, max_size=3), holders)
def test_all_windows_of_all_deployments_and_unassigned_are_the_hour(amounts: list[Decimal], services: list[NodeService]) -> None:
    charges = tuple(charge(effective=amount, resource_id=f"i-{n}") for n, amount in enumerate(amounts))
    windows = [priced(tuple(services), charges, quarter, who) for quarter in range(4) for who in (D, E)]
    charged = sum((w.charged for w in windows if w.charged is not None), Decimal(0))
    (share,) = share_hour(charges, services).shares
    assert charged + share.unassigned + share.rounding == sum(amounts)


def test_what_is_billed_and_what_is_not_stand_side_by_side_and_stay_provisional() -> None:
    found = priced((held(), held(count=1, node="n2")), (charge(),))
    assert (found.amount, found.charged, found.state) == (
        Decimal("3.25") + Decimal("4.09625") / 4,
        Decimal("3.25"),
        "provisional",
    )
    assert found.price_source == "aws cur 2026-07 v1 (effective); test card (list)"


def test_a_window_is_final_once_every_delivery_is() -> None:
    assert priced((held(),), (charge(is_final=True),)).state == "final"
    assert (
        priced((held(),), (charge(is_final=True), charge(delivery=2, resource_id="x", effective=Decimal(1)))).state == "trued_up"
    )


@pytest.mark.parametrize(
    ("services", "charges", "words"),
    [
        ((held(), held(node="n2")), (charge(), charge(node="n2", currency="CNY")), "billed in CNY and USD"),
        ((held(), held(node="n2")), (charge(currency="CNY"),), "billed and priced in CNY and USD"),
    ],
    ids=["two bills", "a bill and a rate"],
)
def test_two_currencies_are_never_added(services: tuple[NodeService, ...], charges: tuple[NodeCharge, ...], words: str) -> None:
    found = priced(services, charges)
    assert found.amount is None
    assert words in found.reason


def test_a_machine_without_a_bill_and_without_a_rate_leaves_the_window_unpriced() -> None:
    found = priced((held(), replace(held(node="n2"), gpu_type="H100")), (charge(),))
    assert found.amount is None
    assert "H100" in found.reason


def test_a_billed_machine_pays_no_node_hour_and_no_energy_on_top() -> None:
    rates = (
        LIST,
        Rate("node_hour", "n1", money("5", "USD"), "list", "rack", LIST.valid_from),
        Rate("kwh", "lab", money("0.2", "USD"), "list", "tariff", LIST.valid_from),
    )
    by_rates = priced((held(),), (), rates=rates)
    found = priced((held(),), (charge(),), rates=rates)
    use = {held(): GpuUse(energy_uj=3_600_000_000_000)}
    assert with_energy(by_rates, use, rates, QUARTERS[0])[0].amount == Decimal("8.1925") + Decimal("1.25") + Decimal("0.2")
    assert with_energy(found, use, rates, QUARTERS[0]) == (found, {})


def test_credits_above_the_hours_cost_still_close() -> None:
    closed = close_window(
        WindowInputs(
            D, QUARTERS[0], (held(),), (LIST,), (), (), None, hour_services=(held(),),
            charges=(charge(), charge(bucket="credit", effective=Decimal(-20), hours=Decimal(0), resource_id="i-1")),
        )
    )  # fmt: skip
    assert closed.capacity_cost == Decimal("-1.75") == sum(line.cost for line in closed.lines)
    assert sum(line.allocated for line in closed.lines) == closed.capacity_cost


def test_a_delivery_that_repeats_an_hour_is_no_new_input_but_one_that_is_final_is() -> None:
    inputs = WindowInputs(D, QUARTERS[0], (held(),), (LIST,), (), (), None, charges=(charge(),), hour_services=(held(),))
    again = replace(inputs, charges=(charge(delivery=2, source="aws cur 2026-07 v2", effective=Decimal("13.000")),))
    assert again.digest() == inputs.digest()
    assert replace(inputs, charges=(charge(is_final=True),)).digest() != inputs.digest()
    assert replace(inputs, hour_services=(held(), held(E, since=T0 + HOUR / 2))).digest() != inputs.digest()

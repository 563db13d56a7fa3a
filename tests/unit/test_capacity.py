"""What reserved GPUs cost: unlike GPUs, shared nodes, changing prices, charge bases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from core.capacity import NodeService, TargetTime, capacity_cost
from core.money import money
from core.rates import ChargeBasis, Rate, RateKind
from core.time_split import split_time
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window

D, E = Deployment("c", "n", "m"), Deployment("c", "n", "other")
T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = Window(T0, T0 + timedelta(hours=1))
BEFORE = T0 - timedelta(days=1)


def rate(sku: str, price: str, *, kind: RateKind = "gpu_hour", basis: ChargeBasis = "list", since: datetime = BEFORE) -> Rate:
    return Rate(kind, sku, money(price, "USD"), basis, f"{basis} prices", since)


def service(
    deployment: Deployment = D, gpu: str = "A10G", count: int = 1, node: str = "node1", since: datetime = BEFORE
) -> NodeService:
    return NodeService(deployment, f"http://{deployment.model_id}/{gpu}", node, gpu, count, since)


def test_unlike_gpus_on_one_node_are_summed_not_maxed() -> None:
    services = [service(gpu="A100", count=4), service(gpu="L4", count=2)]
    assert capacity_cost(D, HOUR, services, [rate("A100", "2"), rate("L4", "0.5")]).amount == Decimal(9)


def test_an_eight_gpu_node_a_quarter_busy() -> None:
    capacity = capacity_cost(D, HOUR, [service(count=8)], [rate("A10G", "4")])
    hour_us = 3_600_000_000
    parts = split_time(capacity, [TargetTime("http://m/A10G", hour_us, hour_us // 4, 0)], gateway_busy_ppm=0, engine_worked=True)
    assert (capacity.amount, parts.used, parts.idle, parts.starting) == (Decimal(32), Decimal(8), Decimal(24), Decimal(0))
    assert parts.utilisation_ppm == 250_000


def test_a_price_change_inside_a_quarter_hour_is_integrated_exactly() -> None:
    rates = [rate("A10G", "1.006"), rate("A10G", "2.006", since=T0 + timedelta(minutes=6))]
    capacity = capacity_cost(D, Window(T0, T0 + QUARTER_HOUR), [service()], rates)
    assert capacity.amount == Decimal("0.4015")


def test_a_node_price_is_shared_by_gpu_time_and_handed_out_once() -> None:
    services = [service(count=6), service(E, count=2)]
    rates = [rate("A10G", "1"), rate("node1", "1.60", kind="node_hour")]
    own, other = (capacity_cost(d, HOUR, services, rates).amount for d in (D, E))
    assert (own, other) == (Decimal("7.20"), Decimal("2.40"))


def test_the_basis_nearest_to_the_bill_is_used_for_all_of_a_window() -> None:
    services = [service(), service(gpu="L4")]
    lists = [rate("A10G", "1"), rate("L4", "1")]
    mixed = [*lists, rate("A10G", "0.4", basis="effective")]
    whole = [*mixed, rate("L4", "0.4", basis="effective")]
    assert capacity_cost(D, HOUR, services, mixed).charge_basis == "list"
    found = capacity_cost(D, HOUR, services, whole)
    assert (found.charge_basis, found.amount, found.price_source) == ("effective", Decimal("0.8"), "effective prices (effective)")


def test_one_unknown_price_leaves_the_whole_unknown() -> None:
    found = capacity_cost(D, HOUR, [service(), service(gpu="TPU9")], [rate("A10G", "1")])
    assert found.amount is None
    assert "TPU9" in found.reason


def test_without_an_inventory_the_cost_is_unknown_not_zero() -> None:
    found = capacity_cost(D, HOUR, [service(E)], [rate("A10G", "1")])
    assert found.amount is None
    assert "declare" in found.reason


def test_two_currencies_in_one_window_are_not_added() -> None:
    rates = [rate("A10G", "1"), Rate("gpu_hour", "L4", money(7, "CNY"), "list", "x", BEFORE)]
    found = capacity_cost(D, HOUR, [service(), service(gpu="L4")], rates)
    assert found.amount is None
    assert "CNY and USD" in found.reason


def test_a_node_in_service_for_part_of_the_window() -> None:
    assert capacity_cost(D, HOUR, [service(since=T0 + timedelta(minutes=45))], [rate("A10G", "1.006")]).amount == Decimal(
        "0.2515"
    )


def test_engine_time_under_another_name_serves_the_services_without_and_is_reported() -> None:
    one = capacity_cost(D, HOUR, [service()], [rate("A10G", "1")])
    lone = TargetTime("http://renamed", 3_600_000_000, 3_600_000_000, 0)
    paired = split_time(one, [lone], gateway_busy_ppm=0, engine_worked=True)
    assert (paired.used, paired.notes) == (Decimal(1), {"unmatched_targets": ["http://renamed"]})
    two = capacity_cost(D, HOUR, [service(), service(gpu="L4")], [rate("A10G", "1"), rate("L4", "1")])
    halved = split_time(two, [lone], gateway_busy_ppm=0, engine_worked=True)
    assert (halved.used, halved.starting) == (Decimal(1), Decimal(1))

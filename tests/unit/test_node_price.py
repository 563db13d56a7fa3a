"""A machine's price as parts that add up to it: GPUs, CPU, memory; slices and time shares of one GPU sum to one."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.money import QUANTUM, total
from core.node_price import (
    ComponentRates,
    Shape,
    by_aws_weights,
    by_component_rates,
    each_gpu,
    slice_parts,
    time_parts,
)
from ingest.billing.instance_types import instance_type

PRICES = st.decimals(-1000, 1000, places=15)


def test_h1_component_rates_are_scaled_to_the_price() -> None:
    """g4dn.xlarge at 0.526: the rounded component rates give 0.526002825."""
    shape = Shape({"T4": 1}, 4, Decimal("15.325"))
    rates = ComponentRates(Decimal("0.010603"), Decimal("0.001421"), {"T4": Decimal("0.461814")})
    parts = by_component_rates(Decimal("0.526"), shape, rates)
    assert parts.whole == Decimal("0.526")
    assert parts.gpu["T4"] == Decimal("0.461811519739")
    assert (parts.cpu, parts.memory) == (Decimal("0.042411772218"), Decimal("0.021776708043"))
    with pytest.raises(BadInput, match="no component rate"):
        by_component_rates(Decimal(1), Shape({"L4": 1}, 4, 16), rates)


def test_h1_eight_gpus_cost_an_eighth_each() -> None:
    """Not the node's GPU price for each GPU."""
    parts = by_aws_weights(Decimal("32.7726"), Shape({"A100-40GB": 8}, 96, 1152))
    assert parts.gpu["A100-40GB"] == Decimal("29.49534")
    assert each_gpu(parts.gpu["A100-40GB"], 8) == (Decimal("3.6869175"),) * 8


def test_aws_weights() -> None:
    """m5.xlarge at 1: a vCPU weighs nine GiB, 1 / (16 + 9 × 4) = 0.01923 a unit."""
    parts = by_aws_weights(Decimal(1), Shape({}, 4, 16))
    assert (parts.cpu, parts.memory, parts.gpu) == (Decimal("0.692307692308"), Decimal("0.307692307692"), {})
    with_gpu = by_aws_weights(Decimal(10), Shape({"T4": 1}, 4, 16))
    assert with_gpu.gpu["T4"] == Decimal(9)
    assert "9:1" in with_gpu.rule


@pytest.mark.parametrize(
    ("rates", "expected", "word"),
    [
        ({"A100": Decimal(4), "T4": Decimal(1)}, {"A100": "8.0", "T4": "1.0"}, "by list rates"),
        ({"A100": Decimal(4)}, {"A100": "6.0", "T4": "3.0"}, "alike"),
        (None, {"A100": "6.0", "T4": "3.0"}, "alike"),
    ],
)
def test_unlike_gpus_on_one_node(rates: dict[str, Decimal] | None, expected: dict[str, str], word: str) -> None:
    parts = by_aws_weights(Decimal(10), Shape({"A100": 2, "T4": 1}, 4, 16), rates)
    assert dict(parts.gpu) == {name: Decimal(text) for name, text in expected.items()}
    assert word in parts.rule


def test_slices_and_time_shares_of_one_gpu_sum_to_one() -> None:
    assert slice_parts(Decimal(7), {"a": 3, "b": 2}) == {"a": Decimal(3), "b": Decimal(2), "": Decimal(2)}
    assert slice_parts(Decimal(7), {"a": 7}) == {"a": Decimal(7)}
    thirds = time_parts(Decimal(1), {"a": 1, "b": 1, "c": 1})
    assert (total(thirds.values()), max(thirds.values()) - min(thirds.values())) == (Decimal(1), QUANTUM)
    for wrong in ({"a": 5, "b": 3}, {"a": 0}, {"": 1}):
        with pytest.raises(BadInput):
            slice_parts(Decimal(7), wrong)


@given(
    price=PRICES,
    gpus=st.dictionaries(st.sampled_from(["A", "B", "C"]), st.integers(1, 16)),
    cpus=st.integers(1, 256),
    memory=st.integers(1, 4096),
    rates=st.none() | st.fixed_dictionaries({name: st.decimals("0.1", 50, places=4) for name in "ABC"}),
)
def test_parts_always_add_up(
    price: Decimal, gpus: dict[str, int], cpus: int, memory: int, rates: dict[str, Decimal] | None
) -> None:
    assert by_aws_weights(price, Shape(gpus, cpus, memory), rates).whole == price


@given(price=PRICES, count=st.integers(1, 16), slices=st.dictionaries(st.sampled_from("abc"), st.integers(1, 2)))
def test_shares_of_a_gpu_always_add_up(price: Decimal, count: int, slices: dict[str, int]) -> None:
    assert total(each_gpu(price, count)) == price
    assert total(slice_parts(price, slices).values()) == price


@pytest.mark.parametrize(
    ("provider", "name", "gpu", "gpus"),
    [
        ("aws", "p4d.24xlarge", "A100-40GB", 8),
        ("aws", "ml.p5.48xlarge", "H100-80GB", 8),
        ("aws", "p5.4xlarge", "H100-80GB", 1),
        ("azure", "Standard_ND96isr_H100_v5", "H100-80GB", 8),
        ("azure", "NC24ads A100 v4", "A100-80GB", 1),
        ("gcp", "a2-megagpu-16g", "A100-40GB", 16),
        ("", "g2-standard-24", "L4", 2),
    ],
)
def test_gpus_of_instance_types(provider: str, name: str, gpu: str, gpus: int) -> None:
    found = instance_type(provider, name)
    assert found is not None
    assert (found.gpu, found.gpus) == (gpu, gpus)


@pytest.mark.parametrize(("provider", "name"), [("aws", "m5.xlarge"), ("aws", "g6f.large"), ("aws", ""), ("mars", "x1")])
def test_what_is_not_in_the_table_is_not_known(provider: str, name: str) -> None:
    assert instance_type(provider, name) is None

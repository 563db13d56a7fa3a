"""Length buckets as people read them, and the spread of lengths."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.heat_map import doubling, doubling_label, quantile, spread
from core.lengths import bucket


@pytest.mark.parametrize(
    ("number", "label"),
    [
        (-1, "0 tokens"), (0, "1 token"), (1, "2–4 tokens"), (8, "256–512 tokens"), (9, "512–1024 tokens"),
        (10, "1–2 K tokens"), (12, "4–8 K tokens"), (17, "128–256 K tokens"), (19, "512–1024 K tokens"), (20, "1–2 M tokens"),
    ],
)  # fmt: skip
def test_a_bucket_reads(number: int, label: str) -> None:
    assert doubling_label(number) == label


@given(st.integers(0, 10**8))
def test_a_length_lies_in_its_doubling(length: int) -> None:
    number = doubling(bucket(length))
    assert number == -1 if length == 0 else (1 << number) <= length < (2 << number)


def histogram(lengths: list[int]) -> Counter[int]:
    return Counter(bucket(length) for length in lengths)


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=200), st.sampled_from(["0.5", "0.9", "1"]))
def test_a_quantile_is_right_to_a_bucket(lengths: list[int], share: str) -> None:
    ordered = sorted(lengths)
    exact = ordered[ceil(len(ordered) * Decimal(share)) - 1]
    found = quantile(histogram(lengths), Decimal(share))
    assert found is not None
    assert exact / Decimal("1.2") - 1 <= found <= exact * Decimal("1.2") + 1


def test_the_fields_four_to_one() -> None:
    assert spread(histogram([1000] * 60 + [8000] * 40)) > 4  # type: ignore[operator]
    assert spread(histogram([1000] * 100)) < Decimal("1.1")  # type: ignore[operator]


def test_no_spread_of_nothing_nor_of_empty_answers() -> None:
    assert spread({}) is None
    assert spread(histogram([0, 0, 0, 5])) is None
    assert quantile(histogram([0, 0]), Decimal("0.5")) == 0

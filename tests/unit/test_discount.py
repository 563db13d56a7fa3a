"""Typed discounts: what they make of list prices, and what goes before them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.discount import Discount, discounted
from core.errors import BadInput
from core.money import money
from core.rates import ChargeBasis, Rate, rate_at

AWS = "list price, bill pending: AWS on-demand us-east-1 p4d.24xlarge"


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def rate(price: str = "2.5", since: int = 1, until: int | None = None, *, basis: ChargeBasis = "list", source: str = AWS) -> Rate:
    return Rate("gpu_hour", "A100", money(price, "USD"), basis, source, day(since), day(until) if until else None)


def off(percent: str = "28", since: int = 5, until: int | None = None, provider: str = "aws") -> Discount:
    return Discount(provider, "gpu_hour", Decimal(percent), day(since), day(until) if until else None, "offer 7", "ann")


def price_at(rates: list[Rate], discounts: list[Discount], at: int) -> Decimal | None:
    found = rate_at(discounted(rates, discounts), "gpu_hour", "a100", day(at), "contracted").rate
    return found.price.amount if found else None


def test_the_label_stays_visible() -> None:
    (made,) = discounted([rate()], [off()])
    assert made.price == money("1.8", "USD")
    assert made.charge_basis == "contracted"
    assert made.source == f"list × (1 − 28 %), typed by ann (offer 7); {AWS}"
    assert (made.valid_from, made.valid_to) == (day(5), None)


@pytest.mark.parametrize(
    ("what", "rates", "discounts", "at", "price"),
    [
        ("before it begins", [rate()], [off()], 4, None),
        ("from its first instant", [rate()], [off()], 5, "1.8"),
        ("not at its end", [rate()], [off(until=8)], 8, None),
        ("another provider's list", [rate()], [off(provider="gcp")], 6, None),
        ("a word, not a part of one", [rate(source="Lawson racks")], [off()], 6, None),
        ("the list's new price from its day on", [rate(), rate("5", 10)], [off()], 12, "3.6"),
        ("its old one before, whatever was imported last", [rate("5", 10), rate()], [off()], 6, "1.8"),
        ("new prices where both began before", [rate("5", 2), rate("2.5", 3), rate("4", 1)], [off()], 6, "1.8"),
        ("no list price, none made", [rate(until=4)], [off()], 6, None),
        ("a billed rate is no list price", [rate(basis="billed")], [off()], 6, None),
        ("the later of two discounts", [rate()], [off("40", 7, 9), off()], 8, "1.5"),
        ("the earlier again after it", [rate()], [off("40", 7, 9), off()], 10, "1.8"),
        ("a signed price stands", [rate(), rate("2", 6, 8, basis="contracted")], [off()], 7, None),
        ("and not before it", [rate(), rate("2", 6, 8, basis="contracted")], [off()], 5, "1.8"),
        ("nor after it", [rate(), rate("2", 6, 8, basis="contracted")], [off()], 9, "1.8"),
        ("an open signed price for ever", [rate(), rate("2", 6, basis="contracted")], [off()], 30, None),
    ],
)
def test_when_which_price_is_made(what: str, rates: list[Rate], discounts: list[Discount], at: int, price: str | None) -> None:
    assert price_at(rates, discounts, at) == (Decimal(price) if price else None), what


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("percent", {"percent": Decimal(0)}), ("percent", {"percent": Decimal(100)}), ("percent", {"percent": Decimal("NaN")}),
        ("kind", {"kind": "pue"}), ("reason", {"reason": " "}), ("provider", {"provider": ""}),
        ("valid_to", {"valid_to": day(5)}),
    ],
)  # fmt: skip
def test_a_wrong_discount_is_named(field: str, changes: dict[str, object]) -> None:
    whole = {"provider": "aws", "kind": "gpu_hour", "percent": Decimal(28), "valid_from": day(5), "valid_to": None,
             "reason": "r", "typed_by": "ann"}  # fmt: skip
    with pytest.raises(BadInput) as caught:
        Discount(**{**whole, **changes})  # type: ignore[arg-type]
    assert caught.value.field == field


SPANS = st.tuples(st.integers(1, 27), st.integers(1, 27)).map(lambda pair: (min(pair), max(pair) + 1))


@given(st.lists(st.tuples(SPANS, st.integers(1, 99)), max_size=5), st.lists(st.tuples(SPANS, st.integers(1, 99)), max_size=3),
       st.integers(1, 28))  # fmt: skip
def test_it_is_the_list_price_of_the_moment_less_the_discount_of_the_moment(
    lists: list[tuple[tuple[int, int], int]], discounts: list[tuple[tuple[int, int], int]], at: int
) -> None:
    rates = [rate(str(price), *span) for span, price in lists]
    typed = [off(str(percent), *span) for span, percent in discounts]
    listed = rate_at(rates, "gpu_hour", "A100", day(at), "list").rate
    holds = [one for one in sorted(typed, key=lambda d: d.valid_from) if one.valid_from <= day(at) < (one.valid_to or day(31))]
    expected = listed.price.amount * (100 - holds[-1].percent) / 100 if listed and holds else None
    assert price_at(rates, typed, at) == expected

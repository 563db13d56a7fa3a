"""Rate cards: what is taken, and how each fault is named."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.rates import rate_at
from ingest.prices.rate_card import RateCard, default_rate_card, parse_rate_card, read_rate_card

HEAD = """version: 1
label: contract 7
currency: EUR
charge_basis: contracted
source: signed offer
rates:
"""
ONE = HEAD + "  - {kind: gpu_hour, sku: A10G, price: 0.9, valid_from: 2026-01-01}\n"


def test_a_card_with_defaults() -> None:
    (rate,) = parse_rate_card(ONE.encode()).rates
    assert (rate.price.amount, rate.price.currency) == (Decimal("0.9"), "EUR")
    assert (rate.charge_basis, rate.source) == ("contracted", "contract 7: signed offer")
    assert rate.valid_from == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_price_keeps_every_digit() -> None:
    text = ONE.replace("price: 0.9", "price: 0.100000000001")
    assert parse_rate_card(text.encode()).rates[0].price.amount == Decimal("0.100000000001")


@pytest.mark.parametrize(
    ("text", "where", "field", "message"),
    [
        ("", "card:", "", "is empty"),
        ("rates: [", "card:1", "", "is not YAML"),
        ("just text", "card:1", "", "must be a mapping"),
        (ONE.replace("version: 1", "version: 2"), "card:1", "version", "must be 1"),
        (HEAD + "  []\n", "card:7", "rates", "at least one rate"),
        (HEAD + "  - {kind: gpu_hour, sku: A10G, valid_from: 2026-01-01}\n", "card:7", "price", "is missing"),
        (ONE.replace("price: 0.9", "price: cheap"), "card:7", "price", "not a decimal number"),
        (ONE.replace("price: 0.9", "price: .nan"), "card:7", "price", "not a decimal number"),
        (ONE.replace("price: 0.9", "price: NaN"), "card:7", "price", "finite"),
        (ONE.replace("price: 0.9", "price: -1"), "card:7", "price", "must not be negative"),
        (ONE.replace("price: 0.9", "price: 734.38"), "card:7", "price", "confirmed: true"),
        (ONE.replace("price: 0.9", "price: 0.0000000000001"), "card:7", "price", "more than 12 decimals"),
        (ONE.replace("kind: gpu_hour", "kind: gpu_month"), "card:7", "kind", "must be one of"),
        (ONE.replace("2026-01-01", "2026-01-01T00:00:00"), "card:7", "valid_from", "time has no zone"),
        (ONE.replace("2026-01-01", "soon"), "card:7", "valid_from", "not a time"),
        (ONE.replace("2026-01-01", "2026-01-01, valid_to: 2025-01-01"), "card:7", "valid_to", "after valid_from"),
        (ONE.replace("currency: EUR", "currency: euros"), "card:3", "currency", "ISO 4217"),
        (ONE.replace("sku: A10G", "sku: A10G, colour: red"), "card:7", "colour", "unknown field"),
        (ONE.replace("sku: A10G", "sku: A10G, sku: L4"), "card:7", "sku", "given twice"),
        (ONE.replace("sku: A10G", "sku: {a: b}"), "card:7", "sku", "one value"),
    ],
)
def test_each_fault_says_line_and_field(text: str, where: str, field: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_rate_card(text.encode(), "card")
    assert str(error.value).startswith(where)
    assert error.value.field == field
    assert message in str(error.value)


def test_a_confirmed_price_is_taken() -> None:
    text = ONE.replace("price: 0.9", "price: 734.38, confirmed: true")
    assert parse_rate_card(text.encode()).rates[0].price.amount == Decimal("734.38")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_a_card_or_bad_input(body: bytes) -> None:
    with contextlib.suppress(BadInput):
        assert isinstance(parse_rate_card(body), RateCard)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_rate_card(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("sku", "at", "price"),
    [
        ("A10G", datetime(2026, 11, 30, tzinfo=UTC), "1.006"),
        ("nvidia h100 80gb", datetime(2025, 1, 1, tzinfo=UTC), "12.29"),
        ("H100-80GB", datetime(2026, 11, 30, tzinfo=UTC), "6.88"),
        ("A100-40GB", datetime(2026, 11, 30, tzinfo=UTC), "2.74470525"),
        ("A10G-24GB@g5.48xlarge", datetime(2026, 11, 30, tzinfo=UTC), "2.036"),
    ],
)
def test_the_card_that_ships(sku: str, at: datetime, price: str) -> None:
    card = default_rate_card()
    answer = rate_at(card.rates, "gpu_hour", sku, at, "list")
    assert answer.rate is not None
    assert answer.rate.price.amount == Decimal(price)
    assert answer.rate.source.startswith("list price, bill pending: AWS on-demand us-east-1")


def test_between_two_observed_price_lists_there_is_no_price() -> None:
    answer = rate_at(default_rate_card().rates, "gpu_hour", "H100-80GB", datetime(2025, 6, 15, tzinfo=UTC), "list")
    assert answer.rate is None
    assert answer.reason == "no list rate gpu_hour for H100-80GB at 2025-06-15T00:00:00+00:00"

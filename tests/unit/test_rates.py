"""Dated rates: which price is in force, what is unknown, what is a unit slip."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from core.errors import BadInput
from core.money import money
from core.rates import ChargeBasis, Rate, RateKind, check_price, priced_spans, rate_at, sku_key
from core.windows import Window

T = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def rate(price: str, since: datetime, until: datetime | None = None, *, sku: str = "A10G", basis: ChargeBasis = "list") -> Rate:
    return Rate("gpu_hour", sku, money(price, "USD"), basis, "test", since, until)


@pytest.mark.parametrize(
    ("rates", "price"),
    [
        ([rate("1", T - HOUR)], "1"),
        ([rate("1", T - HOUR), rate("2", T)], "2"),
        ([rate("2", T), rate("1", T - HOUR)], "2"),
        ([rate("1", T), rate("3", T)], "3"),
        ([rate("1", T - HOUR), rate("2", T - HOUR / 2, T)], "1"),
        ([rate("1", T - HOUR, T)], None),
        ([rate("1", T + HOUR)], None),
        ([rate("1", T - HOUR, sku="L4")], None),
        ([rate("1", T - HOUR, basis="billed")], None),
    ],
)
def test_the_last_matching_dated_entry_wins(rates: list[Rate], price: str | None) -> None:
    answer = rate_at(rates, "gpu_hour", "A10G", T, "list")
    if price is None:
        assert answer.rate is None
        assert "A10G" in answer.reason
    else:
        assert answer.rate is not None
        assert answer.rate.price == money(price, "USD")


def test_a_change_inside_a_window_cuts_it() -> None:
    spans, reason = priced_spans([rate("1", T - HOUR), rate("2", T + HOUR / 4)], "gpu_hour", "A10G", Window(T, T + HOUR), "list")
    assert reason == ""
    assert [(s.span.duration, s.rate.price.amount) for s in spans] == [(HOUR / 4, Decimal(1)), (HOUR * 3 / 4, Decimal(2))]


def test_a_hole_inside_a_window_leaves_all_of_it_unknown() -> None:
    holed = [rate("1", T - HOUR, T + HOUR / 4), rate("1", T + HOUR / 2)]
    spans, reason = priced_spans(holed, "gpu_hour", "A10G", Window(T, T + HOUR), "list")
    assert spans == ()
    assert reason == "no list rate gpu_hour for A10G at 2026-11-30T12:15:00+00:00"


@pytest.mark.parametrize("name", ["A100 80GB", "a100-80gb", "NVIDIA A100 80GB", "nvidia_a100_80gb"])
def test_spellings_of_a_gpu(name: str) -> None:
    assert sku_key(name) == "a100-80gb"


@pytest.mark.parametrize(
    ("kind", "price", "currency", "taken"),
    [
        ("gpu_hour", "1.006", "USD", True),
        ("gpu_hour", "734.38", "USD", False),
        ("gpu_hour", "0", "USD", False),
        ("gpu_hour", "150", "JPY", True),
        ("gpu_hour", "0.001", "USD", False),
        ("kwh", "0.12", "EUR", True),
        ("kwh", "120", "EUR", False),
        ("egress_gb", "0.09", "USD", True),
        ("node_hour", "98.32", "USD", True),
    ],
)
def test_a_price_out_of_bounds_is_refused_unless_confirmed(kind: RateKind, price: str, currency: str, taken: bool) -> None:
    checked = Rate(kind, "x", money(price, currency), "list", "test", T)
    check_price(checked, confirmed=True)
    if taken:
        check_price(checked)
    else:
        with pytest.raises(BadInput, match="check the unit"):
            check_price(checked)


@pytest.mark.parametrize(
    ("kind", "price", "currency", "said"),
    [
        (
            "gpu_hour",
            "734.38",
            "USD",
            "gpu_hour of x is outside 0.02..100 USD (value '734.38'). check the unit: one GPU for one hour",
        ),
        (
            "node_hour",
            "5000",
            "EUR",
            "node_hour of x is outside 0.001..2000 EUR (value '5000'). check the unit: one whole machine",
        ),
        ("kwh", "24", "EUR", "kwh of x is outside 0.005..5 EUR (value '24'). check the unit: one kWh in whole currency units"),
        ("egress_gb", "90", "CNY", "egress_gb of x is outside 0.0035..14 CNY (value '90'). check the unit: one GB that leaves"),
        ("pue", "128", "XXX", "pue of x is outside 1..4 (value '128'). check the factor: what the site draws"),
    ],
)
def test_a_price_out_of_bounds_is_told_in_the_words_of_its_kind(kind: RateKind, price: str, currency: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_price(Rate(kind, "x", money(price, currency), "list", "test", T))
    assert said in str(caught.value)
    assert str(caught.value).endswith("; add `confirmed: true` if it is right.")
    assert "XXX" not in str(caught.value)
    assert ("GPU" in str(caught.value)) == (kind in ("gpu_hour", "node_hour"))

"""Bands of a tariff: how they are written, the hours they cover, and days on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from core.errors import BadInput
from core.money import money
from core.rates import Rate, priced_spans, rate_at
from core.tariff import parse_band
from core.windows import Window

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def kwh(price: str, band: str = "", since: datetime = SINCE) -> Rate:
    return Rate("kwh", "rack", money(price, "EUR"), "contracted", "contract", since, band=parse_band(band) if band else None)


@pytest.mark.parametrize(
    ("text", "at", "inside"),
    [
        ("mon-fri 08:00-20:00 Europe/Berlin", "2026-07-06T06:00:00Z", True),  # Monday, 08:00 there
        ("mon-fri 08:00-20:00 Europe/Berlin", "2026-07-06T05:45:00Z", False),
        ("mon-fri 08:00-20:00 Europe/Berlin", "2026-07-06T18:00:00Z", False),  # the end is not in it
        ("mon-fri 08:00-20:00 Europe/Berlin", "2026-07-05T10:00:00Z", False),  # Sunday
        ("mon-fri 08:00-20:00 Europe/Berlin", "2026-01-05T07:00:00Z", True),  # winter: one hour later in UTC
        ("fri 22:00-06:00 UTC", "2026-07-04T05:45:00Z", True),  # the night after Friday
        ("fri 22:00-06:00 UTC", "2026-07-03T05:45:00Z", False),  # the night before it is Thursday's
        ("fri-mon 00:00-24:00 Asia/Shanghai", "2026-07-05T16:00:00Z", True),  # Monday there
        ("sat,sun 00:00-24:00 UTC", "2026-07-04T00:00:00Z", True),
        ("all 00:00-00:15 Asia/Kathmandu", "2026-07-03T18:15:00Z", True),  # UTC+5:45
    ],
)
def test_what_a_band_covers(text: str, at: str, inside: bool) -> None:
    assert parse_band(text).covers(datetime.fromisoformat(at)) is inside


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no band"), ("mon 8-20 UTC", "no band"), ("mon-fri 08:00-20:00", "no band"), ("mo 08:00-20:00 UTC", "names a day"),
        ("all 08:10-20:00 UTC", "quarter hours"), ("all 08:00-24:15 UTC", "quarter hours"), ("all 08:00-08:00 UTC", "empty"),
        ("all 08:00-20:00 Mars/Base", "unknown time zone"),
    ],
)  # fmt: skip
def test_a_wrong_band_is_named(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_band(text)


@pytest.mark.parametrize("text", ["mon-fri 08:00-20:00 Europe/Berlin", "sat-mon 22:00-06:00 UTC", "all 00:00-24:00 UTC"])
def test_a_band_is_read_as_it_is_written(text: str) -> None:
    assert parse_band(str(parse_band(text))) == parse_band(text)


@pytest.mark.parametrize(
    ("day", "hours", "night"),
    [("2026-03-29", 23, 1), ("2026-10-25", 25, 3), ("2026-07-05", 24, 2)],  # Berlin: forward, back, neither
)
def test_a_day_on_which_clocks_change(day: str, hours: int, night: int) -> None:
    """01:00-03:00 is one hour long in spring and three in autumn; the rest of the day has the other price."""
    start = datetime.fromisoformat(f"{day}T00:00:00Z") - timedelta(hours=1 if day != "2026-10-25" else 2)
    start = start if day != "2026-07-05" else start - timedelta(hours=1)
    rates = [kwh("0.30"), kwh("0.10", "all 01:00-03:00 Europe/Berlin")]
    spans, reason = priced_spans(rates, "kwh", "rack", Window(start, start + timedelta(hours=hours)), "contracted")
    assert reason == ""
    cheap = sum((s.span.duration for s in spans if s.rate.price.amount == Decimal("0.10")), timedelta())
    assert cheap == timedelta(hours=night)
    assert sum((s.span.duration for s in spans), timedelta()) == timedelta(hours=hours)


def test_a_later_price_without_bands_ends_the_bands_before_it() -> None:
    rates = [kwh("0.10", "all 00:00-24:00 UTC"), kwh("0.30", since=SINCE + timedelta(days=30))]
    prices = [rate_at(rates, "kwh", "rack", SINCE + timedelta(days=d), "contracted").rate for d in (1, 40)]
    assert [p.price.amount if p else None for p in prices] == [Decimal("0.10"), Decimal("0.30")]


def test_an_hour_in_no_band_has_no_price() -> None:
    answer = rate_at([kwh("0.10", "all 08:00-20:00 UTC")], "kwh", "rack", SINCE, "contracted")
    assert (answer.rate, "no contracted rate kwh" in answer.reason) == (None, True)


def test_bands_leave_the_text_of_other_rates_as_it_was() -> None:
    """Digests of closed windows rest on it."""
    assert "band" not in repr(kwh("0.30"))
    assert "Band(" in repr(kwh("0.30", "all 08:00-20:00 UTC"))


@pytest.mark.parametrize(
    ("field", "kind", "currency", "band"),
    [("band", "gpu_hour", "USD", "all 08:00-20:00 UTC"), ("currency", "pue", "USD", ""), ("currency", "kwh", "XXX", "")],
)
def test_bands_are_for_power_and_a_pue_has_no_currency(field: str, kind: str, currency: str, band: str) -> None:
    with pytest.raises(BadInput) as caught:
        Rate(kind, "rack", money("1.3", currency), "list", "s", SINCE, band=parse_band(band) if band else None)  # type: ignore[arg-type]
    assert caught.value.field == field

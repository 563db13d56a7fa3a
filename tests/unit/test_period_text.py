"""Periods as people write them."""

from __future__ import annotations

from datetime import datetime

import pytest

from core.errors import BadInput
from core.period_text import parse_period


@pytest.mark.parametrize(
    ("text", "zone", "start", "end"),
    [
        ("2026-06", "UTC", "2026-06-01T00:00Z", "2026-07-01T00:00Z"),
        ("2026-06", "Asia/Shanghai", "2026-05-31T16:00Z", "2026-06-30T16:00Z"),
        ("2026-W23", "UTC", "2026-06-01T00:00Z", "2026-06-08T00:00Z"),
        ("2026-10-25", "Europe/Berlin", "2026-10-24T22:00Z", "2026-10-25T23:00Z"),
        ("2026-06-01..2026-06-03", "Asia/Shanghai", "2026-05-31T16:00Z", "2026-06-02T16:00Z"),
        ("2026-06-01T10:00:00Z..2026-06-01T14:00:00+02:00", "UTC", "2026-06-01T10:00Z", "2026-06-01T12:00Z"),
    ],
)
def test_a_period_is_a_half_open_window_of_the_zone(text: str, zone: str, start: str, end: str) -> None:
    window = parse_period(text, "--from", zone)
    assert (window.start, window.end) == (datetime.fromisoformat(start), datetime.fromisoformat(end))


@pytest.mark.parametrize(
    "text", ["", "June", "2026-13", "2026-W60", "2026-06-31", "2026-06-01..", "1..2..3", "0001-W00", "2026-06-02..2026-06-01"]
)
def test_what_is_no_period_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_period(text, "--from", "UTC")
    assert refused.value.field in ("--from", "window_end")


@pytest.mark.parametrize("text", ["2026-06-01T10:00:00..2026-06-01T14:00:00Z", "0001-01-01", "9999-12-31"])
def test_a_time_needs_a_zone_and_years_that_exist(text: str) -> None:
    with pytest.raises(BadInput):
        parse_period(text, "--to", "Asia/Shanghai")

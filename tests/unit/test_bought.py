"""Bought quarter hours: lines add up to the whole, order and copies change nothing, every token is priced or in a hole."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.bought import NOTHING_IDLE, BoughtInputs, bought_sums, close_bought, sold_word
from core.money import ZERO, total
from core.running import units_from_text
from core.tokens import TokenCounts
from core.usage import Deployment, TenantPath, UsageRecord
from core.vendor_book import PriceBook
from core.vendor_list import ModelSheet, PriceEntry, Rule
from core.vendor_price import TokenPrices
from core.windows import QUARTER_HOUR, Window
from ingest.usage.litellm import call_of
from ingest.usage.litellm_call import record_of
from ingest.usage.rows import SourceOptions

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
CHAT = Deployment("vendor", "acme", "chat")
WINDOW = Window(NOON, NOON + QUARTER_HOUR)


def record(request_id: str, **changes: Any) -> UsageRecord:
    values: dict[str, Any] = {
        "started_at": NOON, "finished_at": NOON + timedelta(minutes=3), "deployment": CHAT, "tenant": TenantPath("o", "t"),
        "tokens": TokenCounts(1_000, 500, output=200), "provider": "acme", **changes,
    }  # fmt: skip
    return UsageRecord(request_id=request_id, **values)


def book(*entries: PriceEntry) -> PriceBook:
    sheet = ModelSheet("genai-prices", "acme", "chat", (Rule("exact", "chat"),), entries, NOON - timedelta(days=30), "list")
    return PriceBook((sheet,))


def priced(input_: str, output: str, cached: str | None, **more: Any) -> PriceEntry:
    return PriceEntry(TokenPrices("USD", Decimal(input_), Decimal(output), Decimal(cached) if cached else None), **more)


records = st.lists(
    st.builds(
        record,
        request_id=st.integers(0, 12).map(str),
        tenant=st.sampled_from([TenantPath("o", "a"), TenantPath("o", "b"), TenantPath()]),
        status=st.sampled_from(["ok", "error", "aborted", "refused"]),
        tokens=st.builds(
            TokenCounts, st.integers(0, 300_000), st.integers(0, 9), st.integers(0, 9), st.just(0), st.integers(0, 9)
        ),
        raw=st.sampled_from([{}, {"service_tier": "batch"}, {"service_tier": "flex"}]),
    ),
    max_size=10,
)
PRICES = book(
    priced("0.333333333333333", "8", None), priced("0.7", "9", "0.1", above_tokens=128_000), priced("1", "2", "3", tier="batch")
)


def inputs(found: list[UsageRecord]) -> BoughtInputs:
    return BoughtInputs(CHAT, WINDOW, tuple(bought_sums(found).get((CHAT, NOON), {}).values()))


@given(records, st.randoms(use_true_random=False))
def test_lines_add_up_and_every_token_is_priced_or_in_a_hole(found: list[UsageRecord], order: random.Random) -> None:
    once = list({r.request_id: r for r in reversed(found)}.values())
    window = close_bought(inputs(found), PRICES)
    lines, holes = window.closed.lines, window.holes
    assert total(line.cost for line in lines) == total(line.allocated for line in lines) == (window.closed.capacity_cost or ZERO)
    kept = [r for r in once if r.status != "refused" or r.tokens.input_total + r.tokens.output]
    assert sum(line.tokens for line in lines) + sum(h.tokens.total for h in holes) == sum(
        r.tokens.input_total + r.tokens.output for r in kept
    )
    shuffled = list(once)
    order.shuffle(shuffled)
    again = close_bought(inputs(shuffled), PRICES)
    assert (again.closed.lines, again.closed.detail, set(again.holes)) == (lines, window.closed.detail, set(holes))


@given(records)
def test_splitting_a_tenant_leaves_the_sum(found: list[UsageRecord]) -> None:
    once = list({r.request_id: r for r in found}.values())
    split = [replace(r, tenant=TenantPath("o", f"team{n}")) for n, r in enumerate(once)]
    whole, parts = close_bought(inputs(once), PRICES).closed, close_bought(inputs(split), PRICES).closed
    assert whole.capacity_cost == parts.capacity_cost


def test_without_any_price_the_cost_is_unknown_and_not_zero() -> None:
    window = close_bought(inputs([record("a"), record("b")]), PriceBook())
    assert (window.closed.capacity_cost, window.closed.lines, window.closed.utilisation_source) == (None, (), "")
    (hole,) = window.holes
    assert (hole.requests, hole.tokens.total) == (2, 3_400)
    assert hole.hint == "import a list: tokenfuse rates import FILE --format genai-prices"
    assert window.closed.detail["unpriced"] == {"requests": 2, "input": 2_000, "input_cached": 1_000, "output": 400}


def test_what_is_free_costs_nothing_and_is_known() -> None:
    free = PriceEntry(TokenPrices("USD", *[Decimal(0)] * 6), free=True)
    window = close_bought(inputs([record("a")]), book(free))
    assert (window.closed.capacity_cost, window.holes, window.closed.utilisation_source) == (0, (), NOTHING_IDLE)


def test_missing_usage_is_a_hole() -> None:
    window = close_bought(inputs([record("a", tokens=TokenCounts(), usage_source="missing")]), PRICES)
    assert (window.closed.capacity_cost, window.holes[0].reason) == (None, "the vendor's usage is missing")


def test_until_the_next_close_tokens_are_estimated_at_this_ones_prices() -> None:
    closed = close_bought(inputs([record("a")]), book(priced("2", "8", "0.5"))).closed
    units = units_from_text(closed.detail["running"], closed.currency, "last")
    assert (units.weights.input, units.weights.input_cached, units.weights.output) == (
        Decimal("0.000002"), Decimal("0.0000005"), Decimal("0.000008"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "sold"),
    [
        ({}, "standard"),
        ({"service_tier": "default"}, "standard"),
        ({"service_tier": "Batch"}, "batch"),
        ({"service_tier": "priority", "litellm": {"service_tier": "flex"}}, "priority"),
        ({"service_tier": None, "litellm": {"service_tier": "flex"}}, "flex"),
        ({"service_tier": 3, "litellm": "x"}, "standard"),
    ],
)
def test_how_a_request_was_sold(raw: dict[str, Any], sold: str) -> None:
    assert sold_word(record("a", raw=raw)) == sold


def test_litellm_says_how_a_call_asked_to_be_sold() -> None:
    payload = {
        "id": "chatcmpl-1", "litellm_call_id": "c1", "call_type": "acompletion", "status": "success", "startTime": 1764500000.0,
        "endTime": 1764500002.0, "model": "openai/gpt-5", "custom_llm_provider": "openai", "api_base": "https://api.openai.com/v1",
        "prompt_tokens": 10, "completion_tokens": 5, "model_parameters": {"service_tier": "flex"},
        "metadata": {"usage_object": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
    }  # fmt: skip
    found = record_of(call_of(payload), SourceOptions())
    assert (str(found.deployment), sold_word(found)) == ("vendor/openai/gpt-5", "flex")

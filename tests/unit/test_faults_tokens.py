"""The catalogue of token and cost faults met in the field (public trackers), each with its right value.

An entry another part owns is named with the tests that hold it; those must exist. Prices are per million tokens.
"""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from usage_samples import MemoryLog, ingest_into, parsed, usage_item

from core.breaker import step
from core.breaker_values import Breaker, BreakerPolicy, CapReading, CapSignal
from core.errors import BadInput, BadRecord, CurrencyMismatch
from core.money import Money, money
from core.tokens import TokenCounts
from core.usage_objects import stream_usage, tokens_from_usage, unmapped_fields
from core.vendor_price import TokenPrices, check_token_prices, vendor_cost
from core.windows import period_window
from ingest.usage.rows import BadRow, Prepared

TESTS = Path(__file__).parents[1]
Usage = dict[str, Any]


def prices(plain: str, output: str, read: str | None = None, write: str | None = None, **more: str) -> TokenPrices:
    optional = {"cache_read": read, "cache_write_5m": write, **more}
    known = {name: Decimal(text) for name, text in optional.items() if text is not None}
    return TokenPrices("USD", Decimal(plain), Decimal(output), **known)


def cost(tokens: TokenCounts, at: TokenPrices) -> Decimal:
    found = vendor_cost(tokens, at)
    assert found.cost is not None, found.reason
    return found.cost.amount


def openai(prompt: int, output: int, **details: int) -> Usage:
    return {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details}


B01_TRUE = openai(50, 900) | {"completion_tokens_details": {"reasoning_tokens": 840}}
PRICED: list[tuple[str, list[Usage], TokenPrices, str]] = [
    ("B01 the truth of three calls", [B01_TRUE] * 3, prices("2", "8"), "0.0219"),
    ("B01 what a guess of one stream made of it", [B01_TRUE, B01_TRUE, openai(9, 3)], prices("2", "8"), "0.014642"),
    ("B02 buffered and streamed alike", [openai(16111, 2, cached_tokens=15872)], prices("0.2", "0", "0.05"), "0.0008414"),
    ("B03.1", [openai(2006, 300, cached_tokens=1920)], prices("2", "8", "0.5"), "0.003532"),
    ("B03.2", [openai(27147, 351, cached_tokens=27146)], prices("1.4", "4.4", "0.26"), "0.00860376"),
    ("B03.3", [openai(172_000, 0, cached_tokens=155_000, cache_write_tokens=3_000)], prices("5", "0", "0.5", "6.25"), "0.16625"),
    ("B03.4 custom prices use the cache rate too", [openai(6074, 285, cached_tokens=3456)], prices("1", "0", "0.1"), "0.0029636"),
    ("B05 writes", [openai(10000, 100, cached_tokens=2000, cache_write_tokens=5000)], prices("2", "8", "0.2", "2.5"), "0.0197"),
    ("B19 one row of 120/30", [openai(120, 30)], prices("2", "8"), "0.00048"),
    ("B19 a price of few tokens is not rounded away", [openai(25, 0)], prices("0.075", "0"), "0.000001875"),
    ("reasoning at its own price is not sold as output too", [B01_TRUE], prices("2", "8", reasoning="10"), "0.00898"),
    (
        "two write prices",
        [{"input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 30,
          "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}}],
        prices("3", "15", "0.3", "3.75", cache_write_1h="6"), "0.0001905",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("usages", "at", "right"), [case[1:] for case in PRICED], ids=[case[0] for case in PRICED])
def test_priced_exactly(usages: list[Usage], at: TokenPrices, right: str) -> None:
    assert sum((cost(tokens_from_usage(usage), at) for usage in usages), Decimal(0)) == Decimal(right)


def test_b19_a_million_rows_drift_by_nothing() -> None:
    row = cost(tokens_from_usage(openai(120, 30)), prices("2", "8"))
    assert sum((row for _ in range(1_000_000)), Decimal(0)) == Decimal("480.000000")
    assert str(row.normalize()) == "0.00048"


@pytest.mark.parametrize(
    ("price", "taken"), [("15000", False), ("1000", True), ("0.15", True), ("0.0001", True), ("0.00000015", False), ("0", False)]
)
def test_b19_a_price_in_another_unit_is_refused_unless_confirmed(price: str, taken: bool) -> None:
    at = prices(price, "8")
    check_token_prices(at, confirmed=True)
    if taken:
        check_token_prices(at)
        return
    with pytest.raises(BadInput) as caught:
        check_token_prices(at)
    assert (caught.value.field, caught.value.value) == ("input", price)


def test_b19_currencies_are_converted_at_a_rate_or_not_added() -> None:
    euros, dollars = money("10", "EUR"), money("5", "USD")
    assert Money(euros.times(Decimal("1.10")).amount, "USD") + dollars == money("16.00", "USD")
    with pytest.raises(CurrencyMismatch):
        _ = euros + dollars


def test_a_missing_price_is_unknown_not_zero() -> None:
    found = vendor_cost(tokens_from_usage(openai(2006, 300, cached_tokens=1920)), prices("2", "8"))
    assert (found.cost, found.reason) == (None, "1920 tokens of cache_read and no price for them")
    assert cost(tokens_from_usage(openai(86, 300)), prices("2", "8")) == Decimal("0.002572")


COUNTS = st.integers(0, 10**6)


@given(COUNTS, COUNTS, COUNTS)
def test_b03_a_cached_token_never_costs_more_than_a_fresh_one(fresh: int, cached: int, output: int) -> None:
    at = prices("2", "8", "0.5")
    with_cache = tokens_from_usage(openai(fresh + cached, output, cached_tokens=cached))
    without = tokens_from_usage(openai(fresh + cached, output))
    assert cost(with_cache, at) <= cost(without, at)
    assert with_cache.input_total == without.input_total


BUCKETS: list[tuple[str, Usage, tuple[int, int, int], int]] = [
    ("B06a Anthropic excludes its cache", {"input_tokens": 5, "cache_read_input_tokens": 128955,
     "cache_creation_input_tokens": 1253, "output_tokens": 1}, (5, 128955, 1253), 130213),
    ("B06a OTel includes it", {"gen_ai.usage.input_tokens": 130213, "gen_ai.usage.cache_read.input_tokens": 128955,
     "gen_ai.usage.cache_creation.input_tokens": 1253}, (5, 128955, 1253), 130213),
    ("B06b whatever name carries the cache", {"gen_ai.usage.input_tokens": 17903, "gen_ai.usage.input_cached_tokens": 17817},
     (86, 17817, 0), 17903),
    ("B06 13675 is 4459 and its cache", {"gen_ai.usage.input_tokens": 13675, "gen_ai.usage.input_cached_tokens": 9216},
     (4459, 9216, 0), 13675),
    ("B06c Codex", {"input_tokens": 117231, "output_tokens": 225, "input_tokens_details": {"cached_tokens": 115584}},
     (1647, 115584, 0), 117231),
    ("B06d", openai(100, 50, cached_tokens=30), (70, 30, 0), 100),
    ("B06 the opposite: 2 tokens a call are not all", {"input_tokens": 2, "cache_read_input_tokens": 90_000, "output_tokens": 9},
     (2, 90_000, 0), 90_002),
    ("B26 totals and parts are not added", {"prompt_tokens": 28, "completion_tokens": 12, "total_tokens": 40}, (28, 0, 0), 28),
    ("B15 n=8 is invoiced once", {"prompt_tokens": 59, "completion_tokens": 80}, (59, 0, 0), 59),
]  # fmt: skip


@pytest.mark.parametrize(("usage", "buckets", "total"), [case[1:] for case in BUCKETS], ids=[case[0] for case in BUCKETS])
def test_input_buckets_are_disjoint(usage: Usage, buckets: tuple[int, int, int], total: int) -> None:
    found = tokens_from_usage(usage)
    assert (found.input_uncached, found.input_cache_read, found.input_cache_write_5m) == buckets
    assert found.input_total == total


def test_b05_an_unknown_numeric_field_is_kept_and_counted() -> None:
    log = MemoryLog()
    ingest = ingest_into(log)
    item = usage_item(1, tokens=None, raw=openai(10, 1) | {"foo_tokens": 7})
    assert [verdict.verdict for verdict in ingest.accept(parsed("usage", json.dumps(item).encode()))] == ["accepted"]
    assert log.records()[0]["raw"]["foo_tokens"] == 7
    assert ingest.unmapped == {"foo_tokens": 1}
    assert unmapped_fields(openai(10, 1)) == ()


B02 = openai(16111, 2, cached_tokens=15872) | {"total_tokens": 16113}
START = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 1}}}
DELTA = {"type": "message_delta", "usage": {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 5}}
LATE = {"usage": {"input_tokens": 4522, "cache_creation_input_tokens": 4511, "output_tokens": 5}}
STREAMS: list[tuple[str, list[Usage], int, int, int]] = [
    ("B02 choices not empty", [{"choices": [{"index": 0, "delta": {}}], "usage": B02}], 16111, 15872, 2),
    ("B02 null on every earlier chunk", [{"usage": None}] * 3 + [{"choices": [{}], "usage": B02}], 16111, 15872, 2),
    (
        "B02 on two chunks",
        [{"choices": [{"finish_reason": "stop"}], "usage": B02}, {"choices": [], "usage": B02}],
        16111,
        15872,
        2,
    ),
    ("B07a start and delta", [START, DELTA], 10, 1, 5),
    ("B07b only the delta", [{"message": {"usage": {"input_tokens": None, "output_tokens": 0}}}, LATE], 9033, 0, 5),
]


@pytest.mark.parametrize(
    ("chunks", "whole", "cached", "output"), [case[1:] for case in STREAMS], ids=[case[0] for case in STREAMS]
)
def test_stream_usage_is_set_not_added(chunks: list[Usage], whole: int, cached: int, output: int) -> None:
    found = tokens_from_usage(stream_usage(chunks) or {})
    assert (found.input_total, found.input_cache_read, found.output) == (whole, cached, output)


@pytest.mark.parametrize(
    "usage",
    [
        openai(5, 1, cached_tokens=9),
        openai(5, 1) | {"completion_tokens_details": {"reasoning_tokens": 2}},
        openai(5, 1) | {"total_tokens": 5},
        {"completion_tokens": 5},
    ],
    ids=["cached above prompt", "reasoning above output", "parts above total", "input unknown"],
)
def test_counts_that_cannot_be_are_quarantined_never_clamped(usage: Usage) -> None:
    with pytest.raises(BadRecord):
        tokens_from_usage(usage)


def payload(row_id: str, call_id: str, call_type: str = "aresponses", **changes: Any) -> dict[str, Any]:
    counted = {"usage_object": {"input_tokens": 121, "output_tokens": 400}}
    return {
        "id": row_id, "litellm_call_id": call_id, "call_type": call_type, "status": "success", "model": "m", "metadata": counted,
        "startTime": 1796039000.0, "endTime": 1796039004.0, "model_group": "m",
    } | changes  # fmt: skip


def test_b09_a_bridged_call_is_counted_once_and_reads_cost_nothing() -> None:
    """One creation logged outside and inside, three retrievals with fresh row ids; then the whole page once more."""
    outer, inner = payload("resp_1", "c1"), payload("resp_1", "c2", "acompletion")
    reads = [payload("resp_1", f"r{n}", "aget_responses") for n in range(3)]
    log = MemoryLog()
    ingest, body = ingest_into(log), json.dumps([outer, inner, *reads]).encode()
    verdicts = [verdict.verdict for _ in range(2) for verdict in ingest.accept(parsed("litellm", body))]
    assert verdicts.count("accepted") == 1
    (record,) = log.records()
    tokens = TokenCounts(**record["tokens"])
    assert cost(tokens, prices("10", "2.725")) == Decimal("0.0023")


def test_b10_two_operations_five_attempts() -> None:
    """t1: fail, fail, ok; t2: m-fail fails, m-basic answers. Money on m-basic, and m-fail is what was asked."""
    counted = {"usage_object": {"prompt_tokens": 120, "completion_tokens": 30}}
    failed = {"status": "failure", "metadata": {}, "error_information": {"error_class": "InternalServerError"}}
    at = 1796039000.0
    rows = [
        payload("a", "a", "acompletion", **failed, endTime=at + 1),
        payload("a", "a", "acompletion", **failed, startTime=at + 1, endTime=at + 2),
        payload("ok-1", "a", "acompletion", metadata=counted, startTime=at + 2, endTime=at + 4),
        payload("b", "b", "acompletion", **failed, model="m-fail", model_group="m-fail", endTime=at + 1),
        payload("ok-2", "b", "acompletion", metadata=counted, model="m-basic", model_group="m-basic", startTime=at + 1),
    ]
    found = [row for row in parsed("litellm", json.dumps(rows).encode()) if isinstance(row, Prepared)]
    records = [json.loads(row.record) for row in found]
    ends = [row.line.split(",")[-2] for row in found]
    assert (len({row.request_id for row in found}), ends.count("1"), ends.count("-1")) == (5, 2, 0)
    assert sum(record["tokens"]["input_uncached"] for record in records) == 240
    assert sum(record["tokens"]["output"] for record in records) == 60
    assert (records[4]["requested_model"], records[4]["deployment"]["model_id"]) == ("m-fail", "m-basic")


def test_b17_a_budget_day_resets_at_local_midnight_with_its_offset() -> None:
    before, after = (datetime(2026, 7, 31, h, m, tzinfo=UTC) for h, m in ((14, 59), (15, 1)))
    days = [period_window("day", at, "Asia/Tokyo") for at in (before, after)]
    assert days[0].end == days[1].start == datetime(2026, 7, 31, 15, tzinfo=UTC)


@pytest.mark.parametrize(("day", "hours"), [((2026, 10, 25), 25), ((2026, 3, 29), 23), ((2026, 10, 26), 24)])
def test_b17_a_day_has_its_true_hours(day: tuple[int, int, int], hours: int) -> None:
    window = period_window("day", datetime(*day, 12, tzinfo=UTC), "Europe/Berlin")
    assert len(list(window.quanta(timedelta(hours=1)))) == hours


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30), st.integers(1, 8))
def test_b28_overshoot_is_at_most_what_was_in_flight(sizes: list[int], width: int) -> None:
    """Costs are known when a call ends: calls begun before the trip finish, and no other begins."""
    at = datetime(2026, 11, 30, 12, tzinfo=UTC)
    breaker = replace(Breaker(1, "tenant:acme", at, at), enforced=True)
    spent, waiting = 0, list(sizes)
    flying: list[int] = []
    while flying or (waiting and breaker.phase != "open"):
        while waiting and len(flying) < width and breaker.phase != "open":
            flying.append(waiting.pop(0))
        spent += flying.pop(0)
        reading = CapReading("day", at + timedelta(days=1), money(spent, "USD"), money(1000, "USD"), "")
        breaker, _ = step(BreakerPolicy(), breaker, CapSignal((reading,), True), at)
    assert spent - 950 <= width * max(sizes)
    assert (spent >= 950) == (breaker.phase == "open")


def test_missing_usage_of_a_failure_is_not_zero_usage() -> None:
    log = MemoryLog()
    item = usage_item(1, tokens=None, status="error", usage_source=None)
    ingest_into(log).accept(parsed("usage", json.dumps(item).encode()))
    assert log.records()[0]["usage_source"] == "missing"
    rows = parsed("usage", json.dumps(usage_item(2, tokens={"input_uncached": -1})).encode())
    assert isinstance(rows[0], BadRow)


ELSEWHERE: dict[str, list[tuple[str, str]]] = {
    "B01 reconciliation": [("unit/test_reconcile.py", "test_faults_have_their_right_name_and_value")],
    "B11 counter resets": [
        ("unit/test_engine_fold.py", "test_tokens_and_restarts"),
        ("unit/test_engine_fold.py", "test_the_sum_is_each_rise_plus_what_each_restart_began_with"),
    ],
    "B13 data-parallel engines": [
        ("unit/test_engine_parse.py", "test_each_data_parallel_engine_is_its_own_sample"),
        ("unit/test_engine_fold.py", "test_data_parallel_engines_are_folded_apart_so_one_may_restart_alone"),
        ("unit/test_efficiency.py", "test_two_engines_at_90_and_10_per_cent_are_never_100_per_cent"),
        ("unit/test_metric_pages.py", "test_recorded_pages_give_their_known_values"),
    ],
    "B14 aborted requests": [
        ("unit/test_engine_kinds.py", "test_b14_and_b15_what_finished_requests_say_stands_beside_what_was_metered"),
        ("unit/test_reconcile.py", "test_faults_have_their_right_name_and_value"),
    ],
    "B15 repeated prompts, doubtful hits": [
        ("unit/test_reconcile.py", "test_faults_have_their_right_name_and_value"),
        ("unit/test_efficiency.py", "test_the_hit_rate_is_marked_where_preemptions_rise"),
    ],
    "B16 renamed metrics": [
        ("unit/test_engine_parse.py", "test_old_and_new_name_of_one_thing_give_one_value_the_new_one"),
        ("unit/test_engine_parse.py", "test_neither_name_present_is_unknown_not_zero"),
    ],
    "B21 shared GPUs": [("unit/test_gpu_pages.py", "test_b21_a_shared_gpu_is_counted_once_and_its_pods_are_listed")],
    "B23 usage and idle": [("unit/test_capacity.py", "test_an_eight_gpu_node_a_quarter_busy")],
    "B24 unlike GPUs": [("unit/test_capacity.py", "test_unlike_gpus_on_one_node_are_summed_not_maxed")],
    "B28 the crossing call finishes": [
        ("e2e/test_budget_refuses.py", "test_the_next_request_is_refused_and_the_one_in_flight_finishes")
    ],
    "B29 prefill and decode apart": [
        ("unit/test_engine_kinds.py", "test_b29_prefill_and_decode_instances_each_say_what_they_computed"),
        ("unit/test_reconcile.py", "test_faults_have_their_right_name_and_value"),
    ],
}


@pytest.mark.parametrize(("file", "name"), [place for places in ELSEWHERE.values() for place in places])
def test_entries_of_other_parts_have_their_test(file: str, name: str) -> None:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}

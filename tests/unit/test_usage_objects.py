"""Providers' usage objects become disjoint buckets. Vectors B02-B07, B15, B26 of public trackers, with their right values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from core.errors import BadRecord
from core.tokens import TokenCounts
from core.usage_codec import decode_usage
from core.usage_objects import merge_stream_usage, tokens_from_usage, unmapped_fields

MILLION = Decimal(1_000_000)


def cost(tokens: TokenCounts, plain: str, read: str, write: str, output: str) -> Decimal:
    writes = tokens.input_cache_write_5m + tokens.input_cache_write_1h
    lines = (tokens.input_uncached, plain), (tokens.input_cache_read, read), (writes, write), (tokens.output, output)
    return sum((Decimal(count) * Decimal(price) for count, price in lines), Decimal(0)) / MILLION


OPENAI = {"prompt_tokens": 2006, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1920}}
CASES: list[tuple[str, dict[str, Any], tuple[int, int, int, int, int, int]]] = [
    ("B03.1 OpenAI chat includes its cached part", OPENAI, (86, 1920, 0, 0, 300, 0)),
    (
        "B03.2",
        {"prompt_tokens": 27147, "completion_tokens": 351, "prompt_tokens_details": {"cached_tokens": 27146}},
        (1, 27146, 0, 0, 351, 0),
    ),
    (
        "B03.4",
        {"prompt_tokens": 6074, "completion_tokens": 285, "prompt_tokens_details": {"cached_tokens": 3456}},
        (2618, 3456, 0, 0, 285, 0),
    ),
    (
        "B05 OpenAI cache_write_tokens",
        {
            "prompt_tokens": 10000,
            "completion_tokens": 100,
            "prompt_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 5000},
        },
        (3000, 2000, 5000, 0, 100, 0),
    ),
    (
        "B06a Anthropic excludes cache",
        {"input_tokens": 5, "cache_read_input_tokens": 128955, "cache_creation_input_tokens": 1253, "output_tokens": 1},
        (5, 128955, 1253, 0, 1, 0),
    ),
    (
        "B06a the same by OTel is inclusive",
        {
            "gen_ai.usage.input_tokens": 130213,
            "gen_ai.usage.cache_read.input_tokens": 128955,
            "gen_ai.usage.cache_creation.input_tokens": 1253,
        },
        (5, 128955, 1253, 0, 0, 0),
    ),
    (
        "B06b OTel cached by its other name",
        {"gen_ai.usage.input_tokens": 17903, "gen_ai.usage.input_cached_tokens": 17817},
        (86, 17817, 0, 0, 0, 0),
    ),
    (
        "B06c responses",
        {"input_tokens": 117231, "output_tokens": 225, "input_tokens_details": {"cached_tokens": 115584}},
        (1647, 115584, 0, 0, 225, 0),
    ),
    (
        "B06d",
        {"prompt_tokens": 100, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 30}},
        (70, 30, 0, 0, 50, 0),
    ),
    (
        "DeepSeek",
        {"prompt_tokens": 10, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6, "completion_tokens": 2},
        (6, 4, 0, 0, 2, 0),
    ),
    ("Ollama", {"prompt_eval_count": 7, "eval_count": 3}, (7, 0, 0, 0, 3, 0)),
    (
        "Anthropic's two write prices",
        {
            "input_tokens": 1,
            "cache_creation_input_tokens": 30,
            "output_tokens": 2,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        },
        (1, 0, 10, 20, 2, 0),
    ),
    (
        "vLLM's created_cache_tokens are no sold cache write",
        {
            "prompt_tokens": 1821,
            "completion_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 1792},
        },
        (1821, 0, 0, 0, 13, 0),
    ),
    (
        "reasoning is a part of output",
        {"prompt_tokens": 50, "completion_tokens": 900, "completion_tokens_details": {"reasoning_tokens": 840}},
        (50, 0, 0, 0, 900, 840),
    ),
    ("B15 n=8 is invoiced once", {"prompt_tokens": 59, "completion_tokens": 80}, (59, 0, 0, 0, 80, 0)),
]


@pytest.mark.parametrize(("usage", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_buckets(usage: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert tokens_from_usage(usage) == TokenCounts(*expected)


@pytest.mark.parametrize(
    ("prompt", "cached", "write", "output", "prices", "right"),
    [
        (2006, 1920, 0, 300, ("2", "0.5", "0", "8"), "0.003532"),
        (27147, 27146, 0, 351, ("1.4", "0.26", "0", "4.4"), "0.00860376"),
        (172_000, 155_000, 3_000, 0, ("5", "0.5", "6.25", "0"), "0.166250"),
        (10_000, 2_000, 5_000, 100, ("2", "0.2", "2.5", "8"), "0.0197"),
        (120, 0, 0, 30, ("2", "0.5", "0", "8"), "0.00048"),
    ],
)
def test_b03_b05_b19_price(prompt: int, cached: int, write: int, output: int, prices: tuple[str, ...], right: str) -> None:
    details = {"cached_tokens": cached, "cache_write_tokens": write}
    tokens = tokens_from_usage({"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details})
    assert cost(tokens, *prices) == Decimal(right)
    assert tokens.input_total == prompt


B02 = {"prompt_tokens": 16111, "completion_tokens": 2, "total_tokens": 16113, "prompt_tokens_details": {"cached_tokens": 15872}}


@pytest.mark.parametrize(
    "stream",
    [
        [{"choices": [], "usage": B02}],
        [{"choices": [{"index": 0, "delta": {}}], "usage": B02}],
        [{"choices": [], "usage": None}, {"choices": [{"index": 0}], "usage": B02}],
        [{"choices": [{"finish_reason": "stop"}], "usage": B02}, {"choices": [], "usage": B02}],
    ],
    ids=["empty choices", "choices not empty", "null before", "on two chunks: counted once"],
)
def test_b02_usage_counts_whatever_choices_hold(stream: list[dict[str, Any]]) -> None:
    record = decode_usage(item(raw=stream))
    assert record.tokens == TokenCounts(239, 15872, output=2)
    assert record.usage_source == "exact"


@pytest.mark.parametrize(
    ("events", "total_input", "cached", "output"),
    [
        (
            [
                {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 1},
                {"input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 5},
            ],
            10,
            1,
            5,
        ),
        (
            [
                {"input_tokens": None, "output_tokens": 0},
                {"input_tokens": 4522, "cache_creation_input_tokens": 4511, "output_tokens": 5},
            ],
            9033,
            0,
            5,
        ),
    ],
    ids=["both say it: set, not added", "only the last says it"],
)
def test_b07_stream_usage_is_cumulative(events: list[dict[str, Any]], total_input: int, cached: int, output: int) -> None:
    tokens = decode_usage(item(raw=events)).tokens
    assert (tokens.input_total, tokens.input_cache_read, tokens.output) == (total_input, cached, output)
    assert tokens_from_usage(merge_stream_usage(events)) == tokens


def test_b26_totals_and_subsets_are_not_added() -> None:
    tokens = tokens_from_usage({"prompt_tokens": 28, "completion_tokens": 12, "total_tokens": 40})
    assert tokens.input_total + tokens.output == 40


def test_b05_an_unknown_numeric_field_is_named_not_dropped() -> None:
    usage = {**OPENAI, "foo_tokens": 7, "prompt_tokens_details": {"cached_tokens": 1920, "warp_tokens": 1, "kind": "x"}}
    assert set(unmapped_fields(usage)) == {"foo_tokens", "prompt_tokens_details.warp_tokens"}
    assert decode_usage(item(raw=usage)).raw["foo_tokens"] == 7


@pytest.mark.parametrize(
    ("usage", "field"),
    [
        ({}, "usage"),
        ({"total_tokens": 3}, "usage"),
        ({"prompt_tokens": 1.5, "completion_tokens": 1}, "prompt_tokens"),
        ({"prompt_tokens": True}, "prompt_tokens"),
        ({"prompt_tokens": -1}, "prompt_tokens"),
        ({"prompt_tokens": "12"}, "prompt_tokens"),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, "prompt_tokens"),
        (
            {"prompt_tokens": 5, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 2}},
            "tokens.output_reasoning",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(usage: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRecord) as caught:
        tokens_from_usage(usage)
    assert caught.value.field == field


def item(**changes: Any) -> dict[str, Any]:
    times = {"started_at": "2026-11-30T12:00:00Z", "finished_at": "2026-11-30T12:00:05Z"}
    return {"request_id": "r:generation", **times, "deployment": {"cluster": "c", "namespace": "n", "model_id": "m"}, **changes}

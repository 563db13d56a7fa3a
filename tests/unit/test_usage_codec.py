"""``usage/1`` JSON: strict in, canonical out, and never any text of a prompt or an answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadRecord
from core.money import Money
from core.texts import without_texts
from core.tokens import MAX_TOKENS, TokenCounts
from core.usage import STATUSES, Deployment, TenantPath, UsageRecord
from core.usage_codec import decode_usage, encode_usage, usage_object

GOOD: dict[str, Any] = {
    "schema": "usage/1", "request_id": "chatcmpl-1:generation", "started_at": "2026-11-30T12:00:00Z",
    "first_token_at": "2026-11-30T20:00:01+08:00", "finished_at": "2026-11-30T12:00:05.250000Z",
    "deployment": {"cluster": "c", "namespace": "n", "model_id": "org/m"}, "tenant": {"org": "acme", "team": "search"},
    "tokens": {"input_uncached": 86, "input_cache_read": 1920, "output": 300, "output_reasoning": 40},
}  # fmt: skip


def good(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in (GOOD | changes).items() if value is not ...}


def test_an_ordinary_record() -> None:
    record = decode_usage(good())
    assert record.first_token_at == datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC)
    assert record.tokens == TokenCounts(86, 1920, 0, 0, 300, 40)
    assert record.tenant == TenantPath("acme", "search")
    assert (record.usage_source, record.status, record.service_tier, record.provider) == ("exact", "ok", "P1", "self_hosted")


BAD: list[tuple[str, Any, str, str]] = [
    ("not an object", [1], "record", "must be a JSON object"),
    ("other schema", good(schema="usage/2"), "schema", "must be usage/1"),
    ("no id", good(request_id=...), "request_id", "is required"),
    ("empty id", good(request_id=""), "request_id", "1 to 200"),
    ("long id", good(request_id="x" * 201), "request_id", "longer than 200"),
    ("id with a quote", good(request_id='a"b'), "request_id", "quote"),
    ("id with a line break", good(request_id="a\nb"), "request_id", "control"),
    ("id is a number", good(request_id=5), "request_id", "must be a string"),
    ("lone surrogate", good(request_id="a\ud800"), "request_id", "control"),
    ("naive time", good(started_at="2026-11-30T12:00:00"), "started_at", "no zone"),
    ("time as number", good(started_at=1796039142), "started_at", "RFC 3339"),
    ("no time", good(finished_at="yesterday"), "finished_at", "RFC 3339"),
    ("time of another age", good(started_at="1970-01-21T00:00:00Z"), "started_at", "2000"),
    ("far future", good(finished_at="9999-12-31T23:59:59-12:00"), "finished_at", "2000"),
    ("ends before it starts", good(finished_at="2026-11-30T11:59:59Z", first_token_at=...), "finished_at", "before started_at"),
    ("longer than an hour", good(finished_at="2026-11-30T13:00:01Z"), "finished_at", "longer than 1 h"),
    ("first token after the end", good(first_token_at="2026-11-30T12:00:06Z"), "first_token_at", "outside"),
    ("float tokens", good(tokens={"output": 1.0}), "tokens.output", "whole number"),
    ("NaN tokens", good(tokens={"output": float("nan")}), "tokens.output", "whole number"),
    ("infinite tokens", good(tokens={"output": float("inf")}), "tokens.output", "whole number"),
    ("boolean tokens", good(tokens={"output": True}), "tokens.output", "whole number"),
    ("text tokens", good(tokens={"output": "5"}), "tokens.output", "whole number"),
    ("null tokens", good(tokens={"output": None}), "tokens.output", "whole number"),
    ("negative tokens", good(tokens={"input_uncached": -1}), "tokens.input_uncached", "negative"),
    ("too many tokens", good(tokens={"output": MAX_TOKENS + 1}), "tokens.output", "exceeds"),
    ("reasoning above output", good(tokens={"output": 1, "output_reasoning": 2}), "tokens.output_reasoning", "part of output"),
    ("unknown bucket", good(tokens={"input": 1}), "tokens.input", "is not one of"),
    ("tokens is a list", good(tokens=[1]), "tokens", "must be an object"),
    ("tokens absent yet exact", good(tokens=..., usage_source="exact"), "tokens", "is required"),
    ("tokens beside missing", good(usage_source="missing"), "usage_source", "missing yet"),
    ("no deployment", good(deployment=None), "deployment", "is required"),
    ("no model", good(deployment={"cluster": "c", "namespace": "n"}), "deployment.model_id", "empty"),
    ("misspelt tenant", good(tenant={"organisation": "x"}), "tenant.organisation", "is not one of"),
    ("long tenant", good(tenant={"org": "x" * 121}), "tenant.org", "longer than 120"),
    ("unknown status", good(status="fine"), "status", "must be one of"),
    ("unhashable status", good(status=[]), "status", "must be one of"),
    ("unknown tier", good(service_tier="P9"), "service_tier", "must be one of"),
    ("unknown source", good(usage_source="guess"), "usage_source", "must be one of"),
    ("n of nought", good(n=0), "n", "1 to 1024"),
    ("stream as text", good(stream="true"), "stream", "true or false"),
    ("cost as float", good(vendor_cost={"amount": 0.1, "currency": "USD"}), "vendor_cost.amount", "quotes"),
    ("cost without currency", good(vendor_cost={"amount": "0.1"}), "vendor_cost.currency", "ISO 4217"),
    ("cost NaN", good(vendor_cost={"amount": "NaN", "currency": "USD"}), "vendor_cost.amount", "finite"),
    ("ratio above 1", good(repeat_ratio="1.01"), "repeat_ratio", "0 to 1"),
    ("sketch of text", good(prefix_sketch=["a"]), "prefix_sketch", "whole number"),
    ("tools as text", good(tools="search"), "tools", "list"),
]


@pytest.mark.parametrize(("item", "field", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_is_refused_and_why(item: Any, field: str, message: str) -> None:
    with pytest.raises(BadRecord) as caught:
        decode_usage(item)
    assert caught.value.field == field
    assert message in caught.value.message


def test_missing_usage_is_not_zero_usage() -> None:
    assert decode_usage(good(tokens=...)).usage_source == "missing"
    assert decode_usage(good(tokens={})).usage_source == "exact"


TEXTS = {
    "messages": [{"role": "user", "content": "SECRET"}], "prompt": "SECRET", "input": ["SECRET"], "choices": [{"text": "SECRET"}],
    "response": {"choices": "SECRET"}, "completion": "SECRET",
}  # fmt: skip


def test_texts_never_survive_and_unknown_fields_do() -> None:
    raw = {"prompt_tokens": 5, "content": "SECRET", "deep": {"messages": ["SECRET"], "note": "SECRET words " * 9, "kept": 1}}
    record = decode_usage(good(**TEXTS, raw=raw, region="eu", colour={"prompt": "SECRET", "shade": 3}))
    assert b"SECRET" not in encode_usage(record)
    assert record.raw == {"prompt_tokens": 5, "deep": {"kept": 1}, "unmapped": {"region": "eu", "colour": {"shade": 3}}}


@given(
    st.recursive(
        st.none() | st.text() | st.integers() | st.floats(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)
    )
)
def test_what_is_kept_is_numbers_and_labels(value: Any) -> None:
    kept = without_texts({"a": value, "prompt": value})
    text = json.dumps(kept, allow_nan=False)
    assert "prompt" not in kept
    assert all(
        len(part) <= 64
        for part in json.loads(text, object_pairs_hook=lambda pairs: [k for k, _ in pairs])
        if isinstance(part, str)
    )
    assert without_texts(kept) == kept


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFF), max_size=20).filter(
    lambda name: name.isprintable() and '"' not in name and "\\" not in name
)
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@st.composite
def records(draw: st.DrawFn) -> UsageRecord:
    started = draw(MOMENTS)
    took, first = sorted(draw(st.tuples(*[st.integers(0, 3_600_000_000)] * 2)), reverse=True)
    counts = [draw(st.integers(0, 10**6)) for _ in range(5)]
    return UsageRecord(
        request_id=draw(NAMES.filter(bool)),
        started_at=started,
        first_token_at=draw(st.none() | st.just(started + timedelta(microseconds=first))),
        finished_at=started + timedelta(microseconds=took),
        deployment=Deployment(draw(NAMES), draw(NAMES), draw(NAMES.filter(bool))),
        tenant=TenantPath(*(draw(NAMES) for _ in range(5))),
        tokens=TokenCounts(*counts, draw(st.integers(0, counts[4]))),
        status=draw(st.sampled_from(STATUSES)),  # type: ignore[arg-type]
        usage_source=draw(st.sampled_from(["exact", "estimated"])),  # type: ignore[arg-type]
        requested_model=draw(NAMES),
        http_status=draw(st.none() | st.integers(0, 999)),
        stream=draw(st.none() | st.booleans()),
        n=draw(st.integers(1, 8)),
        tools=tuple(draw(st.lists(NAMES, max_size=3))),
        repeat_ratio=draw(st.none() | st.decimals(0, 1, places=4)),
        prefix_sketch=tuple(draw(st.lists(st.integers(0, 2**63 - 1), max_size=4))),
        vendor_cost=draw(st.none() | st.builds(Money, st.decimals(0, 10**6, places=12), st.just("USD"))),
        queue_ms=draw(st.none() | st.integers(0, 10**6)),
        raw=draw(
            st.dictionaries(
                st.sampled_from(["prompt_tokens", "cost", "kind"]), st.none() | st.integers(-9, 10**9) | st.booleans()
            )
        ),
    )


@given(records())
def test_decoding_what_was_encoded_gives_the_record(record: UsageRecord) -> None:
    text = encode_usage(record)
    assert decode_usage(json.loads(text)) == record
    assert encode_usage(decode_usage(json.loads(text))) == text


def test_defaults_are_left_out_and_money_is_a_decimal_string() -> None:
    record = decode_usage(good(vendor_cost={"amount": "1E-7", "currency": "USD"}, provider="openai", repeat_ratio="0.50"))
    found = usage_object(record)
    assert found["vendor_cost"] == {"amount": "0.0000001", "currency": "USD"}
    assert "n" not in found
    assert record.repeat_ratio == Decimal("0.5")

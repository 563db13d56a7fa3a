"""Which spans are a call of a model, how often it counts (once), and what its names mean in each convention."""

from __future__ import annotations

from datetime import timedelta
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from otlp_samples import CHAT, CLIENT, INTERNAL, NOW, OPTIONS, SERVER, START_NS, TRACE, export, rows, span

from core.errors import BadInput
from core.tokens import TokenCounts
from core.usage import Deployment, TenantPath
from ingest.otlp import decode
from ingest.otlp.conventions import conventions, parse
from ingest.otlp.genai_spans import span_rows
from ingest.usage.rows import Prepared, SourceOptions

BARE = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "llama"}


def tokens(uncached: int, output: int, *, read: int = 0, write: int = 0, reasoning: int = 0) -> TokenCounts:
    return TokenCounts(uncached, read, write, 0, output, reasoning)


DIALECTS: list[tuple[str, dict[str, Any], TokenCounts]] = [
    (
        "OpenTelemetry, newest",
        {
            **BARE,
            "gen_ai.usage.input_tokens": 130213,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 128955,
            "gen_ai.usage.cache_write.input_tokens": 1253,
        },
        tokens(5, 7, read=128955, write=1253),
    ),
    (
        "B06 a: inclusive input; the total is 130213, not 260421",
        {
            **BARE,
            "gen_ai.usage.input_tokens": 130213,
            "gen_ai.usage.output_tokens": 7,
            "gen_ai.usage.cache_read.input_tokens": 128955,
            "gen_ai.usage.cache_creation.input_tokens": 1253,
        },
        tokens(5, 7, read=128955, write=1253),
    ),
    (
        "B06 b",
        {**BARE, "gen_ai.usage.input_tokens": 17903, "gen_ai.usage.output_tokens": 1, "gen_ai.usage.cache_read_tokens": 17817},
        tokens(86, 1, read=17817),
    ),
    (
        "B06 c",
        {
            **BARE,
            "gen_ai.usage.input_tokens": 117231,
            "gen_ai.usage.output_tokens": 225,
            "gen_ai.usage.details.cached_tokens": 115584,
        },
        tokens(1647, 225, read=115584),
    ),
    (
        "B06 d",
        {**BARE, "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 50, "gen_ai.usage.cached_tokens": 30},
        tokens(70, 50, read=30),
    ),
    (
        "B06: the spelling Langfuse did not subtract",
        {**BARE, "gen_ai.usage.input_tokens": 13675, "gen_ai.usage.output_tokens": 1, "gen_ai.usage.input_cached_tokens": 9216},
        tokens(4459, 1, read=9216),
    ),
    (
        "B07 a: 10 input of which 1 cached",
        {**BARE, "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 3, "gen_ai.usage.cache_read.input_tokens": 1},
        tokens(9, 3, read=1),
    ),
    (
        "B07 b: only the last event told the input",
        {
            **BARE,
            "gen_ai.usage.input_tokens": 9033,
            "gen_ai.usage.output_tokens": 5,
            "gen_ai.usage.cache_creation.input_tokens": 4511,
        },
        tokens(4522, 5, write=4511),
    ),
    (
        "OpenTelemetry before 1.27",
        {
            "gen_ai.system": "vllm",
            "gen_ai.request.model": "llama",
            "gen_ai.usage.prompt_tokens": 11,
            "gen_ai.usage.completion_tokens": 4,
        },
        tokens(11, 4),
    ),
    (
        "reasoning is a part of the output",
        {**BARE, "gen_ai.usage.input_tokens": 50, "gen_ai.usage.output_tokens": 900, "gen_ai.usage.reasoning.output_tokens": 840},
        tokens(50, 900, reasoning=840),
    ),
    (
        "OpenInference",
        {
            "openinference.span.kind": "LLM",
            "llm.model_name": "llama",
            "llm.token_count.prompt": 2006,
            "llm.token_count.completion": 300,
            "llm.token_count.total": 2306,
            "llm.token_count.prompt_details.cache_read": 1920,
            "llm.token_count.completion_details.reasoning": 12,
        },
        tokens(86, 300, read=1920, reasoning=12),
    ),
    (
        "OpenLLMetry",
        {
            "llm.request.type": "chat",
            "gen_ai.system": "vllm",
            "gen_ai.request.model": "llama",
            "llm.usage.prompt_tokens": 40,
            "llm.usage.completion_tokens": 6,
            "llm.usage.total_tokens": 46,
            "llm.usage.cache_read_input_tokens": 32,
        },
        tokens(8, 6, read=32),
    ),
    (
        "Vercel AI SDK 4 and 5",
        {
            "ai.operationId": "ai.streamText.doStream",
            "ai.model.id": "llama",
            "ai.usage.promptTokens": 9,
            "ai.usage.completionTokens": 2,
            "ai.usage.cachedInputTokens": 4,
        },
        tokens(5, 2, read=4),
    ),
    (
        "both names carry the same count: counted once",
        {
            **BARE,
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.prompt_tokens": 10,
            "ai.usage.promptTokens": 10,
            "gen_ai.usage.output_tokens": 1,
            "gen_ai.usage.completion_tokens": 1,
        },
        tokens(10, 1),
    ),
    (
        "embeddings have no output",
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "bge", "gen_ai.usage.input_tokens": 12},
        tokens(12, 0),
    ),
    (
        "counts as digits or as a double",
        {**BARE, "gen_ai.usage.input_tokens": "10", "gen_ai.usage.output_tokens": 3.0},
        tokens(10, 3),
    ),
]


@pytest.mark.parametrize(("attributes", "expected"), [pytest.param(a, e, id=name) for name, a, e in DIALECTS])
def test_each_convention_gives_the_same_four_disjoint_buckets(attributes: dict[str, Any], expected: TokenCounts) -> None:
    (record,) = rows(span(1, attributes))
    assert record.tokens == expected
    assert record.usage_source == "exact"


def test_unknown_usage_numbers_are_kept_and_named() -> None:
    odd = span(1, {**CHAT, "gen_ai.usage.foo_tokens": 7, "gen_ai.usage.total_tokens": 120})
    (row,) = span_rows(decode.spans_of(export(odd)), OPTIONS)
    assert isinstance(row, Prepared)
    assert row.unmapped == ("gen_ai.usage.foo_tokens",)
    assert b'"gen_ai.usage.foo_tokens":7' in row.record


@pytest.mark.parametrize(
    "wrapper",
    [
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 100, "gen_ai.request.model": "llama"},
        {"gen_ai.operation.name": "invoke_workflow", "gen_ai.usage.input_tokens": 100},
        {"openinference.span.kind": "AGENT", "llm.token_count.prompt": 100, "llm.model_name": "llama"},
        {"openinference.span.kind": "CHAIN", "llm.token_count.prompt": 100},
        {"traceloop.span.kind": "workflow", "gen_ai.usage.prompt_tokens": 100, "gen_ai.request.model": "llama"},
        {"ai.operationId": "ai.generateText", "ai.usage.promptTokens": 100, "ai.model.id": "llama"},
        {"http.request.method": "POST"},
        {},
    ],
)
def test_wrappers_and_other_spans_never_count(wrapper: dict[str, Any]) -> None:
    assert rows(span(1, wrapper)) == []
    assert len(rows(span(1, wrapper), span(2, parent=1))) == 1


def test_a_counted_span_above_another_is_its_wrapper_whatever_lies_between() -> None:
    outer, http, inner = span(1), span(2, {"http.request.method": "POST"}, parent=1), span(3, parent=2, kind=SERVER)
    (record,) = rows(outer, http, inner)
    assert record.request_id == f"{TRACE}:{3:016x}"


def test_the_wrapper_lends_who_called_and_the_response_id_to_the_one_call_it_wraps() -> None:
    outer = span(1, {**CHAT, "gen_ai.response.id": "chatcmpl-9", "gen_ai.conversation.id": "conv-1", "enduser.id": "ann"})
    (record,) = rows(outer, span(2, parent=1, kind=SERVER))
    assert (record.request_id, record.session_id, record.tenant.user) == ("chatcmpl-9:generation", "conv-1", "ann")


def test_attempts_below_one_span_are_attempts() -> None:
    failed = span(2, BARE, parent=1, error=True)
    found = rows(span(1), failed, span(3, parent=1))
    assert [(r.status, r.usage_source, r.tokens.input_total) for r in found] == [("error", "missing", 0), ("ok", "exact", 100)]
    assert [(r.attempt, r.ends_operation) for r in found] == [(1, False), (2, True)]
    assert {r.operation_id for r in found} == {f"{TRACE}:{1:016x}"}


def test_what_lies_in_several_wrappers_takes_the_response_id_of_each_that_wraps_it_alone() -> None:
    (record,) = rows(span(1, {**CHAT, "gen_ai.response.id": "chatcmpl-3"}), span(2, parent=1), span(3, parent=2, kind=SERVER))
    assert record.request_id == "chatcmpl-3:generation"


def test_a_view_without_counts_inside_one_that_has_them_is_the_same_call() -> None:
    (record,) = rows(span(1), span(2, BARE, parent=1, kind=SERVER))
    assert record.tokens.input_total == 100


def test_a_gateways_and_an_sdks_span_of_one_call_have_one_id() -> None:
    named = {**CHAT, "gen_ai.response.id": "chatcmpl-1"}
    gateway, sdk = rows(span(1, named, kind=SERVER)), rows(span(2, named, trace="a" * 32))
    assert gateway[0].request_id == sdk[0].request_id == "chatcmpl-1:generation"


def test_a_call_that_one_span_tells_with_counts_and_one_without_counts_once() -> None:
    with_counts = span(1, {**CHAT, "gen_ai.response.id": "chatcmpl-1"})
    without = span(2, {**BARE, "gen_ai.response.id": "chatcmpl-1"}, kind=SERVER)
    for order in ((with_counts, without), (without, with_counts)):
        (record,) = rows(*order)
        assert (record.request_id, record.usage_source) == ("chatcmpl-1:generation", "exact")


def test_a_loop_of_parents_ends() -> None:
    assert len(rows(span(1, parent=2), span(2, BARE, parent=1))) == 1


@pytest.mark.parametrize(
    ("attributes", "given", "status", "source"),
    [
        (CHAT, {}, "ok", "exact"),
        (BARE, {}, "ok", "missing"),
        (BARE, {"error": True}, "error", "missing"),
        ({**CHAT, "error.type": "timeout"}, {}, "error", "exact"),
        ({**BARE, "error.type": "CancelledError"}, {"error": True}, "aborted", "missing"),
        ({**CHAT, "http.response.status_code": 499}, {"error": True}, "aborted", "exact"),
        ({**BARE, "gen_ai.usage.input_tokens": 9}, {}, "ok", "estimated"),
        ({**BARE, "gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 0}, {}, "ok", "exact"),
    ],
)
def test_missing_usage_is_not_zero_usage(attributes: dict[str, Any], given: Any, status: str, source: str) -> None:
    (record,) = rows(span(1, attributes, **given))
    assert (record.status, record.usage_source) == (status, source)


@pytest.mark.parametrize(
    ("attributes", "events", "after_ms"),
    [
        ({"gen_ai.response.time_to_first_chunk": 0.5}, {}, 500),
        ({"gen_ai.latency.time_to_first_token": 0.25}, {}, 250),
        ({"ai.response.msToFirstChunk": 125.5}, {}, 125.5),
        ({}, {"First Token Stream Event": START_NS + 300_000_000}, 300),
        ({}, {"gen_ai.choice": START_NS + 300_000_000}, None),
        ({"gen_ai.response.time_to_first_chunk": 3.0}, {}, None),
        ({"gen_ai.response.time_to_first_chunk": float("nan")}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_first_token_comes_when_an_attribute_or_event_says_so(attributes: Any, events: Any, after_ms: float | None) -> None:
    (record,) = rows(span(1, {**CHAT, **attributes}, events=events))
    expected = None if after_ms is None else record.started_at + timedelta(milliseconds=after_ms)
    assert record.first_token_at == expected
    assert record.started_at == NOW - timedelta(seconds=10)


def test_tools_belong_to_the_call_before_them() -> None:
    def tool(number: int, name: str, start_s: int) -> Any:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        return span(number, attributes, parent=9, kind=INTERNAL, start_ns=START_NS + start_s * 10**9)

    first, second = span(1, parent=9), span(2, parent=9, start_ns=START_NS + 4 * 10**9)
    agent = span(9, {"gen_ai.operation.name": "invoke_agent"}, kind=INTERNAL)
    found = rows(agent, first, tool(3, "search", 3), tool(4, "search", 3), tool(5, "fetch", 3), second, tool(6, "mail", 6))
    assert [record.tools for record in found] == [("search", "fetch"), ("mail",)]


POOLS = {"10.0.0.9:8000": Deployment("a", "b", "pool"), "llama-pool": Deployment("x", "y", "llama-pool")}


@pytest.mark.parametrize(
    ("attributes", "kind", "deployment", "provider"),
    [
        ({}, CLIENT, Deployment("prod", "llm", "llama"), "self_hosted"),
        ({"gen_ai.provider.name": "anthropic"}, CLIENT, Deployment("vendor", "anthropic", "llama"), "anthropic"),
        (
            {"gen_ai.provider.name": "openai", "server.address": "api.openai.com"},
            CLIENT,
            Deployment("vendor", "openai", "llama"),
            "openai",
        ),
        (
            {"gen_ai.provider.name": "openai", "server.address": "vllm.llm.svc"},
            CLIENT,
            Deployment("prod", "llm", "llama"),
            "self_hosted",
        ),
        (
            {"gen_ai.provider.name": "openai", "server.address": "gw.local"},
            SERVER,
            Deployment("vendor", "openai", "llama"),
            "openai",
        ),
        (
            {"gen_ai.provider.name": "openai", "server.address": "max.ai"},
            CLIENT,
            Deployment("prod", "llm", "llama"),
            "self_hosted",
        ),
        ({"server.address": "10.0.0.9", "server.port": 8000}, CLIENT, Deployment("a", "b", "pool"), "self_hosted"),
        ({"gen_ai.provider.name": "openai", "gen_ai.response.model": "llama-pool"}, SERVER, POOLS["llama-pool"], "self_hosted"),
        ({"tokenfuse.namespace": "batch"}, CLIENT, Deployment("prod", "batch", "llama"), "self_hosted"),
    ],
)
def test_the_place_is_a_pool_a_vendor_or_our_own(attributes: Any, kind: int, deployment: Deployment, provider: str) -> None:
    options = SourceOptions(OPTIONS.deployment, OPTIONS.tenant, pools=POOLS)
    (record,) = rows(span(1, {**CHAT, **attributes}, kind=kind), options=options)
    assert (record.deployment, record.provider) == (deployment, provider)


def test_who_called_is_on_the_span_or_else_on_the_resource() -> None:
    said = {**CHAT, "tokenfuse.team": "search", "enduser.id": "ann"}
    (record,) = rows(span(1, said), **{"service.name": "shop", "tokenfuse.team": "ads", "tokenfuse.project": "web"})
    assert record.tenant == TenantPath("acme", "search", "web", "ann", "")
    assert record.raw["identity"] == {"gateway": "shop", "metadata.service.name": "shop"}


WRONG: list[tuple[Any, str, str]] = [
    (span(1, {**CHAT, "gen_ai.usage.input_tokens": -1}), "gen_ai.usage.input_tokens", "must be 0 to"),
    (span(1, {**CHAT, "gen_ai.usage.input_tokens": 1.5}), "gen_ai.usage.input_tokens", "whole number"),
    (span(1, {**CHAT, "gen_ai.usage.input_tokens": "many"}), "gen_ai.usage.input_tokens", "whole number"),
    (span(1, {**CHAT, "gen_ai.usage.cache_read.input_tokens": 101}), "prompt_tokens", "exceed the prompt"),
    (span(1, {**CHAT, "gen_ai.usage.reasoning.output_tokens": 21}), "tokens.output_reasoning", "part of output"),
    (span(1, {**CHAT, "gen_ai.request.model": "", "gen_ai.response.model": ""}), "deployment.model_id", "not be empty"),
    (span(1, {**CHAT, "gen_ai.response.model": "m" * 121}), "model", "at most 120"),
    (span(1, CHAT, end_ns=START_NS - 1), "finished_at", "before started_at"),
    (span(1, CHAT, end_ns=0), "endTimeUnixNano", "absent"),
    (span(1, CHAT, start_ns=5), "startTimeUnixNano", "absent"),
    (span(1, CHAT, end_ns=START_NS + 3601 * 10**9), "finished_at", "longer than 1 h"),
    (span(0, CHAT), "traceId", "16 bytes"),
    (span(1, CHAT, trace="0" * 32), "traceId", "16 bytes"),
]


@pytest.mark.parametrize(("wrong", "field", "message"), WRONG)
def test_a_span_that_breaks_a_rule_is_refused_with_the_reason(wrong: Any, field: str, message: str) -> None:
    refused, good = rows(wrong, span(7, trace="b" * 32))
    assert refused[0] == field
    assert message in refused[1]
    assert good.tokens.input_total == 100


def test_the_table_names_no_attribute_that_holds_text() -> None:
    for name in conventions().attributes:
        assert not any(part in name for part in ("message", "prompt.", "completion.0", "content", "arguments", "input.value"))


@pytest.mark.parametrize(
    ("wrong", "right"), [("metrics:", "metrics:\n  - {name: x, type: guess}"), ("  response_id:", "  other_id:")]
)
def test_a_wrong_table_says_which_entry(wrong: str, right: str) -> None:
    text = files("ingest.otlp").joinpath("conventions.yaml").read_text()
    with pytest.raises(BadInput, match=r"conventions\.yaml"):
        parse(text.replace(wrong, right, 1))


SAID = st.one_of(st.sampled_from(["", "x", "vllm", "openai", "a,b", "1"]), st.integers(0, 1), st.booleans(), st.floats(0, 1))
NAMES = ["tokenfuse.team", "enduser.id", "gen_ai.system", "server.port", "k8s.cluster.name"]
CALLS = st.dictionaries(st.sampled_from(NAMES), SAID)


@given(st.lists(CALLS, min_size=1, max_size=6))
def test_a_call_means_the_same_alone_and_among_others(said: list[dict[str, Any]]) -> None:
    """What is found once for a batch is told apart by value and type: 1, 1.0, true and "1" are four names."""
    calls = [span(number, {**CHAT, **attributes}) for number, attributes in enumerate(said, 1)]
    assert rows(*calls) == [row for call in calls for row in rows(call)]

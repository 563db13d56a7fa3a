"""Response logs of OpenAI-compatible servers: whole answers, streams as chunks and as events, other providers' shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from usage_samples import parsed

from core.usage_objects import stream_usage
from ingest.usage.rows import BadRow, Prepared, SourceOptions

TIMES = {"started_at": "2026-11-30T11:00:00Z", "finished_at": "2026-11-30T11:00:05Z"}
USAGE = {"prompt_tokens": 16111, "completion_tokens": 2, "total_tokens": 16113, "prompt_tokens_details": {"cached_tokens": 15872}}
CHAT = {"id": "chatcmpl-1", "object": "chat.completion", "model": "qwen3", "choices": [{"finish_reason": "stop"}], "usage": USAGE}
CACHED = (239, 15872, 0, 0, 2, 0)


def chunk(**changes: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-2", "model": "qwen3", "choices": [{"index": 0, "delta": {"content": "SECRET"}}]} | changes


STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
ANTHROPIC = [
    {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "usage": {
        "input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 1}}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {
        "input_tokens": 9, "cache_read_input_tokens": 1, "output_tokens": 5}},
    {"type": "message_stop"},
]  # fmt: skip
LATE_INPUT = [
    {"type": "message_start", "message": {"id": "msg_2", "model": "claude-x", "usage": {
        "input_tokens": None, "output_tokens": 0}}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {
        "input_tokens": 4522, "cache_creation_input_tokens": 4511, "output_tokens": 5}},
]  # fmt: skip
RESPONSES = [
    {"type": "response.created", "response": {"id": "resp_1", "model": "gpt-x", "usage": None}},
    {"type": "response.completed", "response": {"id": "resp_1", "model": "gpt-x", "usage": {
        "input_tokens": 117231, "output_tokens": 225, "input_tokens_details": {"cached_tokens": 115584}}}},
]  # fmt: skip
OLLAMA = [
    {"model": "llama", "message": {"content": "SECRET"}, "done": False},
    {"model": "llama", "done": True, "done_reason": "stop", "prompt_eval_count": 7, "eval_count": 3, "eval_duration": 5},
]
GEMINI = [
    {"usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 4, "totalTokenCount": 54}},
    {"usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 60, "thoughtsTokenCount": 840, "totalTokenCount": 950}},
]
BEDROCK = [
    {"metadata": {"usage": {"inputTokens": 5, "outputTokens": 2, "cacheReadInputTokens": 100, "cacheWriteInputTokens": 30}}}
]
STREAMS: list[tuple[str, list[dict[str, Any]], tuple[int, ...]]] = [
    ("a last chunk without choices", [chunk(), chunk(**STOP), chunk(choices=[], usage=USAGE)], CACHED),
    ("B02 usage on a chunk with choices", [chunk(usage=None), chunk(**STOP, usage=USAGE)], CACHED),
    ("B02 on the finish chunk and a later empty one", [chunk(**STOP, usage=USAGE), chunk(choices=[], usage=USAGE)], CACHED),
    (
        "running usage on every chunk",
        [chunk(usage=USAGE | {"completion_tokens": n, "total_tokens": 16111 + n}) for n in (1, 2)] + [chunk(**STOP)],
        CACHED,
    ),
    ("null after the report", [chunk(**STOP, usage=USAGE), chunk(choices=[], usage=None)], CACHED),
    ("B07 start and delta both say it", ANTHROPIC, (9, 1, 0, 0, 5, 0)),
    ("B07 only the delta says it", LATE_INPUT, (4522, 0, 4511, 0, 5, 0)),
    ("B06c responses", RESPONSES, (1647, 115584, 0, 0, 225, 0)),
    ("Ollama's last object", OLLAMA, (7, 0, 0, 0, 3, 0)),
]  # fmt: skip


def record(item: dict[str, Any]) -> dict[str, Any]:
    (row,) = parsed("openai-log", json.dumps(TIMES | item).encode())
    assert isinstance(row, Prepared), row
    assert b"SECRET" not in row.record
    return json.loads(row.record)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("chunks", "tokens"), [case[1:] for case in STREAMS], ids=[case[0] for case in STREAMS])
@pytest.mark.parametrize("written", ["chunks", "events"])
def test_a_stream_is_counted_once(chunks: list[dict[str, Any]], tokens: tuple[int, ...], written: str) -> None:
    events = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
    said = {"chunks": chunks} if written == "chunks" else {"body": events}
    found = record({"request": {"stream": True}, **said})
    assert tuple(found["tokens"].values()) == tokens
    assert (found["status"], found["usage_source"], found["stream"]) == ("ok", "exact", True)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [(GEMINI, (50, 900, 840)), (BEDROCK, (135, 2, 0))],
    ids=["Gemini: output beside thoughts", "Bedrock: input beside its cache"],
)
def test_other_providers(chunks: list[dict[str, Any]], expected: tuple[int, int, int]) -> None:
    found = record({"request": {"model": "m"}, "chunks": chunks, "status": "ok"})["tokens"]
    whole = sum(count for name, count in found.items() if name.startswith("input"))
    assert (whole, found["output"], found["output_reasoning"]) == expected


@pytest.mark.parametrize(
    ("response", "tokens"),
    [
        (CHAT, CACHED),
        ({"id": "cmpl-1", "object": "text_completion", "model": "m", "choices": [], "usage": USAGE}, CACHED),
        (
            {"object": "list", "model": "bge", "data": [{"embedding": [0.1]}], "usage": {"prompt_tokens": 8, "total_tokens": 8}},
            (8, 0, 0, 0, 0, 0),
        ),
        (RESPONSES[1]["response"], (1647, 115584, 0, 0, 225, 0)),
    ],
    ids=["chat", "completions", "embeddings", "responses"],
)
def test_a_whole_answer(response: dict[str, Any], tokens: tuple[int, ...]) -> None:
    found = record({"response": response, "status_code": 200})
    assert (tuple(found["tokens"].values()), found["status"]) == (tokens, "ok")


@pytest.mark.parametrize(
    ("item", "status", "source"),
    [
        ({"request": {"stream": True}, "chunks": [chunk(), chunk(**STOP)]}, "ok", "missing"),
        ({"request": {"stream": True}, "chunks": [chunk(), chunk()]}, "aborted", "missing"),
        ({"request": {"model": "m"}, "status_code": 500, "response": {"error": {"message": "SECRET"}}}, "error", "missing"),
        ({"request": {"model": "m"}, "status_code": 429}, "refused", "exact"),
        ({"request": {"model": "m"}, "status_code": 499}, "aborted", "missing"),
        ({"response": CHAT | {"usage": None}}, "ok", "missing"),
    ],
    ids=["no usage asked", "cut before its end", "failed", "the gateway's limit", "the caller left", "null"],
)
def test_missing_usage_is_not_zero_usage(item: dict[str, Any], status: str, source: str) -> None:
    found = record(item)
    assert (found["status"], found["usage_source"], sum(found["tokens"].values())) == (status, source, 0)


def test_who_asked_what() -> None:
    said = {
        "key_id": "k",
        "org": "acme",
        "gateway_id": "g-1",
        "session_id": "s",
        "request": {"model": "fast", "user": "zoe", "n": 2},
    }
    found = record(said | {"response": CHAT, "first_token_at": "2026-11-30T11:00:01Z"})
    assert (found["request_id"], found["operation_id"], found["requested_model"]) == ("chatcmpl-1:generation", "g-1", "fast")
    assert found["tenant"] == {"org": "acme", "team": "", "project": "", "user": "zoe", "key_id": "k"}
    assert (found["n"], found["finish_reason"], found["deployment"]["model_id"]) == (2, "stop", "qwen3")
    assert record({"request": {"model": "m"}, "gateway_id": "g-2", "status_code": 500})["request_id"] == "gateway:g-2:1"


def test_without_any_id_the_second_run_gives_the_same_ids() -> None:
    lines = b"\n".join([json.dumps(TIMES | {"request": {"model": "m"}, "status_code": 500}).encode()] * 2)
    first, again = ([row.request_id for row in parsed("openai-log", lines)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 2


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ([1], "record"),
        ({"response": CHAT} | TIMES | {"started_at": None}, "started_at"),
        ({"response": CHAT} | TIMES | {"started_at": "2026-11-30T11:00:00"}, "started_at"),
        ({"body": "data: {", **TIMES}, "body"),
        ({"response": CHAT | {"usage": USAGE | {"prompt_tokens": 5}}, **TIMES}, "prompt_tokens"),
        ({"response": CHAT | {"usage": USAGE | {"total_tokens": 16112}}, **TIMES}, "total_tokens"),
        ({"response": CHAT | {"usage": {"completion_tokens": 3}}, **TIMES}, "prompt_tokens"),
        ({"status_code": 500, **TIMES}, "deployment.model_id"),
    ],
)
def test_what_is_refused_and_where(item: Any, field: str) -> None:
    body = json.dumps([item]).encode()
    (row,) = parsed("openai-log", body, SourceOptions())
    assert isinstance(row, BadRow)
    assert row.error.field == field


def test_no_report_is_none_and_not_zero() -> None:
    assert stream_usage([]) is None
    assert stream_usage([chunk(), chunk(usage=None), "[DONE]"]) is None
    assert stream_usage([{"usage": {"prompt_tokens": None, "completion_tokens": None}}]) is None
    assert stream_usage([{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}]) == {"prompt_tokens": 0, "completion_tokens": 0}

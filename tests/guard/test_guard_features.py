"""Numbers of a call's texts: computed after the answer, sampled by session, and no text leaves."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.minhash import prefix_elements, sketch
from ingest.usage.litellm_features import call_features
from tokenfuse_guard.features import (
    FEATURES,
    MAX_WORDS,
    CallTexts,
    FeatureWorker,
    compute,
    is_sampled,
    prefix_sketch,
    repeat_ratio,
    tools_called,
)
from tokenfuse_guard.settings import SettingsError, from_env

ALL = {"tools", "repeat_ratio", "prefix_sketch"}
PROMPT = [{"role": "system", "content": "be short " * 20}, {"role": "user", "content": [{"type": "text", "text": "word " * 40}]}]
ANSWER = {"choices": [{"message": {"content": "one two three four one two three four five", "tool_calls": None}}]}


def calls(*names: str) -> dict[str, Any]:
    return {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": name}} for name in names]}}]}


@given(st.lists(st.sampled_from(["a", "b", "ü", "\ud800", ""]), max_size=80))
def test_the_sketch_is_the_centres_own(words: list[str]) -> None:
    assert tuple(prefix_sketch(words)) == sketch(prefix_elements(words))


@pytest.mark.parametrize(
    ("answer", "ratio"),
    [
        ("", None),
        ("one two three", None),
        ("one two three four", "0.0000"),
        ("a a a a a", "0.5000"),
        ("one two three four one two three four", "0.2000"),
        (" ".join(["la"] * 1003), "0.9990"),
    ],
)
def test_repetition_is_the_share_of_runs_of_four_words_seen_before(answer: str, ratio: str | None) -> None:
    assert repeat_ratio(answer.split()) == ratio


@pytest.mark.parametrize(
    ("response", "names"),
    [
        (calls("search", "fetch", "search"), ["search", "fetch", "search"]),
        ({"choices": [{"message": {"function_call": {"name": "old"}}}]}, ["old"]),
        ({"output": [{"type": "reasoning"}, {"type": "function_call", "name": "mail"}]}, ["mail"]),
        ({"content": [{"type": "text", "text": "x"}, {"type": "tool_use", "name": "map"}]}, ["map"]),
        (ANSWER, []),
        ("plain", []),
        (None, []),
        ({"choices": [{"message": {"tool_calls": [None, {"function": 3}, {"function": {"name": "x" * 65}}]}}]}, []),
    ],
)
def test_tools_are_those_the_answer_called(response: Any, names: list[str]) -> None:
    assert tools_called(response) == names


def test_what_leaves_is_numbers_and_tool_names_that_the_centre_takes() -> None:
    found = compute(CallTexts(PROMPT, ANSWER, [{"function": {"name": "search", "description": "SECRET " * 20}}]))
    assert found is not None
    assert set(found) == ALL
    text = json.dumps(found)
    assert not any(word in text for word in ("short", "word", "SECRET", "three"))
    taken = call_features({FEATURES: found})
    assert list(taken.prefix_sketch) == found["prefix_sketch"]
    assert str(taken.repeat_ratio) == found["repeat_ratio"] == "0.1667"


@pytest.mark.parametrize(
    ("texts", "unknown"),
    [
        (CallTexts("redacted-by-litellm", ANSWER, None), ALL),
        (CallTexts(PROMPT, {"choices": [{"message": {"content": "redacted-by-litellm"}}]}, None), ALL),
        (CallTexts([{"role": "user", "content": "hi"}], ANSWER, None), {"prefix_sketch"}),
        (CallTexts(PROMPT, calls("search"), None), {"repeat_ratio"}),
        (CallTexts(None, None, None), {"repeat_ratio", "prefix_sketch"}),
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_left_out_and_never_zero(texts: CallTexts, unknown: set[str]) -> None:
    found = compute(texts) or {}
    assert {name for name in ALL if found.get(name) is None} == unknown


def test_work_is_bounded_by_words_and_depth() -> None:
    nested: Any = "end"
    for _ in range(5_000):
        nested = [nested]
    assert compute(CallTexts(nested, nested, None)) is not None
    long, longer = ("word " * MAX_WORDS, "word " * (MAX_WORDS * 40))
    assert compute(CallTexts(long, ANSWER, None)) == compute(CallTexts(longer, ANSWER, None))


def test_a_session_is_sampled_whole_and_about_as_often_as_asked() -> None:
    sessions = [f"s{n}" for n in range(4_000)]
    taken = [s for s in sessions if is_sampled({"session_id": s, "litellm_call_id": "x"}, 10)]
    assert 300 < len(taken) < 500
    assert all(is_sampled({"session_id": s, "litellm_call_id": str(n)}, 10) for s in taken for n in range(5))
    assert not any(is_sampled({"session_id": s}, 0) for s in sessions)
    assert all(is_sampled({"litellm_call_id": s}, 100) for s in sessions)


def test_every_payload_is_delivered_once_and_the_rest_goes_on_without() -> None:
    delivered: list[dict[str, Any]] = []
    got, held = threading.Event(), threading.Event()

    def deliver(payload: dict[str, Any]) -> None:
        delivered.append(payload)
        if payload["litellm_call_id"] == "0":
            got.set()
            held.wait(10)

    worker = FeatureWorker(100, deliver, waiting=2)
    worker.start()
    texts = CallTexts(PROMPT, ANSWER, None)
    worker.offer({"litellm_call_id": "0"}, texts)
    assert got.wait(10)
    for n in range(1, 6):
        worker.offer({"litellm_call_id": str(n)}, texts)
    assert [p["litellm_call_id"] for p in delivered] == ["0", "3", "4", "5"], "two wait, three went on without"
    assert worker.stats() == {"features": {"computed": 1, "skipped": 3}}
    held.set()
    worker.stop()
    assert sorted(p["litellm_call_id"] for p in delivered) == [str(n) for n in range(6)]
    assert FEATURES in delivered[0]


def test_without_a_thread_or_a_sample_nothing_is_held_back() -> None:
    delivered: list[dict[str, Any]] = []
    worker = FeatureWorker(0, delivered.append)
    worker.start()
    worker.offer({"litellm_call_id": "1"}, CallTexts(PROMPT, ANSWER, None))
    worker.stop()
    assert delivered == [{"litellm_call_id": "1"}]


def test_the_share_is_a_percentage() -> None:
    assert from_env({}).features_percent == 10
    assert from_env({"TOKENFUSE_GUARD_FEATURES_PERCENT": "0"}).features_percent == 0
    with pytest.raises(SettingsError, match="TOKENFUSE_GUARD_FEATURES_PERCENT"):
        from_env({"TOKENFUSE_GUARD_FEATURES_PERCENT": "101"})

"""The bound on a prompt: never below what any byte-level tokenizer could yield, and None where the body cannot tell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenfuse_guard.prompt import bound, output_asked, quick_bound
from tokenfuse_guard.truncate import truncate

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts], **more}


@given(st.lists(TEXT, min_size=1, max_size=5))
def test_the_bound_is_never_below_the_texts_bytes(texts: list[str]) -> None:
    found = bound(chat(*texts), 0).tokens
    assert found is not None
    assert found >= sum(len(text.encode()) for text in texts)


@given(st.lists(TEXT, min_size=1, max_size=5), st.booleans())
def test_the_quick_bound_by_size_is_never_below_the_texts_bytes_and_the_template(texts: list[str], escaped: bool) -> None:
    raw = json.dumps(chat(*texts), ensure_ascii=escaped).encode()
    quick = quick_bound(raw, 256)
    if quick is not None:
        assert quick >= 256 + sum(len(text.encode()) + 16 for text in texts)


@pytest.mark.parametrize(
    ("data", "tokens"),
    [
        ({"prompt": "abc"}, 3),
        ({"prompt": "äöü"}, 6),
        ({"prompt": ["a", "abcd", "ab"]}, 4),
        ({"prompt": [1, 2, 30000]}, 3),
        ({"prompt": [[1, 2], [1, 2, 3]]}, 3),
        ({"input": "abc", "instructions": "de"}, 5),
        ({"input": ["ab", "abc"]}, 3),
        ({}, 0),
    ],
    ids=["text", "UTF-8 bytes", "longest of a batch", "token ids", "longest list of ids", "responses", "embeddings", "empty"],
)
def test_kinds_of_prompt(data: dict[str, Any], tokens: int) -> None:
    assert bound(data, 0).tokens == tokens


def test_tools_and_documents_are_part_of_the_prompt() -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "x" * 500}}
    found = bound(chat("hi", tools=[tool]), 0).tokens
    assert found is not None
    assert found > 500


IMAGE = {
    "role": "user",
    "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}, {"type": "text", "text": "what"}],
}


def test_media_have_no_bound_unless_the_operator_gives_one() -> None:
    data = {"messages": [IMAGE]}
    assert bound(data, 0).tokens is None
    assert bound(data, 0, media_tokens=1000).tokens == 1000 + 16 + 4 + 4 + 7 + 16 + 4 + 4 + 4 + 4
    assert quick_bound(json.dumps(data).encode(), 0) is None


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "prompt_embeds"])
def test_a_prompt_kept_elsewhere_has_no_bound(name: str) -> None:
    assert bound({"input": "x", name: "y"}, 0).tokens is None


def test_a_deeply_nested_body_is_unbounded_not_a_crash() -> None:
    nested: Any = "x"
    for _ in range(100_000):
        nested = [nested]
    assert bound({"messages": nested}, 0).tokens is None


@pytest.mark.parametrize(
    ("data", "asked"),
    [({"max_tokens": 5}, 5), ({"max_completion_tokens": 6, "max_tokens": 5}, 6), ({"max_output_tokens": 7}, 7), ({}, None),
     ({"max_tokens": True}, None), ({"max_tokens": "9"}, None)],
)  # fmt: skip
def test_the_output_asked_for(data: dict[str, Any], asked: int | None) -> None:
    assert output_asked(data) == asked


@given(st.lists(TEXT, min_size=1, max_size=5), st.integers(0, 600))
def test_truncation_fits_or_says_it_could_not(texts: list[str], most: int) -> None:
    data = chat(*texts)
    fits = truncate(data, most)
    found = bound(data, 0).tokens
    assert found is not None
    assert fits is (found <= most)
    assert len(data["messages"]) == len(texts)

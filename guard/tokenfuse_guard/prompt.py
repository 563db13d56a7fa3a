"""How long a prompt can be at most, from its bytes alone: a byte-level tokenizer never yields more tokens than UTF-8 bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

MESSAGE_TOKENS = 16
"""Most tokens a chat template puts around one message."""
PROMPT_FIELDS = ("messages", "system", "instructions", "tools", "functions", "documents", "suffix", "chat_template_kwargs")
ELSEWHERE = ("previous_response_id", "conversation", "prompt_embeds")
"""Fields by which a prompt comes from outside the request: nothing in the body bounds it."""
MEDIA_KEYS = frozenset(
    ("image_url", "input_image", "image", "input_audio", "audio_url", "video_url", "video", "file", "input_file", "file_id")
)
SUSPECT = re.compile(rb'"(?:image|input_|audio|video|file|previous_response_id|conversation|prompt_embeds)')
"""How the names of media and of prompts kept elsewhere begin in JSON; "input_" is not the name "input"."""


class Bound(NamedTuple):
    """``tokens`` is an upper bound, None when the body cannot give one; ``max_output_tokens`` what the client asked for."""

    tokens: int | None
    max_output_tokens: int | None


class _Unbounded(Exception):
    pass


def bound(data: Mapping[str, Any], allowance_tokens: int, media_tokens: int | None = None) -> Bound:
    """Bound a request body (chat completions, completions, responses, embeddings, Anthropic messages).

    Each media part counts ``media_tokens``; without that figure a prompt with media has no bound. A list of prompts counts as
    its longest, for each runs on its own.
    """
    try:
        if any(data.get(name) for name in ELSEWHERE):
            raise _Unbounded
        tokens = allowance_tokens + sum(_size(data[name], media_tokens) for name in PROMPT_FIELDS if data.get(name))
        for name in ("prompt", "input"):
            if data.get(name):
                tokens += _prompts(data[name], media_tokens)
        return Bound(tokens, output_asked(data))
    except (_Unbounded, RecursionError):
        return Bound(None, output_asked(data))


def quick_bound(raw: bytes, allowance_tokens: int) -> int | None:
    """The bound from a JSON body's size alone, None when the body must be parsed to give one.

    JSON text is never shorter than the UTF-8 text in it, and a message's own keys outweigh what the template puts around it;
    only media, prompts kept elsewhere, and keys that could hide behind an escape need the parse.
    """
    if SUSPECT.search(raw) or (b"\\" in raw and b"\\u" in raw):
        return None
    return len(raw) + allowance_tokens


def output_asked(data: Mapping[str, Any]) -> int | None:
    """The output limit the client set, None when it set none."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = data.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def output_field(data: Mapping[str, Any], path: str) -> str:
    """The field by which this request's output is limited."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        if name in data:
            return name
    return "max_output_tokens" if path.endswith("/responses") else "max_tokens"


def _prompts(value: Any, media_tokens: int | None) -> int:
    if isinstance(value, list) and value and all(isinstance(item, (str, list)) for item in value):
        return max(_size(item, media_tokens) for item in value)
    return _size(value, media_tokens)


def _size(value: Any, media_tokens: int | None) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Mapping):
        if not MEDIA_KEYS.isdisjoint(value) or value.get("type") in MEDIA_KEYS:
            if media_tokens is None:
                raise _Unbounded
            return media_tokens
        return MESSAGE_TOKENS + sum(_size(k, media_tokens) + _size(v, media_tokens) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        if all(type(item) is int for item in value):
            return len(value)
        return sum(_size(item, media_tokens) for item in value)
    return 1 if value is None or isinstance(value, bool) else len(str(value))

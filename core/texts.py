"""Prompt and answer text never enters: what is kept of a foreign object is numbers and short labels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

TEXT_KEYS = frozenset(
    {
        "messages", "message", "response", "responses", "prompt", "prompts", "choices", "input", "inputs", "output_text",
        "content", "contents", "text", "texts", "completion", "completions", "query", "question", "answer", "system",
        "instructions", "body", "arguments", "delta", "documents", "tool_calls", "function_call", "reasoning_content", "thinking",
        "request", "error_str", "error_message", "traceback", "proxy_server_request", "headers", "authorization", "api_key",
    }
)  # fmt: skip
"""Keys whose values are dropped whole, at any depth. ``input_tokens`` and its like are other keys."""

MAX_LABEL = 64
MAX_DEPTH = 6
MAX_ITEMS = 100
_INT64 = 2**63


def without_texts(value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with numbers, booleans, nulls and short labels only: text keys, long strings, non-finite numbers, lists of anything
    but numbers and labels, and what lies deeper than six levels are left out."""
    return _object(value, 0)


def _object(value: Mapping[str, Any], depth: int) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, item in islice(value.items(), MAX_ITEMS):
        if not is_kept_name(name):
            continue
        if item is None or type(item) is bool:
            kept[name] = item
        elif isinstance(item, dict):
            if depth < MAX_DEPTH:
                kept[name] = _object(item, depth + 1)
        elif isinstance(item, (list, tuple)):
            kept[name] = [part for part in item[:MAX_ITEMS] if _scalar(part)]
        elif _scalar(item):
            kept[name] = item
    return kept


@lru_cache(maxsize=4096)
def is_kept_name(name: Any) -> bool:
    """Whether an entry of this name may be kept: a short label that does not name a text."""
    return _label(name) and name.lower() not in TEXT_KEYS


def _scalar(item: Any) -> bool:
    if type(item) is int:
        return -_INT64 <= item < _INT64
    if isinstance(item, str):
        return _label(item)
    if isinstance(item, float):
        return item - item == 0
    return item is None or isinstance(item, bool)


def _label(item: Any) -> bool:
    return isinstance(item, str) and len(item) <= MAX_LABEL and item.isprintable()

"""Providers' own usage objects -> ``TokenCounts`` (OpenAI chat and responses, Anthropic, DeepSeek, Ollama, LiteLLM, OTel).

Which bucket a cached token is in depends on the dialect: OpenAI's and OTel's input *includes* its cached parts, Anthropic's
excludes them. The dialect is told by the key names. vLLM's ``created_cache_tokens`` says how much of the prompt became
cacheable; nobody sells it, so it is kept in ``raw`` and is not a cache write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.errors import BadRecord
from core.tokens import TokenCounts

Object = Mapping[str, Any]
_DETAILS = (
    "prompt_tokens_details",
    "completion_tokens_details",
    "input_tokens_details",
    "output_tokens_details",
    "cache_creation",
    "cache_creation_token_details",
)
_INPUT = ("prompt_tokens", "input_tokens", "gen_ai.usage.input_tokens", "prompt_eval_count")
_OUTPUT = ("completion_tokens", "output_tokens", "gen_ai.usage.output_tokens", "eval_count")
_READ = (
    "cached_tokens",
    "cache_read_input_tokens",
    "prompt_cache_hit_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.input_cached_tokens",
)
_WRITE = (
    "cache_write_tokens",
    "cache_creation_tokens",
    "cache_creation_input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
)
_WRITE_5M, _WRITE_1H = ("ephemeral_5m_input_tokens",), ("ephemeral_1h_input_tokens",)
_REASONING = ("reasoning_tokens",)
_EXPLAINED = frozenset(
    {
        *_INPUT, *_OUTPUT, *_READ, *_WRITE, *_WRITE_5M, *_WRITE_1H, *_REASONING, *_DETAILS,
        "total_tokens", "prompt_cache_miss_tokens", "created_cache_tokens", "text_tokens", "audio_tokens", "image_tokens",
        "video_tokens", "multimodal_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens", "character_count",
        "server_tool_use", "service_tier", "output_image_count", "cost", "inference_geo", "speed", "iterations", "image_count",
        "video_length_seconds",
    }
)  # fmt: skip


def tokens_from_usage(usage: Object) -> TokenCounts:
    """The disjoint counts of one usage object. An absent or null count is 0; raises BadRecord naming the field when it holds no
    input or output count at all, a count is no whole number, or the parts exceed the whole."""
    flat = _flat(usage)
    if not any(flat.get(name) is not None for name in (*_INPUT, *_OUTPUT)):
        raise BadRecord("holds no token count", field="usage", hint="expected prompt_tokens or input_tokens")
    write_1h = _first(flat, _WRITE_1H)
    write_5m = _first(flat, _WRITE_5M) or max(0, _first(flat, _WRITE) - write_1h)
    parts = {"cache_read": _first(flat, _READ), "cache_write_5m": write_5m, "cache_write_1h": write_1h}
    whole, output, reasoning = _first(flat, _INPUT), _first(flat, _OUTPUT), _first(flat, _REASONING)
    if _excludes_cache(usage):
        whole += sum(parts.values())
    return TokenCounts.from_inclusive(whole, output, reasoning=reasoning, **parts)


def merge_stream_usage(events: Iterable[Object]) -> dict[str, Any]:
    """One usage object of a stream's many: they are cumulative, so per field the last non-null one wins (never a sum)."""
    merged: dict[str, Any] = {}
    for event in events:
        for name, value in event.items():
            if isinstance(value, dict):
                merged[name] = merge_stream_usage([merged.get(name) or {}, value])
            elif value is not None:
                merged[name] = value
    return merged


def unmapped_fields(usage: Object) -> tuple[str, ...]:
    """Names of numeric usage fields no rule here explains: kept in ``raw`` and counted, for a new one may be a new price."""
    found: list[str] = []
    for name, value in usage.items():
        if isinstance(value, dict):
            found += [f"{name}.{inner}" for inner in unmapped_fields(value)]
        elif name not in _EXPLAINED and isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append(name)
    return tuple(found)


def _flat(usage: Object) -> dict[str, Any]:
    flat = {name: value for name, value in usage.items() if not isinstance(value, dict)}
    for name in _DETAILS:
        details = usage.get(name)
        if isinstance(details, dict):
            flat |= {inner: value for inner, value in details.items() if value is not None and flat.get(inner) is None}
    return flat


def _first(flat: Object, names: tuple[str, ...]) -> int:
    for name in names:
        value = flat.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadRecord("must be a whole number", field=name, value=value)
        if value < 0:
            raise BadRecord("must not be negative", field=name, value=value)
        if value:
            return value
    return 0


def _excludes_cache(usage: Object) -> bool:
    """Anthropic's own shape: ``input_tokens`` beside ``cache_*_input_tokens`` and without OpenAI's details."""
    anthropic = any(name in usage for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"))
    return anthropic and "prompt_tokens" not in usage and "input_tokens_details" not in usage

"""Providers' own usage objects -> ``TokenCounts``, by a table: one row a dialect, no code of its own.

Which bucket a cached token is in depends on the dialect: OpenAI's, OTel's and Gemini's input *includes* its cached parts,
Anthropic's and Bedrock's excludes them; Gemini's output excludes its thoughts. The dialect is told by the key names.
vLLM's ``created_cache_tokens`` says how much of the prompt became cacheable; nobody sells it, so it is kept in ``raw`` and is
not a cache write. Sources: facts of usage objects; Bedrock and Gemini as LiteLLM 1.95.1 reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import BadRecord
from core.tokens import TokenCounts

Object = Mapping[str, Any]
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where one provider keeps its counts: alternatives by name, in the usage object or in one of its ``DETAILS``.

    ``input_includes_cache``: whether ``input`` counts the cached parts too. ``output_includes_reasoning`` likewise.
    """

    name: str
    marks: Names
    """The object is of this dialect when it has one of these and none of ``marks_not``."""
    input: Names
    output: Names
    read: Names = ()
    write: Names = ()
    write_5m: Names = ()
    write_1h: Names = ()
    reasoning: Names = ("reasoning_tokens",)
    total: Names = ("total_tokens",)
    marks_not: Names = ()
    input_includes_cache: bool = True
    output_includes_reasoning: bool = True


_EPHEMERAL_5M, _EPHEMERAL_1H = ("ephemeral_5m_input_tokens",), ("ephemeral_1h_input_tokens",)
DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        "anthropic",
        marks=("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
        marks_not=("prompt_tokens", "input_tokens_details"),
        input=("input_tokens",),
        output=("output_tokens",),
        read=("cache_read_input_tokens",),
        write=("cache_creation_input_tokens",),
        write_5m=_EPHEMERAL_5M,
        write_1h=_EPHEMERAL_1H,
        reasoning=("reasoning_tokens", "thinking_tokens"),
        input_includes_cache=False,
    ),
    Dialect(
        "openai-chat",  # also vLLM, SGLang, DeepSeek (cache fields at the top), Moonshot, LiteLLM (Anthropic's names, inclusive)
        marks=("prompt_tokens", "completion_tokens"),
        input=("prompt_tokens",),
        output=("completion_tokens",),
        read=("cached_tokens", "cache_read_input_tokens", "prompt_cache_hit_tokens"),
        write=("cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens"),
        write_5m=_EPHEMERAL_5M,
        write_1h=_EPHEMERAL_1H,
    ),
    Dialect(
        "openai-responses",
        marks=("input_tokens", "output_tokens"),
        input=("input_tokens",),
        output=("output_tokens",),
        read=("cached_tokens",),
        write=("cache_write_tokens",),
    ),
    Dialect(
        "otel",
        marks=(
            "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.prompt_tokens",
            "gen_ai.usage.completion_tokens",
        ),
        input=("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        output=("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        read=(
            "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.input_cached_tokens",
            "gen_ai.usage.cache_read_tokens",
            "gen_ai.usage.cache_read_input_tokens",
            "gen_ai.usage.details.cache_read_input_tokens",
        ),
        write=("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_write.input_tokens"),
        reasoning=("gen_ai.usage.reasoning.output_tokens",),
        total=(),
    ),
    Dialect(
        "gemini",
        marks=("promptTokenCount", "candidatesTokenCount"),
        input=("promptTokenCount",),
        output=("candidatesTokenCount", "responseTokenCount"),
        read=("cachedContentTokenCount",),
        reasoning=("thoughtsTokenCount",),
        total=("totalTokenCount",),
        output_includes_reasoning=False,
    ),
    Dialect(
        "bedrock-converse",
        marks=("inputTokens", "outputTokens"),
        input=("inputTokens",),
        output=("outputTokens",),
        read=("cacheReadInputTokens",),
        write=("cacheWriteInputTokens",),
        total=(),
        input_includes_cache=False,
    ),
    Dialect(
        "ollama",
        marks=("prompt_eval_count", "eval_count"),
        input=("prompt_eval_count",),
        output=("eval_count",),
        total=(),
    ),
)  # fmt: skip
_MARKS = tuple((frozenset(dialect.marks), frozenset(dialect.marks_not), dialect) for dialect in DIALECTS)
DETAILS = (
    "prompt_tokens_details", "completion_tokens_details", "input_tokens_details", "output_tokens_details", "cache_creation",
    "cache_creation_token_details",
)  # fmt: skip
STREAM_PLACES: tuple[Names, ...] = (
    ("usage",), ("message", "usage"), ("response", "usage"), ("metadata", "usage"), ("usageMetadata",),
    ("response", "usageMetadata"),
)  # fmt: skip
"""Where a chunk of a stream keeps its usage: OpenAI chat and Anthropic's ``message_delta``, Anthropic's ``message_start``,
OpenAI's ``response.completed``, Bedrock, Gemini. Ollama's last object holds its counts itself."""
_BARE = frozenset({*next(d for d in DIALECTS if d.name == "ollama").marks})
_UNSOLD = frozenset(
    {
        "prompt_cache_miss_tokens", "created_cache_tokens", "text_tokens", "audio_tokens", "image_tokens", "video_tokens",
        "multimodal_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens", "character_count", "server_tool_use",
        "service_tier", "output_image_count", "cost", "inference_geo", "speed", "iterations", "image_count",
        "video_length_seconds", "serverToolUsage", "totalTokens",
        "total_duration", "load_duration", "prompt_eval_duration", "eval_duration",
    }
)  # fmt: skip
"""Parts and measures that are explained and sold by no rule here."""
_EXPLAINED = _UNSOLD.union(
    DETAILS,
    *((*d.input, *d.output, *d.read, *d.write, *d.write_5m, *d.write_1h, *d.reasoning, *d.total) for d in DIALECTS),
)


def tokens_from_usage(usage: Object) -> TokenCounts:
    """The disjoint counts of one usage object. An absent or null part is 0.

    Raises BadRecord naming the field when the object is of no dialect or holds no input count, a count is no whole number, or the
    parts exceed the whole or the stated total.
    """
    flat, dialect = _flat(usage), dialect_of(usage)
    if dialect is None or not any(flat.get(name) is not None for name in (*dialect.input, *dialect.output)):
        raise BadRecord("holds no token count", field="usage", hint="expected prompt_tokens or input_tokens")
    if all(flat.get(name) is None for name in dialect.input):
        raise BadRecord("is absent beside an output count", field=dialect.input[0], hint="an unknown input is not zero")
    write_1h = _first(flat, dialect.write_1h)
    write_5m = _first(flat, dialect.write_5m) or max(0, _first(flat, dialect.write) - write_1h)
    read = _first(flat, dialect.read)
    whole, output, reasoning = _first(flat, dialect.input), _first(flat, dialect.output), _first(flat, dialect.reasoning)
    if not dialect.input_includes_cache:
        whole += read + write_5m + write_1h
    if not dialect.output_includes_reasoning:
        output += reasoning
    _check_total(flat, dialect, whole, output)
    return TokenCounts.from_inclusive(
        whole, output, reasoning=reasoning, cache_read=read, cache_write_5m=write_5m, cache_write_1h=write_1h
    )


def dialect_of(usage: Object) -> Dialect | None:
    """The first dialect whose marks are in the object."""
    names = usage.keys()
    for marks, marks_not, dialect in _MARKS:
        if not marks.isdisjoint(names) and marks_not.isdisjoint(names):
            return dialect
    return None


def stream_usage(chunks: Iterable[Any]) -> dict[str, Any] | None:
    """The usage a stream's chunks report, or None when none does: then it is missing, which is not zero.

    Wherever a chunk keeps it, whatever its ``choices`` hold, on one chunk or on each: reports are cumulative.
    """
    found = [usage for chunk in chunks if isinstance(chunk, Mapping) for usage in _usages(chunk)]
    merged = merge_stream_usage(found)
    return merged if any(value is not None for value in merged.values()) else None


def merge_stream_usage(events: Iterable[Object]) -> dict[str, Any]:
    """One usage object of a stream's many: they are cumulative, so per field the last non-null one wins (never a sum)."""
    merged: dict[str, Any] = {}
    for event in events:
        for name, value in event.items():
            if isinstance(value, dict):
                held = merged.get(name)
                merged[name] = merge_stream_usage([held if isinstance(held, dict) else {}, value])
            elif value is not None:
                merged[name] = value
    return merged


def unmapped_fields(usage: Object) -> tuple[str, ...]:
    """Names of numeric usage fields no rule here explains: kept in ``raw`` and counted, for a new one may be a new price."""
    found: list[str] = []
    for name, value in usage.items():
        if isinstance(value, dict):
            if not value.keys() <= _EXPLAINED or any(isinstance(inner, dict) for inner in value.values()):
                found += [f"{name}.{inner}" for inner in unmapped_fields(value)]
        elif name not in _EXPLAINED and isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append(name)
    return tuple(found)


def _usages(chunk: Object) -> Iterable[Object]:
    for place in STREAM_PLACES:
        at: Any = chunk
        for name in place:
            at = at.get(name) if isinstance(at, Mapping) else None
        if isinstance(at, Mapping):
            yield at
    if not _BARE.isdisjoint(chunk):
        yield {name: chunk[name] for name in _BARE & chunk.keys()}


def _flat(usage: Object) -> dict[str, Any]:
    flat = dict(usage)
    for name in DETAILS:
        details = usage.get(name)
        if isinstance(details, dict):
            flat |= {inner: value for inner, value in details.items() if value is not None and flat.get(inner) is None}
    return flat


def _first(flat: Object, names: Names) -> int:
    """The first of the named counts that is not zero; 0 when there is none."""
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


def _check_total(flat: Object, dialect: Dialect, whole: int, output: int) -> None:
    total = _first(flat, dialect.total)
    if total and whole + output > total:
        raise BadRecord(f"is less than its parts ({whole} input, {output} output)", field=dialect.total[0], value=total)

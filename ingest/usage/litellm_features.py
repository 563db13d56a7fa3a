"""Numbers of a call's texts in a LiteLLM payload: what our guard computed, or the names of the called tools in the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from core.errors import BadRecord
from core.usage_codec import MAX_TOOLS, whole_number

GUARD_FEATURES = "tokenfuse_features"
"""What our guard adds to a sampled payload."""
CALLING = frozenset({"tool_calls", "function_call"})
"""Finish reasons of an answer that calls tools."""
MAX_TOOL_NAME = 64
SKETCH_LENGTHS = range(257)


@dataclass(frozen=True, slots=True)
class CallFeatures:
    """``tools`` are those the answer called; ``repeat_ratio`` None and ``prefix_sketch`` () where nobody computed them."""

    tools: tuple[str, ...] = ()
    repeat_ratio: Decimal | None = None
    prefix_sketch: tuple[int, ...] = ()


NOTHING = CallFeatures()


def call_features(payload: Mapping[str, Any]) -> CallFeatures:
    """Raises BadRecord when what the guard wrote is not what a guard writes."""
    said = payload.get(GUARD_FEATURES)
    if said is None:
        tools = _called(payload.get("response"))
        return CallFeatures(tools) if tools else NOTHING
    if not isinstance(said, dict):
        raise BadRecord("must be an object", field=GUARD_FEATURES)
    return CallFeatures(_names(said.get("tools")), _ratio(said.get("repeat_ratio")), _sketch(said.get("prefix_sketch")))


def _names(value: Any) -> tuple[str, ...]:
    names = [] if value is None else value
    if not isinstance(names, list) or len(names) > MAX_TOOLS or not all(map(_is_name, names)):
        raise BadRecord(f"must be at most {MAX_TOOLS} short names", field=f"{GUARD_FEATURES}.tools")
    return tuple(names)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_TOOL_NAME and value.isprintable()


def _ratio(value: Any) -> Decimal | None:
    if value is None:
        return None
    try:
        found = Decimal(value) if isinstance(value, str) and len(value) <= 20 else Decimal("NaN")
    except InvalidOperation:
        found = Decimal("NaN")
    if not (found.is_finite() and 0 <= found <= 1):
        raise BadRecord("must be a decimal in quotes, 0 to 1", field=f"{GUARD_FEATURES}.repeat_ratio", value=value)
    return found


def _sketch(value: Any) -> tuple[int, ...]:
    numbers = [] if value is None else value
    if not isinstance(numbers, list) or len(numbers) not in SKETCH_LENGTHS:
        raise BadRecord("must be a list of at most 256 whole numbers", field=f"{GUARD_FEATURES}.prefix_sketch")
    return tuple(whole_number(number, f"{GUARD_FEATURES}.prefix_sketch", 0, 2**63 - 1) for number in numbers)


def _called(response: Any) -> tuple[str, ...]:
    """Names of the tools the first answer of a chat completion called."""
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    names = [_name_of(call) for call in calls[:MAX_TOOLS]] if isinstance(calls, list) else []
    return tuple(name for name in names if _is_name(name))


def _name_of(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    return function.get("name") if isinstance(function, dict) else None

"""Figures people read of the features' sums: shares and means, divided last, unknown where nothing was seen."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, localcontext

from core.heat_map import PER_DOUBLING
from core.money import CONTEXT

MOST_DIGITS = Decimal("0.0001")
FIGURES: Mapping[str, str] = {
    "context_mean": "Input tokens per request, cached ones included.",
    "over_p90_share": "Share of requests longer than the P90 of their deployment in the week before the window (right to 19 %).",
    "input_output_log2": "Mean of log2(input / output) over requests with both; 3 is eight times as much input as output.",
    "cached_share": "Share of the input tokens that came from the prefix cache.",
    "follow_up_share": "Share of the requests of sessions that were not the first of theirs.",
    "repeat_ratio": "Mean share of an answer's runs of four words that stood in it before; sampled.",
    "tool_share": "Share of the requests whose answer called a tool, among those it is known of.",
    "tools_per_request": "Tool calls per request, among those it is known of.",
    "similar_share": "Share of the sketched requests whose prompt begins like an earlier one of the hour before (70 % similar).",
    "shareable_share": "Share of the sketched requests' input tokens that sharing those beginnings would save; sampled.",
}
"""Name and meaning, in the order they are shown."""
_PARTS: Mapping[str, tuple[str, str, int]] = {
    "context_mean": ("input_tokens", "counted_requests", 1),
    "over_p90_share": ("over_p90_requests", "over_p90_of", 1),
    "input_output_log2": ("ratio_quarters", "ratio_requests", PER_DOUBLING),
    "cached_share": ("cached_tokens", "input_tokens", 1),
    "follow_up_share": ("follow_ups", "session_requests", 1),
    "repeat_ratio": ("repeat_e4", "repeat_requests", 10_000),
    "tool_share": ("tool_requests", "tool_known_requests", 1),
    "tools_per_request": ("tool_calls", "tool_known_requests", 1),
    "similar_share": ("similar_requests", "sketched_requests", 1),
    "shareable_share": ("shareable_tokens", "sketched_input_tokens", 1),
}
_REASONS: Mapping[str, str] = {
    "counted_requests": "no request said its tokens",
    "over_p90_of": "fewer than 200 requests in the 7 days before, or lengths are not kept by this key",
    "ratio_requests": "no request with both input and output tokens",
    "input_tokens": "no input tokens",
    "session_requests": "no request named its session",
    "repeat_requests": "no gateway hook computed it: TOKENFUSE_GUARD_FEATURES_PERCENT of the LiteLLM guard",
    "tool_known_requests": "no source told which tools were called",
    "sketched_requests": "no gateway hook computed it: TOKENFUSE_GUARD_FEATURES_PERCENT of the LiteLLM guard",
    "sketched_input_tokens": "no gateway hook computed it: TOKENFUSE_GUARD_FEATURES_PERCENT of the LiteLLM guard",
}


def feature_figures(sums: Mapping[str, int]) -> tuple[dict[str, Decimal | None], dict[str, str]]:
    """The figures and, for each that is None, why. ``sums`` are ``core.features.MEASURES`` with ``over_p90_requests`` and
    ``over_p90_of``."""
    whole = {**sums, "follow_ups": sums["session_requests"] - sums["turn_1"]}
    figures: dict[str, Decimal | None] = {}
    reasons: dict[str, str] = {}
    for name in FIGURES:
        above, below, unit = _PARTS[name]
        if whole[below]:
            with localcontext(CONTEXT):
                figures[name] = (Decimal(whole[above]) / (whole[below] * unit)).quantize(MOST_DIGITS)
        else:
            figures[name], reasons[name] = None, _REASONS[below]
    return figures, reasons


def p90_bucket(requests: Mapping[int, int], fewest: int = 200) -> int | None:
    """The length bucket the 90th percentile of the requests lies in; None for fewer than ``fewest`` requests."""
    whole = sum(requests.values())
    if whole < fewest:
        return None
    passed = 0
    for bucket in sorted(requests):
        passed += requests[bucket]
        if passed * 10 >= whole * 9:
            return bucket
    return None

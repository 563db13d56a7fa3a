"""The metrics rules can watch: what each means, its unit, which way is bad, and of what it is measured.

Every metric is a ratio of two sums (or one sum) over the rollup rows of a window, divided last; ``models.rule_series`` holds the
sums' SQL by the same names. Kinds of source: ``usage`` (gateway rollups), ``engine`` (engine rollups), ``length`` (histogram of
prompt lengths by the hour). ``priced``: work at one unit price for all windows, that of now, so that a change of price, fit or
rate card moves no window against another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from core.detect import Direction
from core.scopes import ScopeKind

Source = Literal["usage", "engine", "length"]
HOUR = timedelta(hours=1)
ANY: tuple[ScopeKind, ...] = ("deployment", "tenant")
ENGINE: tuple[ScopeKind, ...] = ("deployment",)


@dataclass(frozen=True, slots=True)
class Metric:
    """``step``: the shortest window it can be measured in. ``silent_is_zero``: no rows means 0 (a count), not "not known"."""

    title: str
    unit: str
    direction: Direction
    source: Source
    scopes: tuple[ScopeKind, ...]
    step: timedelta = timedelta(minutes=1)
    priced: bool = False
    silent_is_zero: bool = False


METRICS: Mapping[str, Metric] = {
    "unit_cost": Metric(
        "Cost per million tokens, measured: engines' busy time at the price of now / engine tokens", "currency/MTok", "high",
        "engine", ENGINE, priced=True,
    ),
    "tenant_unit_cost": Metric(
        "Cost per million tokens of a tenant's own work at the weights and price of now", "currency/MTok", "high", "usage", ANY,
        priced=True,
    ),
    "spend_rate": Metric("Cost an hour of the work done, at the weights and price of now", "currency/h", "high", "usage", ANY,
                         priced=True, silent_is_zero=True),
    "requests": Metric("Requests a minute", "1/min", "high", "usage", ANY, silent_is_zero=True),
    "tokens": Metric("Tokens a minute, all kinds", "1/min", "high", "usage", ANY, silent_is_zero=True),
    "tokens_per_request": Metric("Tokens per request", "tokens", "high", "usage", ANY),
    "input_per_request": Metric("Input tokens per request, cached ones included", "tokens", "high", "usage", ANY),
    "output_per_request": Metric("Output tokens per request", "tokens", "high", "usage", ANY),
    "failed_share": Metric("Failed and aborted requests / requests", "share", "high", "usage", ANY),
    "cached_share": Metric("Input tokens from the prefix cache / input tokens", "share", "low", "usage", ANY),
    "kv_use": Metric("Share of the KV cache in use, time-weighted", "share", "high", "engine", ENGINE),
    "preemptions": Metric("Requests pushed out of the KV cache a minute", "1/min", "high", "engine", ENGINE),
    "hit_rate": Metric("Prompt tokens found in the prefix cache / looked up", "share", "low", "engine", ENGINE),
    "decode_ms_per_token": Metric("Decode milliseconds / token after a request's first", "ms", "high", "engine", ENGINE),
    "prefill_ms_per_token": Metric("Prefill milliseconds / computed prompt token", "ms", "high", "engine", ENGINE),
    "batch_gap": Metric("Time with nothing running / time with requests running", "ratio", "high", "engine", ENGINE),
    "idle_share": Metric("Observed time with nothing running / observed time", "share", "high", "engine", ENGINE),
    "waiting_share": Metric("Observed time with requests waiting / observed time", "share", "high", "engine", ENGINE),
    "running_mean": Metric("Requests running at once on an engine, over time with requests", "requests", "low", "engine", ENGINE),
    "memory_fragmentation": Metric(
        "GPU memory PyTorch holds and no tensor uses / held", "share", "high", "engine", ENGINE
    ),
    "over_p90_share": Metric(
        "Share of prompts longer than the P90 of the week before (a twentieth to a fifth is usual)", "share", "high", "length",
        ENGINE, step=HOUR,
    ),
}  # fmt: skip
"""By name, in the order shown."""

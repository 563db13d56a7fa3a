"""Realistic answers of the API about the fleet; every body goes through the API's own schema, so that it cannot drift."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from sample_answers import GROUPS, Kind

from api.schemas.fleet import EfficiencyOut, HeatMapOut
from core.efficiency import EngineSums, GpuSums, efficiency
from core.heat_map import doubling_label
from core.windows import Window, floor_time

HOUR_US = 3_600_000_000


def heat_maps(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """``GET /v1/heat-map``: long prompts by day, nights that are quiet."""
    places = _places(params.get("axis", "hour_of_day"), _window(params, now), now)
    cells = [_cell(at, n, d) for n, at in enumerate(places) for d in (-1, 8, 10, 11, 12, 13, 15) if _weight(n, d)]
    rows = [{"at": at, **_lengths(_sum([c for c in cells if c["at"] == at], "requests"))} for at in places]
    if kind == "empty":
        cells, rows = [], []
    if kind == "partial":
        rows = [{**row, "p50": Decimal(0), "spread": None} for row in rows]
    whole = {**_lengths(_sum(cells, "requests")), "tokens": _sum(cells, "tokens")}
    if kind != "data":
        whole |= {"p50": None if kind == "empty" else Decimal(0), "spread": None}
    return _json(HeatMapOut, {"cells": cells, "lengths": rows, "whole": whole, "meta": _meta(params, kind, now)})


def _places(axis: str, window: Window, now: datetime) -> list[Any]:
    if axis == "hour_of_day":
        return list(range(24))
    step = timedelta(hours=1) if axis == "hour" else timedelta(days=1)
    first = floor_time(window.start, step)
    times = [first + n * step for n in range(min(40, max(1, int(window.duration / step))))]
    return times if axis == "hour" else [at.date() for at in times]


def _weight(n: int, d: int) -> int:
    return max(0, (12 - abs(n % 24 - 13)) * (14 - abs(d - 11)) * 7 - (300 if d > 12 else 0))


def _cell(at: Any, n: int, d: int) -> dict[str, Any]:
    requests = _weight(n, d)
    low, high = (0, 1) if d < 0 else (1 << d, 2 << d)
    tokens = requests * (low + high) // 2 if d >= 0 else 0
    return {
        "at": at, "low_tokens": low, "high_tokens": high, "label": doubling_label(d), "requests": requests, "tokens": tokens,
    }  # fmt: skip


def _sum(cells: list[dict[str, Any]], name: str) -> int:
    return sum(cell[name] for cell in cells)


def _lengths(requests: int) -> dict[str, Any]:
    known = {"p50": Decimal("2310.4"), "p90": Decimal("11204.9"), "spread": Decimal("4.85")}
    return {"requests": requests, "tokens": requests * 3000, **(known if requests else dict.fromkeys(known))}


def efficiencies(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """``GET /v1/efficiency``."""
    window, step = _window(params, now), params.get("step", "hour")
    rows = [] if kind == "empty" else [row for at in _steps(step, window) for row in _rows(step, at, kind)]
    return _json(EfficiencyOut, {"rows": rows, "total_rows": len(rows), "meta": _meta(params, kind, now)})


def _steps(step: str, window: Window) -> list[datetime | None]:
    if step == "none":
        return [None]
    span = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}[step]
    first = floor_time(window.start, span)
    return [first + n * span for n in range(min(200, max(1, int(window.duration / span))))]


def _rows(step: str, at: datetime | None, kind: Kind) -> list[dict[str, Any]]:
    found = []
    for n, name in enumerate(GROUPS["deployment"]):
        load = 40 + 9 * n + (0 if at is None else 3 * (at.hour % 12))
        engines = [_engine(load), _engine(load + 6)]
        if kind == "partial":
            engines = [EngineSums(observed_us=HOUR_US, busy_us=HOUR_US // 2, generation_tokens=7, prompt_tokens=9)]
        gpus = GpuSums(61 * HOUR_US, 80 * HOUR_US, HOUR_US, 0, 0, 412 * HOUR_US, HOUR_US) if n == 0 and kind == "data" else None
        figures = efficiency(engines, max_batched_tokens=8192 if n == 0 and kind == "data" else None, gpus=gpus)
        key = {} if at is None else {step: at.date() if step == "day" else at}
        found.append(
            {
                **key, "deployment": name, "engines": figures.engines, **figures.values, "reasons": dict(figures.reasons),
                "notes": dict(figures.notes),
            }
        )  # fmt: skip
    return found


def _engine(load: int) -> EngineSums:
    part = HOUR_US * load // 100
    return EngineSums(
        observed_us=HOUR_US, busy_us=part, saturated_us=part // 9, gap_us=0, running_us=6 * part, waiting_us=part // 3,
        kv_token_us=part * 1000, kv_seen_us=HOUR_US, kv_full_us=part, kv_capacity_us=HOUR_US * 1000, prompt_tokens=900_000,
        prompt_tokens_cached=400_000, prompt_tokens_computed=500_000, generation_tokens=90_000,
        finished_generation_tokens=88_000, prefix_queries=900_000, prefix_hits=400_000, requests_finished=600, steps=21_000,
        iteration_tokens=590_000, preemptions=load // 55, queue_us=90_000_000, prefill_us=400_000_000, decode_us=1_900_000_000,
        torch_seen_us=HOUR_US, torch_reserved_mib_us=70_000 * HOUR_US, torch_allocated_mib_us=61_000 * HOUR_US,
    )  # fmt: skip


def _window(params: Mapping[str, str], now: datetime) -> Window:
    if "from" not in params:
        return Window(now - timedelta(days=1), now)
    return Window(datetime.fromisoformat(params["from"]).astimezone(UTC), datetime.fromisoformat(params["to"]).astimezone(UTC))


def _meta(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    window = _window(params, now)
    freshness = None if kind == "empty" else now - timedelta(seconds=12)
    return {"window_start": window.start, "window_end": window.end, "freshness": freshness}


def _json(schema: type[BaseModel], body: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = schema.model_validate(body).model_dump(mode="json", exclude_unset=True)
    return checked

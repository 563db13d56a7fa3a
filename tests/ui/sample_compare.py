"""Answers of ``GET /v1/compare`` and ``/v1/unpriced``, put through the API's own schemas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sample_answers import Kind

from api.schemas.compare import CompareOut, UnpricedOut

WATCHED = {
    "price_source": "test card (list)",
    "utilisation_source": "share of time with running > 0",
    "state": "provisional",
    "coverage": 0.98,
}
TOLD = "nobody said with which model of a vendor it is to be compared"
HINT = "tokenfuse rates vendor alias compare OWN_MODEL VENDOR/MODEL --reason WHY, or --against VENDOR/MODEL"
ROW = {
    "model": "llama-70b", "currency": "USD", "against": "deepseek/deepseek-chat",
    "tokens": {"input": 600_000_000, "input_cached": 300_000_000, "output": 100_000_000},
    "own_cost": "500", "own_used_cost": "150", "bought_cost": "293", "bought_currency": "USD", "own_allocation": "0.5",
    "own_usage": "0.15", "bought": "0.293", "times": "1.7065", "utilisation": "0.3", "break_even": "0.5119",
    "verdict": "bought is cheaper at this use", "price_list": "genai-prices 2026-08-21 deepseek/deepseek-chat", "reasons": {},
    "hint": "", "meta": WATCHED,
}  # fmt: skip
UNTOLD = {
    **ROW, "model": "embedder", "against": None, "own_cost": "20", "bought_cost": None, "bought_currency": None, "bought": None,
    "times": None, "break_even": None, "verdict": "unknown", "price_list": "", "hint": HINT,
    "reasons": dict.fromkeys(("bought", "times", "break_even"), TOLD),
}  # fmt: skip
DEAR = {
    **ROW,
    "model": "tiny",
    "against": "acme/small",
    "own_cost": "3",
    "own_usage": "0.9",
    "break_even": "3.1",
    "verdict": "never at this price",
}
MEASURED = {
    "model": "llama-70b", "gpu_type": "H100", "gpu_hour": "6.88", "currency": "USD", "price_source": "AWS (list)",
    "tokens_per_gpu_s": "2412.5", "output_per_gpu_s": "310", "utilisation": "0.3", "per_mtok_at_use": "2.64",
    "per_mtok_full": "0.792", "reason": "",
}  # fmt: skip
NUMBERS = ("tokens_per_gpu_s", "output_per_gpu_s", "utilisation", "per_mtok_at_use", "per_mtok_full")
NOT_HERE = {**MEASURED, "gpu_type": "L4", "gpu_hour": "0.805", **dict.fromkeys(NUMBERS), "reason": "not measured here"}
FORMULA = {"model": "llama-70b", "gpu_type": "H100", "formula": "instance seconds", "per_mtok": "0.792", "currency": "USD",
           "reason": "", "label": "field estimate, not ledger"}  # fmt: skip


def comparisons(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """Three models, one of them beside nothing (``partial``: that one alone); ``empty`` has nothing at all."""
    rows: list[dict[str, Any]] = {"empty": [], "partial": [UNTOLD]}.get(kind, [UNTOLD, ROW, DEAR])
    if params.get("by") == "tenant":
        rows = [{**row, "tenant": "acme/search"} for row in rows]
    there = kind != "empty"
    body = {
        "by": params.get("by", "model"), "window_start": now - timedelta(days=7), "window_end": now, "rows": rows,
        "total_rows": len(rows), "hardware": [MEASURED, NOT_HERE] if there else [],
        "field": {"label": "field estimate, not ledger", "rows": [FORMULA] if there else []},
        "meta": {"basis": "allocation", "freshness": now},
    }  # fmt: skip
    answer: dict[str, Any] = CompareOut.model_validate(body).model_dump(mode="json", exclude_unset=True)
    return answer


def unpriced(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """One bought model without a price."""
    hole = {
        "vendor": "deepseek", "model": "DeepSeek-R1-Distill-Qwen-32B", "sold": "standard", "requests": 12,
        "reason": "no price list names deepseek/DeepSeek-R1-Distill-Qwen-32B at 2026-11-18", "input_uncached": 4_000_000,
        "input_cache_read": 500_000, "input_cache_write_5m": 0, "input_cache_write_1h": 0, "output": 900_000,
        "output_reasoning": 0, "tenants": ["acme/search"], "first_at": now - timedelta(days=2), "last_at": now,
        "hint": "tokenfuse rates vendor alias add …",
    }  # fmt: skip
    rows = [] if kind == "empty" else [hole]
    body = {"rows": rows, "total_rows": len(rows), "tokens": 5_400_000 * len(rows), "meta": {"freshness": now}}
    answer: dict[str, Any] = UnpricedOut.model_validate(body).model_dump(mode="json")
    return answer

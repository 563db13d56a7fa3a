"""Realistic answers of the API about the quality of the data; every body goes through the API's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import BaseModel
from sample_answers import GROUPS, Kind

from api.schemas.quality import DataQualityOut
from api.schemas.reads import CoverageOut
from core.quality import about
from core.reconcile import KNOWN, EngineView, GatewayView, reconcile
from core.windows import Window


def qualities(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """``GET /v1/quality``."""
    known = kind == "data"
    kinds = [
        _kind("scrape_gap", 7, "184.20", known, now), _kind("bypass", 31, "96.4137", known, now),
        _kind("estimated", 4120, "41.07", known, now), _kind("target_down", 12, "12.5", known, now),
        _kind("missing", 391, None, known, now), _kind("no_price", 96, None, known, now),
        _kind("quarantined", 18, None, known, now),
    ]  # fmt: skip
    body = {
        "kinds": [] if kind == "empty" else kinds,
        "money": [_total()] if known else [],
        "standing": _standing(kind, now),
        "quarantined": [] if kind == "empty" else [_refused(now)],
        "faults": [] if kind == "empty" else [_fault(n, now) for n in range(3)],
        "faults_total": 0 if kind == "empty" else 212,
        "meta": _meta(params, kind, now),
    }
    return _json(DataQualityOut, body)


def _kind(name: str, count: int, amount: str | None, known: bool, now: datetime) -> dict[str, Any]:
    what = about(name)
    money = [{"currency": "USD", "amount": Decimal(amount)}] if amount and known else []
    reason = what.money if money or what.sort == "none" else "not known: no closed, priced quarter hour is touched"
    places = [{"place": place, "count": count - n} for n, place in enumerate(GROUPS["deployment"][:2])]
    return {
        "kind": name, "title": what.title, "count": count, "counts": what.counts, "first": now - timedelta(days=3),
        "last": now - timedelta(minutes=20), "places": places, "money": money, "money_is": reason,
        "what_to_do": what.what_to_do,
    }  # fmt: skip


def _total() -> dict[str, Any]:
    return {"currency": "USD", "total": Decimal("301.2137"), "by_kind": Decimal("334.1837"), "counted_twice": Decimal("32.97")}


def _standing(kind: Kind, now: datetime) -> dict[str, Any]:
    if kind == "empty":
        return {"checked_at": None, "days": 0, "differences": []}
    measures = {"output": {"archive": 91_000, "minute": 91_000, "hour": 91_007, "day": 91_007}}
    one = {
        "day": (now - timedelta(days=2)).date(), "deployment": GROUPS["deployment"][0], "differs_since": now - timedelta(hours=9),
        "checked_at": now - timedelta(hours=2), "measures": measures,
    }  # fmt: skip
    return {"checked_at": now - timedelta(hours=2), "days": 7, "differences": [one] if kind == "data" else []}


def _refused(now: datetime) -> dict[str, Any]:
    return {
        "field": "tokens.output",
        "reason": "must not be negative (value '-4')",
        "records": 18,
        "last_at": now - timedelta(hours=1),
    }


def _fault(n: int, now: datetime) -> dict[str, Any]:
    at = now - timedelta(hours=n + 1)
    return {
        "kind": "target_down", "source": f"http://gpu-{n}:8000/metrics", "window_start": at,
        "window_end": at + timedelta(minutes=1),
        "detail": {"reason": "ConnectError('refused')"}, "noticed_at": at,
    }  # fmt: skip


def coverages(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """``GET /v1/coverage``: one deployment whose requests were abandoned, one that was bypassed, one without an engine page."""
    sums = [
        (EngineView(2_210_492, 21_069, 1_849_043, 19_004, 624, resets=1, gap_us=155_000_000), GatewayView(
            2_143_697, 19_661, 624, 189, 314_772, 1282, 20_181, 3140, 149, 561_095, 2094, 95, 135, 0,
        )),
        (EngineView(900_000, 9_000, 900_000, 9_000, 400), GatewayView(700_000, 7_400, 310)),
        (None, GatewayView(5_000, 400, 8)),
    ]  # fmt: skip
    rows = [] if kind == "empty" else [_covered(n, *pair) for n, pair in enumerate(sums)]
    if kind == "partial":
        rows = rows[2:]
    return _json(CoverageOut, {"rows": rows, "total_rows": len(rows), "meta": _meta(params, kind, now)})


def _covered(n: int, engine: EngineView | None, gateway: GatewayView) -> dict[str, Any]:
    found = reconcile(engine, gateway)
    reasons = [
        {
            "name": r.name, "tokens_in": r.tokens_in, "tokens_out": r.tokens_out, "requests": r.requests, "known": KNOWN[r.name],
            "count": r.count, "seconds": None if r.seconds is None else float(r.seconds),
        }
        for r in found.reasons
    ]  # fmt: skip
    worked = 0 if engine is None else engine.prompt + engine.generation
    explained = 0 if engine is None else min(engine.prompt, gateway.tokens_in) + min(engine.generation, gateway.tokens_out)
    return {
        "deployment": GROUPS["deployment"][n],
        "engine_prompt_tokens": None if engine is None else engine.prompt,
        "engine_generation_tokens": None if engine is None else engine.generation,
        "gateway_input_tokens": gateway.tokens_in, "gateway_output_tokens": gateway.tokens_out,
        "coverage": explained / worked if worked else None,
        "difference_in": found.difference_in, "difference_out": found.difference_out, "reasons": reasons,
    }  # fmt: skip


def _meta(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    window = Window(now - timedelta(days=7), now)
    if "from" in params:
        window = Window(*(datetime.fromisoformat(params[name]).astimezone(UTC) for name in ("from", "to")))
    freshness = None if kind == "empty" else now - timedelta(seconds=12)
    return {"window_start": window.start, "window_end": window.end, "freshness": freshness}


def _json(schema: type[BaseModel], body: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = schema.model_validate(body).model_dump(mode="json", exclude_unset=True)
    return checked

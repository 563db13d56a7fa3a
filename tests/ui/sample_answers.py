"""Realistic answers of the API for the pages' tests; every body goes through the API's own schema, so that it cannot drift."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from pydantic import BaseModel

from api.schemas.reads import LedgerOut, OverviewOut, UnitCostOut
from core.money import plain
from core.unit_cost import CostSum, unit_cost
from core.windows import Window, floor_time, period_window

Kind = Literal["data", "empty", "partial"]
NO_PRICE = "no price: gpu_hour of H800 has no rate on 2026-11-12"
LATE = timedelta(hours=1)
PRICES = "default rate card 2026-11 (list)"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "deployment": ("bj-1/prod/Qwen3-32B", "bj-1/prod/DeepSeek-R1-671B", "lab/dev/tiny-llama"),
    "model_id": ("Qwen3-32B", "DeepSeek-R1-671B", "tiny-llama"),
    "org": ("星辰科技", "acme"),
    "team": ("搜索推荐", "客服机器人", "search", "ads", "=cmd|' /C calc'!A0", ""),
    "project": ("rag", ""),
    "user": ("张伟", "li.na", "bob"),
    "key_id": ("k-17", "k-18"),
    "service_tier": ("P0", "P1", "P2"),
}
WEIGHTS = (610, 270, 90, 41, 23, 7)


def overview(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """``GET /v1/overview``."""
    window = _window(params) or period_window("month", now, "UTC")
    known = kind == "data"
    body = {
        "spend": _money(window, now) if known else None,
        "spend_reason": {"data": "", "empty": "no usage was metered", "partial": NO_PRICE}[kind],
        "spend_state": "estimate",
        "spend_before": "15120.7731" if known else None,
        "spend_before_reason": "" if known else "no quarter hour is closed",
        "unit_cost_per_mtok": {
            "now": "1.137204119836" if known else None,
            "now_reason": "" if known else "no tokens in closed, priced windows",
            "before": "1.402770000000" if known else None,
            "before_reason": "" if known else "no quarter hour is closed",
        },
        "idle_share": "0.312409" if known else None,
        "idle_reason": "" if known else "no priced quarter hour is closed",
        "tokens_input": 0 if kind == "empty" else 12_345_678_901,
        "tokens_output": 0 if kind == "empty" else 987_654_321,
        "requests": 0 if kind == "empty" else 4_812_377,
        "budgets": [] if kind == "empty" else _budgets(now, known=known),
        "breakers_not_closed": [] if kind == "empty" else [_breaker(now)],
        "series": list(_series(window, kind, now)),
        "series_step": "hour" if window.duration <= timedelta(days=3) else "day",
        "meta": _meta(kind, now) | _ends(window) | {"basis": params.get("basis", "allocation")},
    }
    return _json(OverviewOut, body)


def unit_costs(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """``GET /v1/unit-cost``."""
    window = _window(params) or Window(now - timedelta(days=1), now)
    basis, by = params.get("basis", "allocation"), params.get("by", "deployment")
    keys = _keys(window, by)
    rows = [] if kind == "empty" else [_unit_row(by, key, n, window, basis, now) for n, key in enumerate(keys)]
    if kind == "partial":
        rows = rows[:1] + [_unpriced(row) for row in rows[1:]]
    meta = {"basis": basis, "freshness": _fresh(kind, now), **_ends(window)}
    return _json(UnitCostOut, {"rows": rows, "total_rows": len(rows), "meta": meta})


def ledger(params: Mapping[str, str], kind: Kind, now: datetime) -> dict[str, Any]:
    """``GET /v1/ledger?by=kind``."""
    window = _window(params) or Window(now - timedelta(days=1), now)
    shares = {"idle": "0.312409", "served": "0.601", "starting": "0.0151", "unattributed": "0.05", "wasted": "0.021491"}
    costs = {name: Decimal(_money(window, now)) * Decimal(share) for name, share in shares.items()}
    rows = [
        {"kind": name, "currency": "USD", "tokens": 10, "requests": 3, "cost": cost, "allocated": cost}
        for name, cost in costs.items()
    ]
    meta = {"freshness": _fresh(kind, now), **_ends(window)}
    return _json(LedgerOut, {"rows": rows if kind == "data" else [], "total_rows": 5, "meta": meta})


def _json(schema: type[BaseModel], body: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = schema.model_validate(body).model_dump(mode="json", exclude_unset=True)
    return checked


def _window(params: Mapping[str, str]) -> Window | None:
    if "from" not in params:
        return None
    return Window(datetime.fromisoformat(params["from"]).astimezone(UTC), datetime.fromisoformat(params["to"]).astimezone(UTC))


def _ends(window: Window) -> dict[str, Any]:
    return {"window_start": window.start, "window_end": window.end}


def _money(window: Window, now: datetime) -> str:
    hours = Decimal((min(window.end, now) - window.start) / LATE)
    return plain((hours * Decimal("19.8375104712")).quantize(Decimal("1e-12")))


def _fresh(kind: Kind, now: datetime) -> datetime | None:
    return None if kind == "empty" else now - timedelta(seconds=12)


def _meta(kind: Kind, now: datetime) -> dict[str, Any]:
    known = kind == "data"
    return {
        "price_source": PRICES if known else None,
        "utilisation_source": "share of time with running > 0" if known else None,
        "weight_source": "fit (held-out error 3.4 %)" if known else None,
        "freshness": _fresh(kind, now),
        "coverage": 0.9834 if known else None,
        "state": "estimate",
        "currency": "USD",
    }


def _series(window: Window, kind: Kind, now: datetime) -> Any:
    step = timedelta(hours=1) if window.duration <= timedelta(days=3) else timedelta(days=1)
    at, n = floor_time(window.start, step), 0
    while at < min(window.end, now):
        busy = Decimal("0.55") if at.weekday() >= 5 else Decimal(1)
        cost = _money(Window(at, at + step), at + step)
        hole = kind != "data" or n == 4
        last = at + step > now
        yield {
            "start": max(at, window.start), "end": at + step, "currency": None if hole else "USD",
            "cost": None if hole else Decimal(cost) * busy * (100 + 7 * (n % 5)) / 110,
            "state": "unknown" if hole else "estimate" if last else "closed",
            "reason": "no quarter hour of it is closed and priced" if hole else "",
        }  # fmt: skip
        at, n = at + step, n + 1


def _budgets(now: datetime, *, known: bool) -> list[dict[str, Any]]:
    return [
        _budget(1, "tenant:星辰科技/搜索推荐", "412.3391", "500", "500", "1.30", now + timedelta(days=2), known, now),
        _budget(2, "tenant:acme", "9120.5", "20000", None, "0.81", None, known, now),
        _budget(3, "deployment:bj-1/prod/Qwen3-32B", "0.004217", "3000", None, "0.02", None, known, now),
    ]


def _budget(
    number: int, scope: str, spent: str, amount: str, cap: str | None, pace: str, ends: datetime | None, known: bool,
    now: datetime,
) -> dict[str, Any]:  # fmt: skip
    month = period_window("month", now, "UTC")
    share = plain((Decimal(spent) / Decimal(amount)).quantize(Decimal("0.000001")))
    return {
        "id": number, "scope": scope, "period": "month", "version": 1, "zone": "Asia/Shanghai", "amount": amount, "cap": cap,
        "effective_cap": cap, "currency": "USD", "cost_basis": "usage" if number == 1 else "allocation", "owner": "finops",
        "fiscal_start": 1, "rollover": False, "carried": "0", "carried_reason": "", "plan": amount,
        "window_start": month.start, "window_end": month.end,
        "spend": {
            "amount": spent if known else None, "closed": spent if known else None, "running": "0" if known else None,
            "trueup": "0" if known else None,
            "reason": "" if known else NO_PRICE, "state": "estimate",
        },
        "spent_share": share if known else None, "expected_share": "0.634", "pace": pace if known else None,
        "pace_reason": "" if known else NO_PRICE, "profile_weeks": None,
        "profile_reason": "fewer than 2 whole weeks are closed: every hour is expected alike",
        "burn": "2.1" if known else None, "burn_reason": "" if known else NO_PRICE,
        "exhausted_at": ends if known else None, "exhausted_in_s": 172_800 if ends and known else None,
        "exhaustion_reason": "" if ends and known else "lasts beyond the period at the speed of the last hour",
        "cap_exhausted_at": None, "cap_exhaustion_reason": "no cap",
        "as_of": now, "live": False,
    }  # fmt: skip


def _breaker(now: datetime) -> dict[str, Any]:
    return {
        "id": 7, "scope": "tenant:星辰科技/客服机器人", "phase": "open", "tier": 3, "epoch": 2, "enforced": True,
        "since": now - timedelta(minutes=41), "reason": "spend reached 95 % of the cap", "paused_until": None, "refusing": True,
        "held": False, "presigned_by": None,
        "trip": {"period": "month", "period_end": now + timedelta(days=1), "spend": "285.201", "cap": "300", "currency": "USD"},
    }  # fmt: skip


def _keys(window: Window, by: str) -> list[str]:
    if by in GROUPS:
        return list(GROUPS[by])
    if by == "":
        return [""]
    step = {"quarter_hour": timedelta(minutes=15), "hour": timedelta(hours=1), "day": timedelta(days=1)}[by]
    first = floor_time(window.start, step)
    return [(first + step * n).isoformat() for n in range(min(200, max(1, int(window.duration / step))))]


def _unit_row(by: str, key: str, n: int, window: Window, basis: str, now: datetime) -> dict[str, Any]:
    weight = WEIGHTS[n % len(WEIGHTS)] if by else 1041
    aged = 1 + (now - window.end).days // 7
    scale = Decimal(weight) * (2 if basis == "allocation" else 1) * (10 + aged) / 10
    cost = {
        "input": scale * Decimal("0.41"),
        "input_cached": scale * Decimal("0.0043"),
        "output": scale * Decimal("1.207"),
        "": Decimal(0),
    }
    tokens = {"input": weight * 700_000 + n, "input_cached": 0 if n == 1 else weight * 330_000, "output": weight * 91_000}
    sums = CostSum(cost, tokens, weight * 410)
    unit = unit_cost(sums)
    return {
        **({by: key} if by else {}),
        "currency": "USD", "basis": basis, "requests": sums.requests, "tokens": tokens, "cost": sum(cost.values()),
        "cost_without_tokens": cost.get("", Decimal(0)),
        "wasted_cost": scale / 50, "unattributed_cost": scale / 20, "idle_cost": scale / 3, "starting_cost": Decimal(0),
        "input_per_mtok": unit.input_per_mtok, "input_cached_per_mtok": unit.input_cached_per_mtok,
        "output_per_mtok": unit.output_per_mtok, "blended_per_mtok": unit.blended_per_mtok, "per_request": unit.per_request,
        "reasons": dict(unit.reasons),
        "meta": _meta("data", now) | {"basis": basis, "state": "provisional"},
    }  # fmt: skip


def _unpriced(row: Mapping[str, Any]) -> dict[str, Any]:
    costs = ("input_per_mtok", "input_cached_per_mtok", "output_per_mtok", "blended_per_mtok", "per_request")
    reason = "96 quarter hours without a price: gpu_hour of H800 has no rate on 2026-11-12"
    parts = ("cost", "cost_without_tokens", "wasted_cost", "unattributed_cost", "idle_cost", "starting_cost")
    return {
        **row, **dict.fromkeys((*costs, *parts)), "requests": 0, "tokens": dict.fromkeys(("input", "input_cached", "output"), 0),
        "reasons": dict.fromkeys((*costs, "cost"), reason), "meta": {**row["meta"], "price_source": None, "coverage": None},
    }  # fmt: skip

"""Compare two periods' costs: totals with their causes, GPU types with their price, and who moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, localcontext
from typing import Any, Literal

from sqlalchemy import Connection

from control.explain_bill import bill_level, bill_only, tie_to_ledger
from core.bought import CLUSTER
from core.errors import BadInput
from core.explain import EFFECTS, Change, DeploymentUse, explain_deployment, total_change
from core.money import CONTEXT, ZERO, total
from core.windows import Window
from models.explain_repo import UseKey, allocated_to_tenants, closed_until, deployment_uses, unpriced

By = Literal["tenant", "deployment", "model"]
BY: tuple[By, ...] = ("tenant", "deployment", "model")
TEXTS: Mapping[str, str] = {
    "days": "the periods differ in length",
    "rate": "price of a GPU-hour",
    "new": "deployments of the second period alone",
    "retired": "deployments of the first period alone",
    "currency": "deployments whose cost came in another currency; no exchange rate is assumed",
    "unsplit": "cost whose GPU-hours the inventory does not tell",
    "bought": "tokens bought of model vendors: more, fewer or of other kinds",
    "bought_rate": "prices of tokens bought of model vendors",
    "volume": "tokens an hour",
    "mix": "share of output among the tokens",
    "cache": "share of input tokens read from the cache",
    "speed": "GPU time a token took",
    "waste": "work of failed and aborted requests",
    "unattributed": "work no usage record explains",
    "idle": "GPUs in service with nothing running (utilisation)",
    "starting": "GPUs with no engine on them (starting/unserved)",
}
"""Each effect in plain words."""


def explain(connection: Connection, first: Window, second: Window, by: By = "deployment") -> dict[str, Any]:
    """Totals per currency with effects that add up to the change exactly, prices by GPU type, the movers ``by`` a key, and
    above them the change of the bills (``control.explain_bill``).

    Only closed quarter hours with a price are compared; the others are listed in ``unpriced``. Raises BadInput for an unknown
    ``by``.
    """
    if by not in BY:
        raise BadInput("unknown key", field="by", value=by, hint=f"known: {', '.join(BY)}")
    uses = (deployment_uses(connection, first), deployment_uses(connection, second))
    changes = _changes(uses, first, second)
    totals = [_total(currency, changes) for currency in sorted({currency for _, currency in changes})]
    bill = bill_level(connection, first, second)
    tie_to_ledger(bill, totals)
    return {
        "first": _period(connection, first),
        "second": _period(connection, second),
        "totals": totals,
        "prices": _prices(uses, changes),
        "by": by,
        "rows": _tenants(connection, first, second) if by == "tenant" else _grouped(changes, by),
        "unpriced": [
            {"period": name, "deployment": gap.deployment, "windows": gap.windows, "reason": gap.reason}
            for name, window in (("first", first), ("second", second))
            for gap in unpriced(connection, window)
        ],
        "bill": bill,
        "bill_only": bill_only(bill),
    }


def _changes(
    uses: tuple[Mapping[UseKey, DeploymentUse], Mapping[UseKey, DeploymentUse]], first: Window, second: Window
) -> dict[UseKey, Change]:
    both = {deployment for deployment, _ in uses[0]} & {deployment for deployment, _ in uses[1]}
    return {
        key: explain_deployment(
            uses[0].get(key),
            uses[1].get(key),
            first,
            second,
            other_currency=key[0] in both,
            is_bought=key[0].partition("/")[0] == CLUSTER,
        )
        for key in sorted({*uses[0], *uses[1]})
    }


def _period(connection: Connection, window: Window) -> dict[str, Any]:
    """With the end of its last closed quarter hour: what is not closed yet is in no sum."""
    return {"window_start": window.start, "window_end": window.end, "closed_until": closed_until(connection, window)}


def _total(currency: str, changes: Mapping[UseKey, Change]) -> dict[str, Any]:
    whole = total_change(change for (_, unit), change in changes.items() if unit == currency)
    named = {name: whole.effects[name] for name in EFFECTS if whole.effects[name]}
    return {
        "currency": currency,
        **_money(whole.before, whole.after),
        "effects": [{"effect": name, "amount": amount, "text": TEXTS[name]} for name, amount in named.items()],
        "node_hours": whole.node_hours,
        "scale": whole.scale,
        "difference": whole.change - total(named.values()),
    }


def _money(before: Decimal, after: Decimal) -> dict[str, Any]:
    with localcontext(CONTEXT):
        change = after - before
        percent = (change * 100 / before).quantize(Decimal("0.01")) if before > 0 else None
    reason = {} if percent is not None else {"change_percent": "the first period has no cost"}
    return {"before": before, "after": after, "change": change, "change_percent": percent, "reasons": reason}


def _prices(
    uses: tuple[Mapping[UseKey, DeploymentUse], Mapping[UseKey, DeploymentUse]], changes: Mapping[UseKey, Change]
) -> list[dict[str, Any]]:
    """The effect of prices by the GPU types that deployments of both periods run on, and where their prices are from."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for key, change in changes.items():
        before, after = uses[0].get(key), uses[1].get(key)
        if before is None or after is None:
            continue
        types = " + ".join(sorted({*before.gpu_types, *after.gpu_types}))
        row = found.setdefault((types, key[1]), {"amount": ZERO, "before": set(), "after": set()})
        row["amount"] = total([row["amount"], change.effects["rate"]])
        row["before"].update(before.price_sources)
        row["after"].update(after.price_sources)
    return [
        {
            "gpu_type": types,
            "currency": currency,
            "amount": row["amount"],
            "price_source_before": sorted(row["before"]),
            "price_source_after": sorted(row["after"]),
        }
        for (types, currency), row in sorted(found.items())
        if row["amount"]
    ]


def _grouped(changes: Mapping[UseKey, Change], by: By) -> list[dict[str, Any]]:
    name: Callable[[str], str] = (lambda deployment: deployment.split("/", 2)[2]) if by == "model" else str
    groups: dict[tuple[str, str], list[Change]] = {}
    for (deployment, currency), change in changes.items():
        groups.setdefault((name(deployment), currency), []).append(change)
    rows: list[dict[str, Any]] = []
    for (key, currency), members in groups.items():
        whole = total_change(members)
        effects = {effect: amount for effect, amount in whole.effects.items() if amount}
        rows.append({by: key, "currency": currency, **_money(whole.before, whole.after), "effects": effects})
    return _most_moved(rows)


def _tenants(connection: Connection, first: Window, second: Window) -> list[dict[str, Any]]:
    before, after = allocated_to_tenants(connection, first), allocated_to_tenants(connection, second)
    return _most_moved(
        [
            {
                "tenant": "/".join(part for part in key[:2] if part) or "(no tenant)",
                "currency": key[2],
                **_money(before.get(key, ZERO), after.get(key, ZERO)),
                "effects": {},
            }
            for key in {*before, *after}
            if before.get(key) or after.get(key)
        ]
    )


def _most_moved(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["currency"], -abs(row["change"]), repr(row)))

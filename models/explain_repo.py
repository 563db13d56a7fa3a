"""What two periods' costs are compared by: GPU time and sources of closed quarter hours, and the ledger's sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, text

from core.explain import DeploymentUse
from core.money import ZERO, total
from core.unit_cost import TOKEN_KINDS
from core.windows import Window
from models.ledger_repo import ledger_rows

_PLACE = "cluster, namespace, model_id"
_PRICED = "x.window_start >= :start AND x.window_start < :end AND h.window_start >= :start AND h.window_start < :end"
_JOIN = f"JOIN ledger_head h USING ({_PLACE}, window_start, version)"
# GPU time of the quarter hours that have a cost, so that price = cost / GPU time; both edges of a service may lie inside one.
_TIME = text(f"""
    SELECT {_PLACE}, x.currency, count(DISTINCT window_start) AS windows,
        array_agg(DISTINCT s.gpu_type ORDER BY s.gpu_type) FILTER (WHERE s.gpu_type IS NOT NULL) AS gpu_types,
        array_agg(DISTINCT x.price_source ORDER BY x.price_source) AS price_sources,
        CAST(coalesce(sum(s.gpu_count * 1000000 * extract(epoch FROM
            least(coalesce(s.in_service_to, 'infinity'), window_start + interval '15 minutes')
            - greatest(s.in_service_from, window_start))), 0) AS bigint) AS gpu_us
    FROM ledger_window x {_JOIN} LEFT JOIN node_service s USING ({_PLACE})
    WHERE {_PRICED} AND x.capacity_cost IS NOT NULL
        AND (s.id IS NULL OR s.in_service_from < window_start + interval '15 minutes')
        AND (s.in_service_to IS NULL OR s.in_service_to > window_start)
    GROUP BY {_PLACE}, x.currency
""")
_UNPRICED = text(f"""
    SELECT cluster || '/' || namespace || '/' || model_id AS deployment, count(*) AS windows, min(x.detail ->> 'reason') AS reason
    FROM ledger_window x {_JOIN} WHERE {_PRICED} AND x.capacity_cost IS NULL GROUP BY 1 ORDER BY 1
""")
_CLOSED = text(
    "SELECT max(window_start) + interval '15 minutes' FROM ledger_head WHERE window_start >= :start AND window_start < :end"
)
_BILLS = text("SELECT EXISTS (SELECT 1 FROM bill_delivery WHERE status = 'current')")

UseKey = tuple[str, str]
"""Deployment and currency."""


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Closed quarter hours of a deployment that have no cost, and why."""

    deployment: str
    windows: int
    reason: str


def deployment_uses(connection: Connection, window: Window) -> dict[UseKey, DeploymentUse]:
    """Each deployment's closed, priced quarter hours that start in ``window``, by currency; all amounts before anybody bears
    idle time."""
    times = {
        (f"{r.cluster}/{r.namespace}/{r.model_id}", r.currency): r
        for r in connection.execute(_TIME, {"start": window.start, "end": window.end})
    }
    lines: dict[UseKey, list[Mapping[str, Any]]] = {}
    for row in ledger_rows(connection, ("deployment", "kind", "token_kind"), window):
        lines.setdefault((row["deployment"], row["currency"]), []).append(row)
    return {key: _use(times.get(key), rows) for key, rows in sorted(lines.items()) if any(row["cost"] for row in rows)}


def allocated_to_tenants(connection: Connection, window: Window) -> dict[tuple[str, str, str], Decimal]:
    """(organisation, team, currency) -> cost with idle and starting time borne by the work; '' is nobody's."""
    rows = ledger_rows(connection, ("org", "team"), window)
    return {(row["org"], row["team"], row["currency"]): row["allocated"] for row in rows}


def unpriced(connection: Connection, window: Window) -> list[Unpriced]:
    rows = connection.execute(_UNPRICED, {"start": window.start, "end": window.end})
    return [Unpriced(r.deployment, r.windows, r.reason or "") for r in rows]


def closed_until(connection: Connection, window: Window) -> datetime | None:
    """End of the last closed quarter hour that starts in ``window``; None: none is."""
    found: datetime | None = connection.execute(_CLOSED, {"start": window.start, "end": window.end}).scalar_one()
    return found


def has_bills(connection: Connection) -> bool:
    """Whether a bill of any period is in force."""
    return bool(connection.execute(_BILLS).scalar_one())


def _use(time: Any, rows: Sequence[Mapping[str, Any]]) -> DeploymentUse:
    def cost(kind: str, token_kind: str | None = None) -> Decimal:
        return total(r["cost"] for r in rows if r["kind"] == kind and token_kind in (None, r["token_kind"])) or ZERO

    served = {kind: cost("served", kind) for kind in (*TOKEN_KINDS, "")}
    return DeploymentUse(
        gpu_us=time.gpu_us if time else 0,
        served={kind: amount for kind, amount in served.items() if amount or kind},
        tokens={
            kind: sum(int(r["tokens"]) for r in rows if r["kind"] == "served" and r["token_kind"] == kind) for kind in TOKEN_KINDS
        },
        wasted=cost("wasted"),
        unattributed=cost("unattributed"),
        idle=cost("idle"),
        starting=cost("starting"),
        gpu_types=tuple(time.gpu_types or ()) if time else (),
        price_sources=tuple(time.price_sources or ()) if time else (),
    )

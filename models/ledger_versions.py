"""Write a closed window as version n+1, append-only, with its lines, its head and the day sums in one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, text

from core.ledger import LedgerWindow
from models.tables_money import LedgerLineRow, LedgerWindowRow

_KEY = "cluster = :cluster AND namespace = :namespace AND model_id = :model_id AND window_start = :start"
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 7360702))")
_HEAD = text(f"""
    SELECT h.version, w.currency, w.detail ->> 'input_digest' AS digest
    FROM ledger_head h JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
    WHERE {_KEY}
""")
_SET_HEAD = text("""
    INSERT INTO ledger_head (cluster, namespace, model_id, window_start, version)
    VALUES (:cluster, :namespace, :model_id, :start, :version)
    ON CONFLICT (cluster, namespace, model_id, window_start) DO UPDATE SET version = excluded.version
""")
_ADD_TO_DAY = text(f"""
    INSERT INTO ledger_day AS d
        (day, cluster, namespace, model_id, org, team, project, user_id, service_tier, kind, currency, cost, allocated)
    SELECT date_trunc('day', window_start, 'UTC'), cluster, namespace, model_id, org, team, project, user_id, service_tier, kind,
           CAST(:currency AS varchar), :sign * sum(cost), :sign * sum(allocated)
    FROM ledger_line WHERE {_KEY} AND version = :version
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
    ON CONFLICT (day, cluster, namespace, model_id, org, team, project, user_id, service_tier, kind, currency)
    DO UPDATE SET cost = d.cost + excluded.cost, allocated = d.allocated + excluded.allocated
""")
_END_RUNNING = text(f"DELETE FROM running_rate WHERE {_KEY}")


def write_version(connection: Connection, closed: LedgerWindow, closed_at: datetime) -> int | None:
    """Append the window's next version and return its number; None when its inputs are those of the newest version.

    Two writers of one window queue on a lock held to the end of the transaction.
    """
    d = closed.deployment
    key = {"cluster": d.cluster, "namespace": d.namespace, "model_id": d.model_id, "start": closed.window.start}
    connection.execute(_LOCK, {"name": f"{d}@{closed.window.start.isoformat()}"})
    head = connection.execute(_HEAD, key).first()
    if head is not None and head.digest == closed.detail["input_digest"]:
        return None
    version = 1 if head is None else head.version + 1
    connection.execute(insert(LedgerWindowRow), [_window_values(closed, version, closed_at)])
    lines = _line_values(closed, version)
    if lines:
        connection.execute(insert(LedgerLineRow), lines)
    connection.execute(_SET_HEAD, {**key, "version": version})
    if head is not None:
        connection.execute(_ADD_TO_DAY, {**key, "version": head.version, "currency": head.currency, "sign": -1})
    connection.execute(_ADD_TO_DAY, {**key, "version": version, "currency": closed.currency, "sign": 1})
    connection.execute(_END_RUNNING, key)
    return version


def _window_values(closed: LedgerWindow, version: int, closed_at: datetime) -> dict[str, Any]:
    d = closed.deployment
    return {
        "cluster": d.cluster,
        "namespace": d.namespace,
        "model_id": d.model_id,
        "window_start": closed.window.start,
        "version": version,
        "state": closed.state,
        "currency": closed.currency,
        "capacity_cost": closed.capacity_cost,
        "used_cost": closed.used_cost,
        "utilisation_ppm": closed.utilisation_ppm,
        "utilisation_source": closed.utilisation_source,
        "weight_source": closed.weight_source,
        "price_source": closed.price_source,
        "engine_prompt_tokens": closed.engine_prompt_tokens,
        "engine_generation_tokens": closed.engine_generation_tokens,
        "gateway_input_tokens": closed.gateway_input_tokens,
        "gateway_output_tokens": closed.gateway_output_tokens,
        "detail": dict(closed.detail),
        "closed_at": closed_at,
    }


def _line_values(closed: LedgerWindow, version: int) -> list[dict[str, Any]]:
    d = closed.deployment
    return [
        {
            "cluster": d.cluster,
            "namespace": d.namespace,
            "model_id": d.model_id,
            "window_start": closed.window.start,
            "version": version,
            "kind": line.key.kind,
            "token_kind": line.key.token_kind,
            "org": line.key.org,
            "team": line.key.team,
            "project": line.key.project,
            "user_id": line.key.user,
            "key_id": line.key.key_id,
            "service_tier": line.key.service_tier,
            "workload_class": line.key.workload_class,
            "tokens": line.tokens,
            "requests": line.requests,
            "cost": line.cost,
            "allocated": line.allocated,
        }
        for line in closed.lines
    ]

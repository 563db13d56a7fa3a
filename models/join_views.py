"""What the join left over, and what nodes cost: reads for pages and commands. Current deliveries alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from core.charge_join import JOINED
from core.windows import Window

_CURRENT = "JOIN bill_delivery d ON d.id = c.delivery AND d.status = 'current'"


def unmatched_charges(connection: Connection, window: Window | None = None) -> list[dict[str, Any]]:
    """Charges of machines that are none of the inventory's, by resource, type, reason and currency, the largest first.

    Keys: provider, resource_id, instance_type, account, region, reason, buckets, currency, billed_cost, effective_cost, hours,
    first_at, last_at (end), names, candidates [[cluster, node]]. ``window``: those used at some time of it, with all their money.
    """
    where = "WHERE c.first_at < :end AND c.last_at > :start" if window else ""
    query = f"""
    SELECT provider, resource_id, instance_type, min(account) AS account, min(region) AS region, c.reason,
      array_agg(DISTINCT bucket ORDER BY bucket) AS buckets, currency, sum(billed) AS billed_cost,
      sum(effective) AS effective_cost, sum(hours) AS hours, min(first_at) AS first_at, max(last_at) AS last_at,
      (array_agg(names ORDER BY delivery DESC))[1] AS names, (array_agg(candidates ORDER BY delivery DESC))[1] AS candidates
    FROM charge_unmatched c {_CURRENT} {where}
    GROUP BY provider, resource_id, instance_type, c.reason, currency
    ORDER BY greatest(abs(sum(effective)), abs(sum(billed))) DESC, resource_id, instance_type, currency"""
    return _rows(connection, query, _times(window))


def uncharged_nodes(connection: Connection, now: datetime, window: Window | None = None) -> list[dict[str, Any]]:
    """Nodes that serve in hours some current bill covers and no charge is theirs: cluster, node, gpu_type, gpu_count,
    targets, deployments, first_at, last_at (end), gpu_hours. The most GPU-hours first. Targets of which no node is known
    (node '') are a row each: no charge can be theirs."""
    span = "* tstzmultirange(tstzrange(:start, :end))" if window else ""
    query = f"""
    WITH billed AS (
      SELECT range_agg(tstzrange(c.first_hour, c.last_hour)) {span} AS span FROM charge_join c {_CURRENT}
      WHERE c.first_hour IS NOT NULL
    ), charged AS (
      SELECT cluster, node, range_agg(tstzrange(hour, hour + interval '1 hour')) AS span FROM node_charge c {_CURRENT}
      WHERE bucket IN ('gpu', 'other_compute', 'unused_reservation') GROUP BY 1, 2
    ), free AS (
      SELECT s.cluster, s.node, s.target, s.namespace, s.model_id, s.gpu_type, s.gpu_count,
        unnest(tstzmultirange(tstzrange(s.in_service_from, coalesce(s.in_service_to, :now))) * billed.span
          - coalesce(charged.span, '{{}}'::tstzmultirange)) AS span
      FROM node_service s CROSS JOIN billed LEFT JOIN charged ON charged.cluster = s.cluster AND charged.node = s.node
      WHERE s.in_service_from < coalesce(s.in_service_to, :now)
    )
    SELECT cluster, node, gpu_type, max(gpu_count) AS gpu_count, array_agg(DISTINCT target ORDER BY target) AS targets,
      array_agg(DISTINCT cluster || '/' || namespace || '/' || model_id) AS deployments,
      min(lower(span)) AS first_at, max(upper(span)) AS last_at,
      trim_scale(sum(extract(epoch FROM upper(span) - lower(span)) * gpu_count / 3600)) AS gpu_hours
    FROM free GROUP BY cluster, node, gpu_type, CASE WHEN node = '' THEN target END
    ORDER BY gpu_hours DESC, cluster, node, gpu_type, targets"""
    return _rows(connection, query, {**_times(window), "now": now})


def not_joined(connection: Connection) -> tuple[int, int]:
    """(current deliveries, those of them that were never joined)."""
    query = """
    SELECT count(*), count(*) FILTER (WHERE j.delivery IS NULL) FROM bill_delivery d LEFT JOIN charge_join j ON j.delivery = d.id
    WHERE d.status = 'current'"""
    row = connection.execute(text(query)).one()
    return row[0], row[1]


def node_costs(connection: Connection, window: Window, *, by_hour: bool = False) -> list[dict[str, Any]]:
    """What bills say nodes cost in the hours of ``window``: [hour,] cluster, node, instance_type, resource_id, matched_by,
    currency, hours (machine hours), gpus, billed_cost, effective_cost, list_cost (of its running charges alone; None: one has no
    list price),
    unassigned_hours (machine hours in which no service held the node), is_final."""
    hour = "hour, " if by_hour else ""
    query = f"""
    WITH hours AS (
      SELECT cluster, node, hour, resource_id, currency, max(instance_type) AS instance_type, min(matched_by) AS matched_by,
        max(gpus) AS gpus,
        coalesce(sum(hours) FILTER (WHERE bucket = ANY(:running)), 0) AS hours,
        bool_or(bucket = ANY(:running)) AS is_running,
        sum(billed) AS billed, sum(effective) AS effective,
        CASE WHEN bool_and(list IS NOT NULL OR bucket <> ALL(:running)) THEN sum(list) FILTER (WHERE bucket = ANY(:running)) END
          AS list, bool_and(d.is_final) AS is_final
      FROM node_charge c {_CURRENT}
      WHERE hour >= date_trunc('hour', CAST(:start AS timestamptz)) AND hour < :end GROUP BY 1, 2, 3, 4, 5
    ), held AS (
      SELECT h.cluster, h.node, h.hour,
        range_agg(tstzrange(s.in_service_from, s.in_service_to) * tstzrange(h.hour, h.hour + interval '1 hour')) AS span
      FROM (SELECT DISTINCT cluster, node, hour FROM hours) h JOIN node_service s ON s.cluster = h.cluster AND s.node = h.node
        AND s.in_service_from < h.hour + interval '1 hour' AND (s.in_service_to IS NULL OR s.in_service_to > h.hour)
      GROUP BY 1, 2, 3
    ), covered AS (
      SELECT cluster, node, hour, sum(extract(epoch FROM upper(r) - lower(r)) / 3600) AS time
      FROM held, unnest(span) AS r GROUP BY 1, 2, 3
    )
    SELECT {hour}cluster, node, instance_type, resource_id, min(matched_by) AS matched_by, currency,
      trim_scale(sum(hours)) AS hours, max(gpus) AS gpus, sum(billed) AS billed_cost, sum(effective) AS effective_cost,
      CASE WHEN count(list) = count(*) FILTER (WHERE is_running) THEN sum(list) END AS list_cost,
      trim_scale(sum(greatest(hours - coalesce(time, 0), 0))) AS unassigned_hours, bool_and(is_final) AS is_final
    FROM hours LEFT JOIN covered USING (cluster, node, hour)
    GROUP BY {hour}cluster, node, instance_type, resource_id, currency
    ORDER BY {hour}cluster, node, instance_type, resource_id, currency"""
    return _rows(connection, query, {**_times(window), "running": sorted(JOINED)})


def _times(window: Window | None) -> dict[str, Any]:
    return {"start": window.start, "end": window.end} if window else {}


def _rows(connection: Connection, query: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(text(query), parameters).mappings()]

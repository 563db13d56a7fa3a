"""What changed in closed months' quarter hours between two instants: new versions less those they follow, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, text

from core.statement import LineSum, key_text
from core.windows import Window, zone
from models.ledger_repo import line_columns, line_filters

_CHANGED = """
    WITH touched AS (
        SELECT w.cluster, w.namespace, w.model_id, w.window_start, p.period, max(w.version) AS version
        FROM ledger_window w JOIN ledger_period p ON w.window_start >= p.window_start AND w.window_start < p.window_end
        WHERE w.closed_at > :since AND (CAST(:until AS timestamptz) IS NULL OR w.closed_at <= :until) AND p.closed_at <= :since
        GROUP BY 1, 2, 3, 4, 5
    ), pair AS (
        SELECT t.*, (
            SELECT max(o.version) FROM ledger_window o
            WHERE (o.cluster, o.namespace, o.model_id, o.window_start) = (t.cluster, t.namespace, t.model_id, t.window_start)
                AND o.closed_at <= :since
        ) AS former FROM touched t
    ), told AS (
        SELECT p.*, n.currency, f.currency AS former_currency, concat_ws(
            '; ',
            CASE WHEN f.version IS NULL THEN 'first closed after the month was' END,
            CASE WHEN n.price_source <> f.price_source THEN 'price: ' || coalesce(nullif(n.price_source, ''), 'unknown') END,
            CASE WHEN n.price_source = f.price_source AND n.capacity_cost IS DISTINCT FROM f.capacity_cost
                 THEN 'capacity cost: machines in service or their price' END,
            CASE WHEN (n.gateway_input_tokens, n.gateway_output_tokens) <> (f.gateway_input_tokens, f.gateway_output_tokens)
                 THEN 'late usage' END
        ) AS why
        FROM pair p JOIN ledger_window n USING (cluster, namespace, model_id, window_start, version)
        LEFT JOIN ledger_window f ON (f.cluster, f.namespace, f.model_id, f.window_start, f.version)
            = (p.cluster, p.namespace, p.model_id, p.window_start, p.former)
    ), signed AS (
        SELECT cluster, namespace, model_id, window_start, version, period, currency, why, 1 AS sign FROM told
        UNION ALL
        SELECT cluster, namespace, model_id, window_start, former, period, former_currency, why, -1 FROM told
        WHERE former IS NOT NULL
    ), x AS (
        SELECT l.*, s.period, s.currency, s.sign, coalesce(nullif(s.why, ''), 'engine data or their weights') AS why
        FROM signed s JOIN ledger_line l USING (cluster, namespace, model_id, window_start, version)
    )
    SELECT x.period, x.kind, x.currency, x.why, sum(x.sign * x.cost) AS cost, sum(x.sign * x.allocated) AS allocated {columns}
    FROM x {where} GROUP BY x.period, x.kind, x.currency, x.why {group} ORDER BY x.period, x.kind, x.currency, x.why {group}
"""


def first_window(connection: Connection) -> datetime | None:
    """When the first closed quarter hour began."""
    found: datetime | None = connection.execute(text("SELECT min(window_start) FROM ledger_window")).scalar_one()
    return found


def newest_version_at(connection: Connection, window: Window) -> datetime | None:
    """When the newest version of the quarter hours of ``window`` was written, by its writer's clock."""
    query = text("SELECT max(closed_at) FROM ledger_window WHERE window_start >= :start AND window_start < :end")
    found: datetime | None = connection.execute(query, {"start": window.start, "end": window.end}).scalar_one()
    return found


def correction_sums(
    connection: Connection, by: Sequence[str], window: Window, since: datetime, until: datetime | None,
    filters: Mapping[str, str] | None, zone_name: str,
) -> dict[date, list[LineSum]]:  # fmt: skip
    """Of ``window``, by closed month, the lines of versions written in ``(since, until]`` (None: to now) less those they took the
    place of, of months closed by ``since``. Rows that come to nothing on both columns are left out."""
    keys = line_columns(by)
    where, values = line_filters(filters)
    columns = "".join(f", {column} AS {name}" for name, column in keys.items())
    group = "".join(f", {n}" for n in range(7, 7 + len(keys)))
    query = text(_CHANGED.format(columns=columns, where=where, group=group))
    bound: dict[str, Any] = {"since": since, "until": until, "zone": zone(zone_name).key, **values}
    bound |= {"start": window.start, "end": window.end}
    found: dict[date, list[LineSum]] = defaultdict(list)
    for row in connection.execute(query, bound).mappings():
        if row["cost"] or row["allocated"]:
            told = {name: key_text(row[name]) for name in keys}
            found[row["period"]].append(LineSum(told, row["kind"], row["currency"], row["cost"], row["allocated"], row["why"]))
    return dict(found)

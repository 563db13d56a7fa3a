"""Tokens without a price, of bought models and of engines of one's own: what a person has to fill."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from core.tokens import TOKEN_FIELDS
from core.windows import Window

SELF_HOSTED = "self_hosted"
NO_RATE = "declare the GPUs (`tokenfuse node declare`) or import their price (`tokenfuse rates import`)"
COLUMNS = ("vendor", "model", "sold", "reason", "requests", *TOKEN_FIELDS, "tenants", "first_at", "last_at", "hint")
_SUMS = ", ".join(f"CAST(sum({name}) AS bigint) AS {name}" for name in ("requests", *TOKEN_FIELDS))
_BOUGHT = text(f"""
    SELECT namespace AS vendor, model_id AS model, sold, reason, max(hint) AS hint, {_SUMS},
           array_agg(DISTINCT concat_ws('/', nullif(org, ''), nullif(team, ''))) AS tenants,
           min(window_start) AS first_at, max(window_start) + interval '15 minutes' AS last_at
    FROM bought_hole WHERE window_start >= :start AND window_start < :end GROUP BY 1, 2, 3, 4
""")
_OWN = text("""
    SELECT cluster || '/' || namespace || '/' || model_id AS model, coalesce(detail ->> 'reason', '') AS reason,
           CAST(sum(CAST(detail -> 'unpriced' ->> 'requests' AS bigint)) AS bigint) AS requests,
           CAST(sum(CAST(detail -> 'unpriced' ->> 'input' AS bigint)) AS bigint) AS input_uncached,
           CAST(sum(CAST(detail -> 'unpriced' ->> 'input_cached' AS bigint)) AS bigint) AS input_cache_read,
           CAST(sum(CAST(detail -> 'unpriced' ->> 'output' AS bigint)) AS bigint) AS output,
           min(window_start) AS first_at, max(window_start) + interval '15 minutes' AS last_at
    FROM ledger_window JOIN ledger_head USING (cluster, namespace, model_id, window_start, version)
    WHERE cluster <> 'vendor' AND capacity_cost IS NULL AND window_start >= :start AND window_start < :end
    GROUP BY 1, 2
""")
_TENANTS = text("""
    SELECT DISTINCT concat_ws('/', nullif(org, ''), nullif(team, '')) AS tenant FROM usage_day
    WHERE cluster || '/' || namespace || '/' || model_id = :model AND day >= date_trunc('day', CAST(:start AS timestamptz), 'UTC')
        AND day < :end ORDER BY 1
""")


def unpriced_rows(connection: Connection, window: Window) -> list[dict[str, Any]]:
    """Requests of closed quarter hours that start in ``window`` and have no price, most tokens first. Row: COLUMNS; ``vendor`` is
    self_hosted for engines of one's own (``input_uncached`` then holds their cache writes too); times half-open."""
    bounds = {"start": window.start, "end": window.end}
    rows = [dict(row) for row in connection.execute(_BOUGHT, bounds).mappings()]
    for row in connection.execute(_OWN, bounds).mappings():
        between = {"model": row["model"], "start": row["first_at"], "end": row["last_at"]}
        tenants = [found.tenant for found in connection.execute(_TENANTS, between)]
        rows.append(
            {**dict.fromkeys(TOKEN_FIELDS, 0), **row, "vendor": SELF_HOSTED, "sold": "", "tenants": tenants, "hint": NO_RATE}
        )
    named = [{name: row[name] for name in COLUMNS} for row in rows]
    return sorted(named, key=lambda row: (-unpriced_tokens(row), row["vendor"], row["model"], row["sold"], row["reason"]))


def unpriced_tokens(row: dict[str, Any]) -> int:
    """Every token of a row once: reasoning is a part of output."""
    return sum(int(row[name]) for name in TOKEN_FIELDS if name != "output_reasoning")

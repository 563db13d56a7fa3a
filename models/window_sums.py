"""What closed windows say beside their money (sources, state, freshness, coverage), by UTC day: pages read a year without its
windows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, text

from core.windows import Window
from models.ledger_sums import next_quarter
from models.usage_pieces import pieces

_KEYS = "cluster, namespace, model_id, currency, price_source, utilisation_source, weight_source, state"
_TOKENS = {
    "engine_in": "engine_prompt_tokens",
    "engine_out": "engine_generation_tokens",
    "gateway_in": "gateway_input_tokens",
    "gateway_out": "gateway_output_tokens",
}
TOKEN_SUMS = tuple(_TOKENS)
"""Engine and gateway tokens of those windows that have engine tokens at all."""
_COUNTS = ("windows", *TOKEN_SUMS)
_PLACES = ", ".join(str(n) for n in range(1, 10))
_SIGNED = ", ".join(
    f"coalesce(sum(m.sign * {column}) FILTER (WHERE engine_prompt_tokens IS NOT NULL), 0)" for column in _TOKENS.values()
)
# ``last`` needs no taking out: the version that replaces one is of the same quarter hour.
_MOVE = text(f"""
    INSERT INTO ledger_window_day AS d (day, {_KEYS}, windows, {", ".join(TOKEN_SUMS)}, last)
    SELECT date_trunc('day', window_start, 'UTC'), cluster, namespace, model_id, w.currency, price_source, utilisation_source,
           weight_source, state, sum(m.sign),
           {_SIGNED},
           max(window_start)
    FROM ledger_window w JOIN unnest(
        CAST(:starts AS timestamptz[]), CAST(:versions AS integer[]), CAST(:signs AS integer[])
    ) AS m (window_start, version, sign) USING (window_start, version)
    WHERE cluster = :cluster AND namespace = :namespace AND model_id = :model_id AND window_start BETWEEN :first AND :last
    GROUP BY {_PLACES} ORDER BY {_PLACES}
    ON CONFLICT (day, {_KEYS}) DO UPDATE
    SET {", ".join(f"{name} = d.{name} + excluded.{name}" for name in _COUNTS)}, last = greatest(d.last, excluded.last)
""")
WINDOW_COLUMNS = f"""
    x.window_start, {", ".join("x." + name for name in _KEYS.split(", "))}, x.window_start AS last,
    {", ".join(f"CASE WHEN x.engine_prompt_tokens IS NOT NULL THEN x.{c} END AS {name}" for name, c in _TOKENS.items())},
    CASE WHEN x.capacity_cost IS NULL THEN 1 ELSE 0 END AS unpriced_windows,
    CASE WHEN x.capacity_cost IS NULL THEN x.detail ->> 'reason' END AS reason,
    CASE WHEN x.capacity_cost IS NULL THEN x.gateway_input_tokens + x.gateway_output_tokens END AS unpriced_tokens
"""
"""The columns of ``newest_windows``, of table ``ledger_window`` named x."""
_JOINED = (
    f"SELECT {WINDOW_COLUMNS} FROM ledger_window x "
    "JOIN ledger_head h USING (cluster, namespace, model_id, window_start, version) "
    "WHERE x.window_start >= :{since} AND x.window_start < :{until} AND h.window_start >= :{since} AND h.window_start < :{until}"
)
_DAYS = (
    f"SELECT day AS window_start, {_KEYS}, last, {', '.join(TOKEN_SUMS)}, 0 AS unpriced_windows, NULL AS reason, "
    "NULL AS unpriced_tokens FROM ledger_window_day WHERE windows > 0 AND day >= :{since} AND day < :{until}"
)
_UNPRICED = (
    f"SELECT window_start, {_KEYS}, last, {', '.join(f'NULL AS {name}' for name in TOKEN_SUMS)}, unpriced_windows, reason, "
    f"unpriced_tokens FROM ({_JOINED} AND x.capacity_cost IS NULL) u"
)

_PARTLY = (
    "SELECT window_start, cluster, namespace, model_id, w.currency, '' AS price_source, '' AS utilisation_source, "
    f"w.weight_source, w.state, window_start AS last, {', '.join(f'NULL AS {name}' for name in TOKEN_SUMS)}, "
    "0 AS unpriced_windows, b.reason, "
    "b.input_uncached + b.input_cache_read + b.input_cache_write_5m + b.input_cache_write_1h + b.output AS unpriced_tokens "
    "FROM bought_hole b JOIN ledger_head h USING (cluster, namespace, model_id, window_start) "
    "JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version) "
    "WHERE NOT b.whole AND window_start >= :{since} AND window_start < :{until}"
)
"""Bought requests without a price in quarter hours where others have one."""


def move_windows(connection: Connection, values: Mapping[str, Any]) -> None:
    """Add (sign 1) or take out (sign -1) the windows of ``starts`` × ``versions`` of a deployment, in the close's transaction."""
    connection.execute(_MOVE, values)


def newest_windows(window: Window, keys: Collection[str], zone_name: str, values: dict[str, Any]) -> str:
    """A relation of the newest versions of the windows that start in ``window``, whole UTC days summed where the time ``keys``
    allow it; adds its bounds to ``values``. Unpriced windows stand beside the sums: they are few and have an index."""
    start, end = next_quarter(window.start), next_quarter(window.end)
    fine = {"hour", "quarter_hour"} & set(keys) or ("day" in keys and zone_name != "UTC")
    cut = pieces(Window(start, end), "minute" if fine else "day") if start < end else ()
    parts: list[str] = []
    for n, piece in enumerate(cut):
        names = {"since": f"since_w{n}", "until": f"until_w{n}"}
        values |= {names["since"]: piece.start, names["until"]: piece.end}
        for part in (_DAYS, _UNPRICED, _PARTLY) if piece.level == "day" else (_JOINED, _PARTLY):
            parts.append(part.format(**names))
    empty = f"SELECT {WINDOW_COLUMNS} FROM ledger_window x WHERE FALSE"
    return f"({' UNION ALL '.join(parts or [empty])})"

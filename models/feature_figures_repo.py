"""Figures of request features by any of their keys, and the graph of tools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from core.errors import BadInput
from core.feature_figures import feature_figures, p90_bucket
from core.features import MEASURES
from core.windows import Window, floor_time, zone
from models.usage_keys import DEPLOYMENT, DEPLOYMENT_COLUMNS, filter_sql

HOUR = timedelta(hours=1)
P90_BEFORE = timedelta(days=7)
PLACE_KEYS = (DEPLOYMENT, *DEPLOYMENT_COLUMNS, "org")
FEATURE_FILTERS: tuple[str, ...] = (*PLACE_KEYS, "team")
TIMES: Mapping[str, str] = {
    "hour": "hour",
    "day": "CAST(hour AT TIME ZONE :zone AS date)",
    "hour_of_week": (
        "CAST((extract(isodow FROM hour AT TIME ZONE :zone) - 1) * 24 + extract(hour FROM hour AT TIME ZONE :zone) AS integer)"
    ),
}
"""``hour_of_week``: 0 for Monday 00:00 to 167, in the reporting zone."""
FEATURE_KEYS: tuple[str, ...] = (*TIMES, *FEATURE_FILTERS)
COUNTED = ("over_p90_requests", "over_p90_of")
EMPTY = dict.fromkeys(MEASURES, 0)
Row = dict[str, Any]


def whole_hours(window: Window) -> Window:
    """The window's hours: its start rounded down, its end up."""
    end = floor_time(window.end, HOUR)
    return Window(floor_time(window.start, HOUR), end if end == window.end else end + HOUR)


def feature_rows(
    connection: Connection, by: Sequence[str], window: Window, filters: Mapping[str, str] | None = None, *, zone_name: str = "UTC"
) -> list[Row]:
    """One row per value of the keys: the keys, the sums of ``core.features.MEASURES``, the figures of
    ``core.feature_figures.FIGURES`` and ``reasons`` for those that are null. ``window`` is widened to whole hours.

    Raises BadInput for an unknown or doubled key.
    """
    chosen, given = tuple(by), dict(filters or {})
    _check(chosen, given)
    hours = whole_hours(window)
    keys = "".join(f'{_key_sql(key)} AS "{key}", ' for key in chosen)
    where, values = filter_sql(given)
    values |= {"start": hours.start, "end": hours.end, "zone": zone(zone_name).key}
    sums = ", ".join(f"sum({name})::bigint AS {name}" for name in MEASURES)
    grouped = f"GROUP BY {', '.join(map(str, range(1, len(chosen) + 1)))}" if chosen else "HAVING count(*) > 0"
    query = f"SELECT {keys}{sums} FROM feature_hour WHERE hour >= :start AND hour < :end{where} {grouped}"
    found = [dict(row) for row in connection.execute(text(query), values).mappings()]
    over = _over_p90(connection, chosen, hours, given, zone_name)
    rows = [_row(row, chosen, over) for row in found]
    return sorted(rows, key=lambda row: [str(row[key]) if key != "hour_of_week" else f"{row[key]:03d}" for key in chosen])


def tool_edges(connection: Connection, window: Window, filters: Mapping[str, str] | None = None) -> list[Row]:
    """Steps between tools within sessions, most frequent first: {from_tool ('' before the first), to_tool, steps}. ``window`` is
    widened to whole hours. Raises BadInput for a filter that tools are not kept by.
    """
    given = dict(filters or {})
    _check((), given)
    if "team" in given:
        raise BadInput("tools are not kept by this key", field="filter", value="team", hint=f"use {', '.join(PLACE_KEYS)}")
    hours = whole_hours(window)
    where, values = filter_sql(given)
    values |= {"start": hours.start, "end": hours.end}
    query = (
        "SELECT from_tool, to_tool, sum(steps)::bigint AS steps FROM tool_edge_hour "
        f"WHERE hour >= :start AND hour < :end{where} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"
    )
    return [dict(row) for row in connection.execute(text(query), values).mappings()]


def _check(by: Sequence[str], filters: Mapping[str, str]) -> None:
    for field, names, known in (("by", by, FEATURE_KEYS), ("filter", filters, FEATURE_FILTERS)):
        for name in names:
            if name not in known:
                raise BadInput("is not a key of features", field=field, value=name, hint=f"use {', '.join(known)}")
    if len(set(by)) != len(by):
        raise BadInput("names a key twice", field="by", value=",".join(by))


def _key_sql(key: str) -> str:
    if key == DEPLOYMENT:
        return "cluster || '/' || namespace || '/' || model_id"
    return TIMES.get(key, key)


def _row(row: Row, by: Sequence[str], over: Mapping[tuple[Any, ...], tuple[int, int]]) -> Row:
    counted = dict(zip(COUNTED, over.get(tuple(row[key] for key in by), (0, 0)), strict=True))
    figures, reasons = feature_figures({**{name: row[name] for name in MEASURES}, **counted})
    return {key: _shown(value) for key, value in row.items()} | counted | figures | {"reasons": reasons}


def _shown(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value.isoformat() if isinstance(value, date) else value


def _over_p90(
    connection: Connection, by: Sequence[str], hours: Window, filters: Mapping[str, str], zone_name: str
) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Per value of the keys: requests over their deployment's P90 of the week before, of how many. Empty where lengths are not
    kept by a key."""
    if "team" in (*by, *filters):
        return {}
    limits = _p90_buckets(connection, Window(hours.start - P90_BEFORE, hours.start), filters)
    where, values = filter_sql(filters)
    values |= {"start": hours.start, "end": hours.end, "zone": zone(zone_name).key}
    keys = "".join(f"{_key_sql(key)}, " for key in by)
    numbers = ", ".join(map(str, range(1, len(by) + 5)))
    query = (
        f"SELECT {keys}cluster, namespace, model_id, bucket, sum(requests)::bigint FROM usage_length_hour "
        f"WHERE kind = 'input' AND hour >= :start AND hour < :end{where} GROUP BY {numbers}"
    )
    found: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0])
    for *key, cluster, namespace, model_id, bucket, requests in connection.execute(text(query), values):
        limit = limits.get((cluster, namespace, model_id))
        if limit is not None:
            found[tuple(key)][0] += requests if bucket > limit else 0
            found[tuple(key)][1] += requests
    return {key: (over, whole) for key, (over, whole) in found.items()}


def _p90_buckets(connection: Connection, window: Window, filters: Mapping[str, str]) -> dict[tuple[str, str, str], int | None]:
    """A deployment's P90 is that of all its requests, whoever's are asked for."""
    where, values = filter_sql({key: value for key, value in filters.items() if key != "org"})
    values |= {"start": window.start, "end": window.end}
    query = (
        "SELECT cluster, namespace, model_id, bucket, sum(requests)::bigint FROM usage_length_hour "
        f"WHERE kind = 'input' AND hour >= :start AND hour < :end{where} GROUP BY 1, 2, 3, 4"
    )
    lengths: defaultdict[tuple[str, str, str], Counter[int]] = defaultdict(Counter)
    for cluster, namespace, model_id, bucket, requests in connection.execute(text(query), values):
        lengths[cluster, namespace, model_id][bucket] += requests
    return {place: p90_bucket(found) for place, found in lengths.items()}

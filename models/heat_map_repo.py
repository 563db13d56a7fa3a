"""Lengths of requests over time: hour by length bucket, and how far they spread, from the hourly length histograms."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from sqlalchemy import Connection, text

from core.errors import BadInput
from core.heat_map import doubling, doubling_label, quantile, spread
from core.windows import Window, zone
from models.usage_keys import DEPLOYMENT, DEPLOYMENT_COLUMNS, check_keys, filter_sql

LengthKind = Literal["input", "output"]
Axis = Literal["hour", "hour_of_day", "day"]
AXES: Mapping[str, str] = {
    "hour": "hour",
    "hour_of_day": "CAST(extract(hour FROM hour AT TIME ZONE :zone) AS integer)",
    "day": "CAST(hour AT TIME ZONE :zone AS date)",
}
KINDS: tuple[str, ...] = ("input", "output")
FILTER_KEYS: tuple[str, ...] = (DEPLOYMENT, *DEPLOYMENT_COLUMNS, "org")


@dataclass(frozen=True, slots=True)
class HeatMap:
    """``cells``: {at, low_tokens, high_tokens (excluded), label, requests, tokens}, only those with requests; ``lengths``: per
    place on the axis {at, requests, tokens, p50, p90, spread}; ``whole`` the same of all of it together, without ``at``."""

    cells: list[dict[str, Any]]
    lengths: list[dict[str, Any]]
    whole: dict[str, Any]


def heat_map(
    connection: Connection,
    kind: str,
    axis: str,
    window: Window,
    filters: Mapping[str, str] | None = None,
    *,
    zone_name: str = "UTC",
) -> HeatMap:
    """Requests and tokens per length doubling along ``axis`` (``hour`` an instant; ``hour_of_day`` 0..23 and ``day`` a date in
    ``zone_name``), of hours that start in ``window``. Requests without counts have no length and are not in it.

    Raises BadInput for another kind, axis or filter.
    """
    for field, value, known in (("kind", kind, KINDS), ("axis", axis, tuple(AXES))):
        if value not in known:
            raise BadInput("is not one of them", field=field, value=value, hint=f"use {', '.join(known)}")
    check_keys([], filters or {}, FILTER_KEYS)
    where, values = filter_sql(filters or {})
    values |= {"start": window.start, "end": window.end, "kind": kind, "zone": zone(zone_name).key}
    rows = connection.execute(
        text(
            f"SELECT {AXES[axis]} AS at, bucket, sum(requests)::bigint, sum(tokens)::bigint FROM usage_length_hour "
            f"WHERE hour >= :start AND hour < :end AND kind = :kind{where} GROUP BY 1, 2 ORDER BY 1, 2"
        ),
        values,
    )
    return _map([(_shown(at), int(bucket), int(requests), int(tokens)) for at, bucket, requests, tokens in rows])


def _shown(at: Any) -> Any:
    if isinstance(at, datetime):
        return at.astimezone(UTC)
    return at if isinstance(at, int) else at.isoformat()


def _map(rows: Iterable[tuple[Any, int, int, int]]) -> HeatMap:
    cells: dict[tuple[Any, int], list[int]] = defaultdict(lambda: [0, 0])
    places: dict[Any, Counter[int]] = defaultdict(Counter)
    tokens: Counter[Any] = Counter()
    whole: Counter[int] = Counter()
    for at, bucket, requests, counted in rows:
        cell = cells[at, doubling(bucket)]
        cell[0], cell[1] = cell[0] + requests, cell[1] + counted
        places[at][bucket] += requests
        whole[bucket] += requests
        tokens[at] += counted
    shown = [_cell(at, number, *sums) for (at, number), sums in cells.items() if any(sums)]
    lengths = [{"at": at, **_lengths(found, tokens[at])} for at, found in places.items()]
    return HeatMap(shown, lengths, _lengths(whole, sum(tokens.values())))


def _cell(at: Any, number: int, requests: int, tokens: int) -> dict[str, Any]:
    low, high = (0, 1) if number < 0 else (1 << number, 2 << number)
    return {
        "at": at, "low_tokens": low, "high_tokens": high, "label": doubling_label(number), "requests": requests, "tokens": tokens,
    }  # fmt: skip


def _lengths(requests: Counter[int], tokens: int) -> dict[str, Any]:
    return {
        "requests": requests.total(),
        "tokens": tokens,
        "p50": quantile(requests, Decimal("0.5")),
        "p90": quantile(requests, Decimal("0.9")),
        "spread": spread(requests),
    }

"""Every kind of fault in a window: how many, when, where, and what it touches of the ledger (``core.quality`` has the money)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import Connection, text

from core.money import CONTEXT, quantize
from core.quality import Capacity, Hour, Quarter, Touched
from core.windows import QUARTER_HOUR, Window, floor_time
from models.quality_repo import stream_lags

HOUR = timedelta(hours=1)
_PLACE = "cluster || '/' || namespace || '/' || model_id"
_GAPS = text(f"""
    SELECT {_PLACE} AS place, date_bin('15 minutes', minute, 'epoch'::timestamptz) AS at, sum(gap_us)::bigint AS gap_us,
           sum(resets)::bigint AS resets
    FROM engine_minute WHERE minute >= :start AND minute < :end AND (gap_us > 0 OR resets > 0) GROUP BY 1, 2
""")
_WINDOWS = text(f"""
    SELECT {_PLACE} AS place, window_start AS at, w.currency, w.capacity_cost, h.version, w.detail ->> 'reason' AS reason,
           coalesce(jsonb_path_exists(w.detail, '$.over_explained.* ? (@ > 0)'), false) AS over
    FROM ledger_head h JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
    WHERE h.window_start >= :start AND h.window_start < :end AND w.window_start >= :start AND w.window_start < :end
""")
_COSTS = text(f"""
    SELECT {_PLACE} AS place, hour AS at, currency, kind = 'unattributed' AS unattributed, token_kind, sum(cost) AS cost,
           sum(tokens)::bigint AS tokens
    FROM ledger_kind_hour WHERE hour >= :first AND hour < :end AND lines > 0 AND kind IN ('served', 'wasted', 'unattributed')
    GROUP BY 1, 2, 3, 4, 5
""")
_INEXACT = text(f"""
    SELECT {_PLACE} AS place, hour AS at, usage_source, sum(requests)::bigint AS requests,
           sum(input_uncached + input_cache_write_5m + input_cache_write_1h)::bigint AS input,
           sum(input_cache_read)::bigint AS input_cached, sum(output)::bigint AS output
    FROM usage_deployment_hour WHERE hour >= :first AND hour < :end AND usage_source IN ('estimated', 'missing')
    GROUP BY 1, 2, 3
""")
_FAULTS = text("""
    SELECT kind, source, window_start, window_end, count(*)::bigint AS faults FROM data_fault
    WHERE window_start < :end AND window_end > :start GROUP BY kind, source, window_start, window_end
""")
_SERVED_BY = text(f"""
    SELECT DISTINCT target, {_PLACE} AS place FROM engine_hour WHERE hour >= :first AND hour < :end
    UNION SELECT DISTINCT target, {_PLACE} FROM node_service
""")
_QUARANTINED = text("""
    SELECT field = 'finished_at' AND reason LIKE '%after now%' AS skewed, source, count(*)::bigint AS records,
           min(received_at) AS first, max(received_at) AS last
    FROM quarantine WHERE received_at >= :start AND received_at < :end GROUP BY 1, 2
""")


@dataclass(slots=True)
class Found:
    """One kind in the window. ``last`` is the end of its last window; ``where``: deployments or sources -> how many there."""

    kind: str
    count: int = 0
    first: datetime | None = None
    last: datetime | None = None
    where: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    quarters: set[Quarter] = field(default_factory=set)
    parts: dict[tuple[Hour, str], Decimal] = field(default_factory=dict)

    def add(self, count: int, first: datetime, last: datetime, where: str) -> None:
        self.count += count
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        self.where[where] += count

    @property
    def touched(self) -> Touched:
        return Touched(frozenset(self.quarters), self.parts)


def read_kinds(connection: Connection, window: Window, now: datetime) -> tuple[list[Found], Capacity]:
    """The kinds found in ``window``, and the capacity cost of its closed quarter hours. Hours that begin before the window's
    start and reach into it are read whole."""
    kinds: dict[str, Found] = {}
    values = {"start": window.start, "end": window.end, "first": floor_time(window.start, HOUR)}
    capacity = _windows(connection, kinds, values)
    _gaps(connection, kinds, values)
    _lines(connection, kinds, values)
    _faults(connection, kinds, values)
    _quarantined(connection, kinds, values)
    _stream(connection, kinds, now)
    return list(kinds.values()), capacity


def _of(kinds: dict[str, Found], kind: str) -> Found:
    return kinds.setdefault(kind, Found(kind))


def _windows(connection: Connection, kinds: dict[str, Found], values: Mapping[str, Any]) -> Capacity:
    quarters: dict[Quarter, tuple[str, Decimal | None]] = {}
    for row in connection.execute(_WINDOWS, values):
        at = row.at.astimezone(UTC)
        quarters[row.place, at] = (row.currency, row.capacity_cost)
        found = []
        if row.capacity_cost is None:
            found.append("no_gpu" if "inventory" in (row.reason or "") else "no_price")
        found += (["late"] if row.version > 1 else []) + (["over_explained"] if row.over else [])
        for kind in found:
            _of(kinds, kind).add(1, at, at + QUARTER_HOUR, row.place)
    return Capacity(quarters)


def _gaps(connection: Connection, kinds: dict[str, Found], values: Mapping[str, Any]) -> None:
    for row in connection.execute(_GAPS, values):
        at = row.at.astimezone(UTC)
        for kind, count in (("scrape_gap", int(row.gap_us > 0)), ("engine_reset", row.resets)):
            if count:
                found = _of(kinds, kind)
                found.add(count, at, at + QUARTER_HOUR, row.place)
                found.quarters.add((row.place, at))


def _lines(connection: Connection, kinds: dict[str, Found], values: Mapping[str, Any]) -> None:
    """Cost of unattributed work, and of estimated tokens at the mean cost per token of their kind in the hour."""
    booked: dict[tuple[Hour, str], list[tuple[str, Decimal, int]]] = defaultdict(list)
    for row in connection.execute(_COSTS, values):
        hour = (row.place, row.at.astimezone(UTC))
        if not row.unattributed:
            booked[hour, row.token_kind].append((row.currency, row.cost, row.tokens))
        elif row.cost:
            found = _of(kinds, "bypass")
            if not any(known == hour for known, _currency in found.parts):
                found.add(1, hour[1], hour[1] + HOUR, row.place)
            _put(found, hour, row.currency, row.cost)
    for row in connection.execute(_INEXACT, values):
        hour = (row.place, row.at.astimezone(UTC))
        found = _of(kinds, row.usage_source)
        found.add(row.requests, hour[1], hour[1] + HOUR, row.place)
        for kind in ("input", "input_cached", "output"):
            for currency, amount in _shares(getattr(row, kind), booked.get((hour, kind), ())):
                _put(found, hour, currency, amount)


def _put(found: Found, hour: Hour, currency: str, amount: Decimal) -> None:
    found.parts[hour, currency] = found.parts.get((hour, currency), Decimal(0)) + amount


def _shares(tokens: int, costs: Iterable[tuple[str, Decimal, int]]) -> Iterator[tuple[str, Decimal]]:
    with localcontext(CONTEXT):
        for currency, cost, whole in costs:
            if tokens and whole:
                yield currency, quantize(cost * min(tokens, whole) / whole)


def _faults(connection: Connection, kinds: dict[str, Found], values: Mapping[str, Any]) -> None:
    """What the readers reported: a fault touches the quarter hours of the deployments its source serves."""
    places: dict[str, set[str]] = defaultdict(set)
    for row in connection.execute(_SERVED_BY, values):
        places[row.target].add(row.place)
    for row in connection.execute(_FAULTS, values):
        found = _of(kinds, row.kind)
        start, end = row.window_start.astimezone(UTC), row.window_end.astimezone(UTC)
        found.add(row.faults, start, end, row.source)
        inside = Window(max(start, values["start"]), min(max(end, start + timedelta(minutes=1)), values["end"]))
        named = places.get(row.source) or ({row.source} if row.source.count("/") >= 2 and "://" not in row.source else set())
        found.quarters |= {(place, quarter.start) for place in named for quarter in inside.quanta()}


def _quarantined(connection: Connection, kinds: dict[str, Found], values: Mapping[str, Any]) -> None:
    for row in connection.execute(_QUARANTINED, values):
        kind = "clock_skew" if row.skewed else "quarantined"
        _of(kinds, kind).add(row.records, row.first.astimezone(UTC), row.last.astimezone(UTC), row.source)


def _stream(connection: Connection, kinds: dict[str, Found], now: datetime) -> None:
    for lag in stream_lags(connection, now):
        if lag.catching_up:
            _of(kinds, "stale_stream").add(max(1, lag.behind_lines), lag.updated_at, now, lag.topic)

"""The SQL that adds what is staged to its rollups."""

from __future__ import annotations

from dataclasses import dataclass

from models.partitions import PARTITIONED
from models.tables_gpu import GPU_KEYS, GPU_MEASURES
from models.tables_narrow import DEPLOYMENT_KEYS, TEAM_KEYS
from models.tables_usage import ENGINE_MEASURES, USAGE_KEYS, USAGE_MEASURES
from streaming.jobs.usage_sql import LENGTH_KEYS
from streaming.plan import DELTAS, ENGINE_DIMENSIONS

_PG_TYPES = {"BIGINT": "bigint", "INT": "int", "STRING": "text"}
_EPOCH = "timestamptz '1970-01-01 00:00:00+00' + {ms} * interval '1 millisecond'"


@dataclass(frozen=True, slots=True)
class Rollup:
    """One target table of a delta kind: ``time`` its time column, cut from ``time_ms`` to multiples of ``step_ms``, or without
    one to the UTC unit the column is named after."""

    table: str
    time: str
    time_ms: str
    step_ms: int | None
    keys: tuple[str, ...]
    measures: tuple[str, ...]


_STEPS = (("minute", 60_000), ("hour", 3_600_000), ("day", 86_400_000))
_TO_MONTH: tuple[tuple[str, int | None], ...] = (*_STEPS, ("month", None))
_USAGE: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, int | None], ...]], ...] = (
    ("usage", USAGE_KEYS, _TO_MONTH),
    ("usage_deployment", DEPLOYMENT_KEYS, _STEPS[1:]),
    ("usage_team", TEAM_KEYS, _TO_MONTH[1:]),
)
ROLLUPS: dict[str, tuple[Rollup, ...]] = {
    "usage": tuple(
        Rollup(f"{name}_{unit}", unit, "minute_ms", step_ms, keys, USAGE_MEASURES)
        for name, keys, steps in _USAGE
        for unit, step_ms in steps
    ),
    "length": (
        Rollup("usage_length_hour", "hour", "hour_ms", 3_600_000, (*LENGTH_KEYS, "kind", "bucket"), ("requests", "tokens")),
    ),
    "engine": tuple(
        Rollup(f"engine_{unit}", unit, "minute_ms", step_ms, ENGINE_DIMENSIONS, ENGINE_MEASURES) for unit, step_ms in _STEPS
    ),
    "gpu": tuple(Rollup(f"gpu_{unit}", unit, "minute_ms", step_ms, GPU_KEYS, GPU_MEASURES) for unit, step_ms in _STEPS),
}
STAGED: dict[str, tuple[tuple[str, str], ...]] = {
    **DELTAS,
    "usage": tuple(column for column in DELTAS["usage"] if not column[0].startswith("length_")),
    "length": (
        ("hour_ms", "BIGINT"),
        *((name, "STRING") for name in (*LENGTH_KEYS, "kind")),
        ("bucket", "INT"),
        ("requests", "BIGINT"),
        ("tokens", "BIGINT"),
    ),
}
"""Columns of each staging table, in the order ``streaming.presum`` writes them: this version's delta columns, summed."""
TIME_COLUMN = {"usage": "minute_ms", "length": "hour_ms", "engine": "minute_ms", "gpu": "minute_ms"}
MARKING = ("usage", "engine", "gpu")
"""Kinds whose rows are inputs of the ledger."""


def staging(kind: str) -> str:
    """A staging table of this transaction's own."""
    columns = ", ".join(f"{name} {_PG_TYPES[sql_type]} NOT NULL" for name, sql_type in STAGED[kind])
    return f"CREATE TEMPORARY TABLE stage_{kind} ({columns}) ON COMMIT DROP"


def copy_in(kind: str) -> str:
    names = ", ".join(name for name, _ in STAGED[kind])
    texts = ", ".join(name for name, sql_type in STAGED[kind] if sql_type == "STRING")
    return f"COPY stage_{kind} ({names}) FROM STDIN (FORMAT csv, FORCE_NOT_NULL ({texts}), ENCODING 'UTF8')"


def months(kind: str) -> str:
    """The first instant of every month the staged rows touch."""
    at = _EPOCH.format(ms=TIME_COLUMN[kind])
    return f"SELECT DISTINCT date_trunc('month', {at}, 'UTC') FROM stage_{kind}"


def partitioned(kind: str) -> tuple[str, ...]:
    """Those of the kind's tables that need a partition a month."""
    return tuple(rollup.table for rollup in ROLLUPS[kind] if rollup.table in PARTITIONED)


def add(kind: str, rollup: Rollup) -> str:
    """Sum the staged rows by key and add them; keys are taken in one order everywhere, so two loaders cannot deadlock."""
    keys = ", ".join(rollup.keys)
    at = f"date_trunc('{rollup.time}', {_EPOCH.format(ms=rollup.time_ms)}, 'UTC')"
    if rollup.step_ms is not None:
        at = _EPOCH.format(ms=f"({rollup.time_ms} / {rollup.step_ms} * {rollup.step_ms})")
    sums = ", ".join(f"sum({name})::bigint" for name in rollup.measures)
    more = ", ".join(f"{name} = t.{name} + excluded.{name}" for name in rollup.measures)
    return f"""INSERT INTO {rollup.table} AS t ({rollup.time}, {keys}, {", ".join(rollup.measures)})
SELECT {at} AS at, {keys}, {sums} FROM stage_{kind} GROUP BY at, {keys} ORDER BY at, {keys}
ON CONFLICT ({rollup.time}, {keys}) DO UPDATE SET {more}"""


def month_of_days(rollup: Rollup, days: str) -> str:
    """Sum the rows of ``days`` in the UTC month of ``:at`` into the month's rollup, which holds none of it."""
    keys, sums = ", ".join(rollup.keys), ", ".join(f"sum({name})::bigint" for name in rollup.measures)
    month = "date_trunc('month', CAST(:at AS timestamptz), 'UTC')"
    return f"""INSERT INTO {rollup.table} ({rollup.time}, {keys}, {", ".join(rollup.measures)})
SELECT {month}, {keys}, {sums} FROM {days} WHERE day >= {month} AND day < {month} + interval '1 month' GROUP BY {keys}"""


def mark_dirty(kind: str) -> str:
    """The ledger quanta (``core.windows.QUARTER_HOUR``) of the touched minutes, per deployment (a GPU: those on its node)."""
    quarter = _EPOCH.format(ms="(minute_ms / 900000 * 900000)")
    place, touched = "", f"stage_{kind}"
    if kind == "gpu":
        place, touched = (
            "s.",
            f"""stage_gpu g JOIN node_service s ON s.cluster = g.cluster AND s.node = g.node
    AND s.in_service_from < {quarter} + interval '15 minutes' AND coalesce(s.in_service_to > {quarter}, TRUE)""",
        )
    return f"""INSERT INTO dirty_window (cluster, namespace, model_id, window_start, marked_at)
SELECT DISTINCT {place}cluster, namespace, model_id, {quarter} AS window_start, CAST(:now AS timestamptz) FROM {touched}
ORDER BY cluster, namespace, model_id, window_start
ON CONFLICT (cluster, namespace, model_id, window_start) DO UPDATE SET marked_at = excluded.marked_at"""


ADD_PROGRESS = """INSERT INTO segment_progress AS t (topic, segment, lines, updated_at)
SELECT topic, segment, sum(lines)::bigint, CAST(:now AS timestamptz)
FROM stage_progress GROUP BY topic, segment ORDER BY topic, segment
ON CONFLICT (topic, segment) DO UPDATE SET lines = t.lines + excluded.lines, updated_at = excluded.updated_at"""

"""Efficiency of each deployment per minute, hour or day, from the engine rollups (``core.efficiency``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Connection, text

from core.efficiency import SUMS, EngineSums, GpuSums, efficiency
from core.usage import Deployment
from core.windows import Window
from models.fleet_repo import StepLimit, step_limits
from models.gpu_repo import deployment_gpus
from models.reconcile_repo import Key
from models.usage_keys import DEPLOYMENT, DEPLOYMENT_COLUMNS, TIME_KEYS, Row, check_keys, filter_sql, key_sql
from models.usage_pieces import Level, coarsest_for
from models.usage_rollups import ENGINE, rollup_rows

EFFICIENCY_KEYS: tuple[str, ...] = (*TIME_KEYS, DEPLOYMENT)
FILTER_KEYS: tuple[str, ...] = (DEPLOYMENT, *DEPLOYMENT_COLUMNS)


def efficiency_rows(
    connection: Connection,
    step: str | None,
    window: Window,
    filters: Mapping[str, str] | None = None,
    *,
    zone_name: str = "UTC",
) -> list[Row]:
    """One row per step (minute, hour, day in ``zone_name``; None: the window whole) and deployment whose engines were watched:
    the step, ``deployment``, ``engines``, every figure of ``core.efficiency.FIGURES`` (None with its reason), ``reasons`` and
    ``notes``. Raises BadInput for another step or filter, or a part of a minute.
    """
    check_keys([step] if step else [], {}, TIME_KEYS)
    check_keys([], filters or {}, FILTER_KEYS)
    limits = step_limits(connection)
    engines = _engines(connection, step, window, filters or {}, zone_name)
    gpus = deployment_gpus(connection, step, window, zone_name)
    return [_row(step, key, engines[key], limits.get(key.deployment), gpus.get(key)) for key in sorted(engines, key=_order)]


def _order(key: Key) -> tuple[str, Deployment]:
    return str(key.step), key.deployment


def _row(step: str | None, key: Key, engines: Sequence[EngineSums], limit: StepLimit | None, gpus: GpuSums | None) -> Row:
    found = efficiency(engines, max_batched_tokens=limit.tokens if limit else None, gpus=gpus)
    about = {"batch_efficiency": f"of {limit.tokens} tokens a step, as read at {limit.read_at:%Y-%m-%d %H:%M}Z"} if limit else {}
    return {
        **({step: _shown(key.step)} if step else {}),
        DEPLOYMENT: str(key.deployment),
        "engines": found.engines,
        **found.values,
        "reasons": dict(found.reasons),
        "notes": {**about, **found.notes},
    }


def _shown(at: datetime | date | None) -> Any:
    if isinstance(at, datetime):
        return at.astimezone(UTC)
    return None if at is None else at.isoformat()


def _engines(
    connection: Connection, step: str | None, window: Window, filters: Mapping[str, str], zone_name: str
) -> dict[Key, list[EngineSums]]:
    """Each engine's sums, for the fullest of them is a figure of its own."""
    where, values = filter_sql(filters)
    coarsest = coarsest_for(step, window, zone_name)
    names = ", ".join([*([f'"{step}"'] if step else []), *DEPLOYMENT_COLUMNS])

    def columns(level: Level) -> str:
        time = [f'{key_sql(step, level, zone_name, values)} AS "{step}"'] if step else []
        return ", ".join([*time, *DEPLOYMENT_COLUMNS, "target", "engine", *SUMS])

    rows = rollup_rows(ENGINE, window, "day" if coarsest == "month" else coarsest, DEPLOYMENT_COLUMNS, columns, where, values)
    sums = ", ".join(f"sum({name})::bigint AS {name}" for name in SUMS)
    sql = f"SELECT {names}, {sums} FROM ({rows}) AS part GROUP BY {names}, target, engine"
    found: defaultdict[Key, list[EngineSums]] = defaultdict(list)
    for row in connection.execute(text(sql), values).mappings():
        key = Key(row[step] if step else None, Deployment(*(row[name] for name in DEPLOYMENT_COLUMNS)))
        found[key].append(EngineSums(*(row[name] for name in SUMS)))
    return dict(found)

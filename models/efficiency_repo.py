"""Efficiency of each deployment per minute, hour or day, from the engine rollups (``core.efficiency``)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from core.efficiency import NO_PAIRS, NOT_BY_STEP, SUMS, EngineSums, GpuSums, efficiency
from core.memory_growth import MemoryGrowth, MemoryWindow, fastest_growth, window_step
from core.usage import Deployment
from core.windows import Window
from models.fleet_repo import StepLimit, step_limits
from models.gpu_repo import deployment_gpus
from models.reconcile_repo import Key
from models.usage_keys import DEPLOYMENT, DEPLOYMENT_COLUMNS, TIME_KEYS, Row, check_keys, filter_sql, key_sql
from models.usage_pieces import Level, coarsest_for
from models.usage_rollups import ENGINE, rollup_rows

EFFICIENCY_KEYS: tuple[str, ...] = (*TIME_KEYS, DEPLOYMENT)
_MEMORY = (
    "observed_us", "running_us", "prompt_tokens", "prompt_tokens_computed", "generation_tokens",
    "torch_seen_us", "torch_allocated_mib_us", "resets",
)  # fmt: skip
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
    told = step is None and any(one.torch_seen_us for sums in engines.values() for one in sums)
    grown = _growth(connection, window, filters or {}) if told else {}
    return [
        _row(step, key, engines[key], limits.get(key.deployment), gpus.get(key), grown.get(key.deployment))
        for key in sorted(engines, key=_order)
    ]


def _order(key: Key) -> tuple[str, Deployment]:
    return str(key.step), key.deployment


def _row(
    step: str | None,
    key: Key,
    engines: Sequence[EngineSums],
    limit: StepLimit | None,
    gpus: GpuSums | None,
    growth: MemoryGrowth | None,
) -> Row:
    found = efficiency(
        engines,
        max_batched_tokens=limit.tokens if limit else None,
        gpus=gpus,
        growth=growth,
        growth_reason=NOT_BY_STEP if step else NO_PAIRS,
    )
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


def _growth(connection: Connection, window: Window, filters: Mapping[str, str]) -> dict[Deployment, MemoryGrowth]:
    """Per deployment the growth of its target whose memory grows fastest: memory is of a page's processes, not of one engine."""
    step = window_step(window)
    where, values = filter_sql(filters)
    values |= {"step": step}
    coarsest: Level = "day" if step >= timedelta(days=1) else "hour" if step >= timedelta(hours=1) else "minute"

    def columns(level: Level) -> str:
        return ", ".join([f"date_bin(:step, {level}, 'epoch'::timestamptz) AS at", *DEPLOYMENT_COLUMNS, "target", *_MEMORY])

    rows = rollup_rows(ENGINE, window, coarsest, DEPLOYMENT_COLUMNS, columns, where, values)
    keys = ", ".join((*DEPLOYMENT_COLUMNS, "target", "at"))
    sums = ", ".join(f"sum({name})::bigint AS {name}" for name in _MEMORY)
    targets: defaultdict[Deployment, defaultdict[str, list[MemoryWindow]]] = defaultdict(lambda: defaultdict(list))
    for row in connection.execute(text(f"SELECT {keys}, {sums} FROM ({rows}) AS part GROUP BY {keys}"), values).mappings():
        place = Deployment(*(row[name] for name in DEPLOYMENT_COLUMNS))
        targets[place][row["target"]].append(_memory_window(dict(row)))
    found = {place: fastest_growth(windows.values()) for place, windows in targets.items()}
    return {place: growth for place, growth in found.items() if growth is not None}


def _memory_window(row: Mapping[str, Any]) -> MemoryWindow:
    return MemoryWindow(
        at=row["at"],
        observed_us=row["observed_us"],
        running_us=row["running_us"],
        tokens=(row["prompt_tokens_computed"] or row["prompt_tokens"]) + row["generation_tokens"],
        seen_us=row["torch_seen_us"],
        allocated_mib_us=row["torch_allocated_mib_us"],
        resets=row["resets"],
    )

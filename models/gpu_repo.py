"""What GPUs did: any keys for a person, and by deployment for its efficiency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import Connection, text

from core.efficiency import GpuSums
from core.errors import BadInput
from core.gpu_use import ENOUGH, GpuTime, gpus_of
from core.money import CONTEXT
from core.windows import Window, zone
from models.rates_repo import read_services
from models.reconcile_repo import Key
from models.tables_gpu import GPU_KEYS, GPU_MEASURES
from models.usage_keys import TIME_KEYS, Row, key_sql
from models.usage_pieces import coarsest_for, pieces

GPU_ROW_KEYS: tuple[str, ...] = (*TIME_KEYS, *GPU_KEYS)
UJ_PER_KWH = 3_600_000_000_000
DIGITS = Decimal("0.000001")
_STEPS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
_IDENTITY = ("cluster", "node", "gpu", "mig", "pods")
_SUMS = tuple(field.name for field in fields(GpuSums))


def gpu_rows(connection: Connection, by: Sequence[str], window: Window, *, zone_name: str = "UTC") -> list[Row]:
    """Per key: ``gpus`` (distinct GPUs and MIG instances), hours observed, mean shares 0..1 of engine-active, SM-active,
    utilisation and memory, ``energy_kwh`` and mean ``power_w`` per GPU; None: not measured. Sums are divided last.

    Raises BadInput for an unknown key, two time keys, or a part of a minute.
    """
    times = [key for key in by if key in TIME_KEYS]
    for key in by:
        if key not in GPU_ROW_KEYS or by.count(key) > 1 or len(times) > 1:
            raise BadInput("is not a key of GPUs", field="by", value=key, hint=f"use {', '.join(GPU_ROW_KEYS)}")
    step = times[0] if times else None
    named = ", ".join(f'"{key}"' for key in by)
    sums = ", ".join(f"sum({name})::bigint AS {name}" for name in GPU_MEASURES)
    inner, values = _union(step, window, zone_name, (*GPU_KEYS, *GPU_MEASURES))
    sql = f"SELECT {named}{', ' if by else ''}count(DISTINCT (gpu, mig)) AS gpus, {sums} FROM ({inner}) AS part " + (
        f"GROUP BY {named} ORDER BY {named}" if by else "HAVING count(*) > 0"
    )
    return [_figures(by, dict(row)) for row in connection.execute(text(sql), values).mappings()]


def _figures(by: Sequence[str], row: Row) -> Row:
    metered = row["energy_seen_us"] > 0
    drawn, seen = (row["energy_uj"], row["energy_seen_us"]) if metered else (row["power_uj"], row["power_seen_us"])
    return {
        **{key: row[key].isoformat() if key == "day" else row[key] for key in by},
        "gpus": row["gpus"],
        "observed_hours": _ratio(row["observed_us"], 3_600_000_000),
        **{f"{name}_share": _ratio(row[f"{name}_us"], row[f"{name}_seen_us"]) for name in ("engine_active", "sm_active", "util")},
        "memory_share": _ratio(row["memory_used_mib_us"], row["memory_total_mib_us"]),
        "energy_kwh": _ratio(drawn, UJ_PER_KWH) if seen else None,
        "power_w": _ratio(drawn, seen),
        "resets": row["resets"],
    }


def _ratio(part: int, of: int) -> Decimal | None:
    with localcontext(CONTEXT):
        return (Decimal(part) / of).quantize(DIGITS) if of else None


@dataclass(frozen=True, slots=True)
class NodeHourEnergy:
    """What the GPUs of a node drew in an hour: by their counters, else by sampled power. ``gpus`` were seen. None: neither was
    known for enough of the hour (``core.gpu_use.ENOUGH``) of ``paid`` GPUs."""

    node: str
    hour: datetime
    gpus: int
    kwh: Decimal | None


def node_energy(connection: Connection, window: Window, paid: Mapping[str, int]) -> list[NodeHourEnergy]:
    """By node of ``paid`` (node to how many GPUs it has) and hour of the window, oldest first; hours without a sample are left
    out. MIG instances have no energy of their own."""
    rows = connection.execute(_NODE_ENERGY, {"start": window.start, "end": window.end, "nodes": sorted(paid)})
    return [NodeHourEnergy(row.node, row.hour, row.gpus, _hour_kwh(row, paid[row.node])) for row in rows]


_NODE_ENERGY = text("""
    SELECT node, hour, count(DISTINCT gpu) AS gpus, sum(energy_uj)::bigint AS energy_uj,
      sum(energy_seen_us)::bigint AS energy_seen_us, sum(power_uj)::bigint AS power_uj,
      sum(power_seen_us)::bigint AS power_seen_us
    FROM gpu_hour WHERE hour >= :start AND hour < :end AND node = ANY(CAST(:nodes AS text[])) AND mig = ''
    GROUP BY node, hour ORDER BY hour, node
""")


def _hour_kwh(row: Any, paid: int) -> Decimal | None:
    part, of = ENOUGH
    for total, seen in (("energy_uj", "energy_seen_us"), ("power_uj", "power_seen_us")):
        if getattr(row, seen) * of >= paid * 3_600_000_000 * part:
            with localcontext(CONTEXT):
                return Decimal(getattr(row, total)) / UJ_PER_KWH
    return None


def deployment_gpus(connection: Connection, step: str | None, window: Window, zone_name: str) -> dict[Key, GpuSums]:
    """Per step (None: the whole window) and deployment, where its GPUs can be told (``core.gpu_use.gpus_of``)."""
    services = read_services(connection, window)
    found: dict[Key, GpuSums] = {}
    for at, rows in _by_step(connection, step, window, zone_name).items():
        there = [s for s in services if s.within(_span(step, at, window, zone_name))]
        for deployment in {s.deployment for s in there}:
            nodes = sorted({s.node for s in there if s.deployment == deployment})
            mine = [gpus_of(deployment, node, there, rows) for node in nodes]
            if mine and all(mine):
                whole = [row for part in mine for row in part]
                found[Key(at, deployment)] = GpuSums(**{name: sum(getattr(row, name) for row in whole) for name in _SUMS})
    return found


def _by_step(
    connection: Connection, step: str | None, window: Window, zone_name: str
) -> dict[datetime | date | None, list[GpuTime]]:
    inner, values = _union(step, window, zone_name, (*_IDENTITY, *_SUMS))
    keys = ", ".join([*([f'"{step}"'] if step else []), *_IDENTITY])
    sql = f"SELECT {keys}, {', '.join(f'sum({n})::bigint AS {n}' for n in _SUMS)} FROM ({inner}) AS part GROUP BY {keys}"
    found: defaultdict[datetime | date | None, list[GpuTime]] = defaultdict(list)
    for row in connection.execute(text(sql), values).mappings():
        sums = {name: row[name] for name in (*_IDENTITY, *_SUMS)}
        found[row[step] if step else None].append(GpuTime(**sums))
    return dict(found)


def _span(step: str | None, at: datetime | date | None, window: Window, zone_name: str) -> Window:
    if step is None or at is None:
        return window
    if isinstance(at, datetime):
        return Window(at, at + _STEPS[step])
    tz = zone(zone_name)
    start, end = (datetime.combine(day, time(), tz).astimezone(UTC) for day in (at, at + timedelta(days=1)))
    return Window(start, end)


def _union(step: str | None, window: Window, zone_name: str, columns: Sequence[str]) -> tuple[str, Mapping[str, Any]]:
    """The rollup rows that make up the window, each with its step."""
    values: dict[str, Any] = {}
    return " UNION ALL ".join(_parts(step, window, zone_name, columns, values)), values


def _parts(step: str | None, window: Window, zone_name: str, columns: Sequence[str], values: dict[str, Any]) -> Iterator[str]:
    coarsest = coarsest_for(step, window, zone_name)
    for number, part in enumerate(pieces(window, "day" if coarsest == "month" else coarsest)):
        values |= {f"start{number}": part.start, f"end{number}": part.end}
        at = f'{key_sql(step, part.level, zone_name, values)} AS "{step}", ' if step else ""
        yield (
            f"SELECT {at}{', '.join(columns)} FROM gpu_{part.level} "
            f"WHERE {part.level} >= :start{number} AND {part.level} < :end{number}"
        )

"""Monthly partitions of the rollup tables, made before a batch is acknowledged and before a delta is applied."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, text

from models.database import transaction

PARTITIONED = ("usage_minute", "usage_hour", "usage_day", "usage_length_hour", "engine_minute", "gpu_minute")


def month_start(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def ensure_months(connection: Connection, times: Iterable[datetime], tables: tuple[str, ...] = PARTITIONED) -> list[str]:
    """Create the monthly partitions that hold ``times``; returns the names made. Two sessions may call it at once."""
    months = sorted({month_start(at) for at in times})
    wanted = {f"{table}_{m:%Y%m}": (table, m) for m in months for table in tables}
    if not wanted:
        return []
    query = text("SELECT relname FROM pg_class WHERE relname = ANY(:names)")
    have = set(connection.execute(query, {"names": list(wanted)}).scalars())
    missing = {name: part for name, part in wanted.items() if name not in have}
    if missing:
        connection.execute(text("SELECT pg_advisory_xact_lock(7360701)"))
    for name, (table, start) in missing.items():
        end = (start + timedelta(days=32)).replace(day=1)
        connection.execute(
            text(
                f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} "
                f"FOR VALUES FROM ('{start.isoformat()}') TO ('{end.isoformat()}')"
            )
        )
    return sorted(missing)


class PartitionKeeper:
    """Makes the months a batch needs before it is acknowledged; months made once are not asked for again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: set[datetime] = set()

    def __call__(self, times: Iterable[datetime]) -> None:
        wanted = {month_start(at) for at in times} - self._made
        if wanted:
            with transaction(self._engine) as connection:
                ensure_months(connection, wanted)
            self._made |= wanted

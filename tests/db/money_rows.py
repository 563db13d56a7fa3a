"""Rows the ledger's database tests start from: one A10G, one tenant's usage, one engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, insert, text
from sqlalchemy.dialects.postgresql import insert as upsert

from core.capacity import NodeService
from core.money import money
from core.rates import Rate
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window
from models.partitions import ensure_months
from models.tables import DirtyWindowRow, EngineMinuteRow, UsageDayRow, UsageMinuteRow

D = Deployment("lab", "prod", "tiny")
T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = T0 + timedelta(minutes=31)
WINDOW = Window(T0, T0 + QUARTER_HOUR)
KEYS: dict[str, Any] = {
    "cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id, "org": "acme", "team": "search", "project": "",
    "user_id": "", "key_id": "", "service_tier": "P1", "status": "ok", "usage_source": "exact", "workload_class": 0,
}  # fmt: skip


def a10g(price: str = "1.006", since: datetime = T0 - timedelta(days=30), currency: str = "USD") -> Rate:
    return Rate("gpu_hour", "A10G", money(price, currency), "list", "test card", since)


def service(since: datetime = T0) -> NodeService:
    return NodeService(D, "http://engine", "node1", "A10G", 1, since)


def use(connection: Connection, at: datetime = T0, **changes: Any) -> None:
    """A request in its minute; the day rollup knows that there was one."""
    ensure_months(connection, [at])
    row = {**KEYS, "minute": at, "requests": 1, "input_uncached": 1000, "output": 100, "kv_work_x2": 210_000, **changes}
    connection.execute(insert(UsageMinuteRow), [row])
    seen = {**row, "day": at.replace(hour=0, minute=0, second=0, microsecond=0)}
    del seen["minute"]
    connection.execute(upsert(UsageDayRow).values(seen).on_conflict_do_nothing())
    start = at - timedelta(minutes=at.minute % 15)
    dirty = {"cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id, "start": start, "at": at}
    connection.execute(
        text(
            f"INSERT INTO {DirtyWindowRow.__tablename__} VALUES (:cluster, :namespace, :model_id, :start, :at) "
            "ON CONFLICT DO NOTHING"
        ),
        dirty,
    )


def engine_runs(connection: Connection, minutes: int = 15, busy_us: int = 30_000_000, at: datetime = T0, **sums: int) -> None:
    ensure_months(connection, [at])
    key = {"cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id}
    where = {"target": "http://engine", "engine": "0", "node": "node1"}
    rows = [
        {**key, **where, "minute": at + timedelta(minutes=n), "observed_us": 60_000_000, "busy_us": busy_us, **sums}
        for n in range(minutes)
    ]
    connection.execute(insert(EngineMinuteRow), rows)

"""One A10G at 1.006 USD/h that served teams search and ads of acme from 11:00 to 11:15, closed; rows as the loader makes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, insert

from bench.year import coarser
from control.ledger_close import close_due
from core.capacity import NodeService
from core.money import money
from core.rates import Rate
from core.usage import Deployment
from models.partitions import ensure_months
from models.rates_repo import add_rates, declare_service
from models.tables import EngineMinuteRow, StreamStateRow, UsageMinuteRow

D = Deployment("lab", "prod", "tiny")
T0 = datetime(2026, 11, 30, 11, tzinfo=UTC)
DAY = {"from": "2026-11-30T00:00:00Z", "to": "2026-12-01T00:00:00Z"}
KEYS: dict[str, Any] = {
    "cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id, "org": "acme", "team": "search", "project": "",
    "user_id": "", "key_id": "", "service_tier": "P1", "status": "ok", "usage_source": "exact", "workload_class": 0,
}  # fmt: skip


def use(connection: Connection, at: datetime = T0, **changes: Any) -> None:
    """One request of 1000 input and 100 output tokens in the minute of ``at``."""
    ensure_months(connection, [at])
    row = {**KEYS, "requests": 1, "input_uncached": 1000, "output": 100, "kv_work_x2": 210_000, "duration_ms": 2000, **changes}
    connection.execute(insert(UsageMinuteRow), [{**row, "minute": at}])


def engine_runs(connection: Connection, **sums: int) -> None:
    """The engine was busy half of the quarter hour."""
    minutes = [T0 + timedelta(minutes=n) for n in range(15)]
    key = {"cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id, "target": "t", "engine": "0", "node": "n1"}
    rows = [{**key, "minute": at, "observed_us": 60_000_000, "busy_us": 30_000_000, **sums} for at in minutes]
    connection.execute(insert(EngineMinuteRow), rows)
    coarser(connection, "engine")


def settle(db: Engine, now: datetime) -> None:
    """Write it all and close the ledger."""
    with db.begin() as connection:
        rate = Rate("gpu_hour", "A10G", money("1.006", "USD"), "list", "test card", T0 - timedelta(days=30))
        add_rates(connection, [rate], now)
        declare_service(connection, NodeService(D, "t", "n1", "A10G", 1, T0), "test")
        use(connection)
        use(connection, team="ads", status="aborted", input_uncached=500, output=7)
        coarser(connection, "usage")
        engine_runs(connection, prompt_tokens=110, generation_tokens=10)
        caught_up = {"topic": "usage", "catching_up": False, "log_lines": 2, "read_lines": 2, "updated_at": now}
        connection.execute(insert(StreamStateRow), [caught_up])
    report = close_due(db, now)
    assert report.failures == []
    assert report.closed > 0

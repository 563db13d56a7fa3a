"""One A10G serving team red and team blue of acme, as rows that the loader would have written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.dialects.postgresql import insert

from control.budget_watch import WatchReport, watch
from control.budgets import set_budget
from core.breaker_values import BreakerPolicy
from core.capacity import NodeService
from core.money import money
from core.rates import Rate
from core.usage import Deployment
from models.breaker_repo import list_breakers
from models.partitions import ensure_months
from models.rates_repo import add_rates, declare_service
from models.tables import UsageMinuteRow

NOW = datetime(2026, 11, 30, 12, 5, tzinfo=UTC)
D = Deployment("lab", "prod", "tiny")
POLICY = BreakerPolicy()
MIN = timedelta(minutes=1)


def price_and_node(db: Engine, now: datetime = NOW) -> None:
    """An A10G at 1.006 USD/h in service for a day."""
    with db.begin() as connection:
        rate = Rate("gpu_hour", "A10G", money("1.006", "USD"), "list", "test card", now - timedelta(days=30))
        add_rates(connection, [rate], now)
        declare_service(connection, NodeService(D, "http://engine", "node1", "A10G", 1, now - timedelta(days=1)), "test")


def meter(connection: Connection, at: datetime = NOW, team: str = "red", requests: int = 1, **more: Any) -> None:
    """Requests of a team land in the rollup minute of ``at``."""
    ensure_months(connection, [at])
    row = {
        "minute": at.replace(second=0, microsecond=0), "cluster": D.cluster, "namespace": D.namespace, "model_id": D.model_id,
        "org": "acme", "team": team, "project": "", "user_id": "", "key_id": "", "service_tier": "P1", "status": "ok",
        "usage_source": "exact", "workload_class": 0, "requests": requests, "input_uncached": 100_000 * requests,
        "output": 10_000 * requests, "duration_ms": 20_000 * requests, "kv_work_x2": 2_100_000_000 * requests, **more,
    }  # fmt: skip
    query = insert(UsageMinuteRow).values(row)
    sums = ("requests", "input_uncached", "output", "duration_ms", "kv_work_x2")
    add = {name: getattr(UsageMinuteRow, name) + query.excluded[name] for name in sums}
    connection.execute(query.on_conflict_do_update(index_elements=list(UsageMinuteRow.__table__.primary_key), set_=add))


def cap(db: Engine, amount: str, scope: str = "tenant:acme/red", now: datetime = NOW, period: str = "day") -> None:
    """A budget with a cap equal to its amount."""
    with db.begin() as connection:
        set_budget(connection, scope, period, Decimal(amount), "USD", "UTC", "ann", now, cap=Decimal(amount))


def look(db: Engine, now: datetime = NOW, policy: BreakerPolicy = POLICY) -> WatchReport:
    report = watch(db, now, policy)
    assert report.failed == {}
    return report


def phases(db: Engine) -> dict[str, str]:
    with db.connect() as connection:
        return {b.scope: b.phase for b in list_breakers(connection)}

"""The inventory, prices, usage and engines that belong to the generated AWS month, in the real tables."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from sqlalchemy import Connection, Engine, insert

from bench.year import coarser
from cli.demo.aws_machines import JULY, TYPES
from core.capacity import NodeService
from core.money import Money
from core.rates import Rate
from core.windows import QUARTER_HOUR
from models.partitions import ensure_months
from models.rates_repo import add_rates, declare_service
from models.tables import EngineMinuteRow, UsageMinuteRow

TENANTS = {"chat-70b": ("acme", "search"), "code-32b": ("acme", "code"), "docs-8b": ("beta", "docs")}
"""Who asks each model, beside a failed request of ``beta/batch`` in each quarter hour."""
BUSY_US, MINUTE_US = 40_000_000, 60_000_000
PROMPT, ANSWER, UNEXPLAINED = 90_000, 12_000, 500


def furnish(db: Engine) -> list[NodeService]:
    """List prices, the machines' services, and a quarter hour's work of each while it is in service."""
    services = [service for machine in JULY for service in machine.services()]
    first = min(service.since for service in services)
    with db.begin() as connection:
        ensure_months(connection, [first, first + timedelta(days=40)])
        add_rates(connection, _rates(first - timedelta(days=30)), first)
        for service in services:
            declare_service(connection, service, "generated")
        for deployment in sorted({service.deployment for service in services}):
            _work(connection, [service for service in services if service.deployment == deployment])
        coarser(connection, "usage")
    return services


def _rates(since: object) -> list[Rate]:
    """What the GPUs cost on demand, by the GPU: what a window says until its bill has come."""
    prices = {kind.gpu_type: kind.on_demand / kind.gpus for kind in TYPES.values() if kind.gpus}
    return [
        Rate("gpu_hour", gpu, Money(price.quantize(Decimal("1e-6")), "USD"), "list", "generated card", since)  # type: ignore[arg-type]
        for gpu, price in prices.items()
    ]


def _work(connection: Connection, services: list[NodeService]) -> None:
    place = {name: getattr(services[0].deployment, name) for name in ("cluster", "namespace", "model_id")}
    org, team = TENANTS[services[0].deployment.model_id]
    asked = {
        **place, "project": "", "user_id": "", "key_id": "", "service_tier": "P1", "usage_source": "exact", "workload_class": 0,
        "input_cache_read": 0,
    }  # fmt: skip
    usage: dict[object, list[dict[str, object]]] = {}
    engine: list[dict[str, object]] = []
    for service in services:
        assert service.until is not None
        at = service.since
        while at < service.until:
            usage[at] = [
                {**asked, "minute": at, "org": org, "team": team, "status": "ok", "requests": 9,
                 "input_uncached": PROMPT - 10_000, "output": ANSWER - 1000, "kv_work_x2": 5_000_000},
                {**asked, "minute": at, "org": "beta", "team": "batch", "status": "error", "requests": 1,
                 "input_uncached": 10_000, "output": 1000, "kv_work_x2": 500_000},
            ]  # fmt: skip
            counted = {"prompt_tokens": PROMPT + UNEXPLAINED, "prompt_tokens_computed": PROMPT, "generation_tokens": ANSWER}
            for n in range(15):
                engine.append({
                    **place, "minute": at + timedelta(minutes=n), "target": service.target, "engine": "0", "node": service.node,
                    "observed_us": MINUTE_US, "busy_us": BUSY_US, **(counted if n == 0 else dict.fromkeys(counted, 0)),
                })  # fmt: skip
            at += QUARTER_HOUR
    connection.execute(insert(UsageMinuteRow), [row for rows in usage.values() for row in rows])
    connection.execute(insert(EngineMinuteRow), engine)

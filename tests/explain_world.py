"""A generated June that costs 40 % more than the thirty days before it, by three known causes, in the real tables.

Each period is in service for two hours: 200.00, then 280.00 USD.
- ``chat``: 5 GPUs more for the same work (+20 % GPU-hours): +20.00
- ``code``: the H100's price rises from 2.00 to 3.00: +20.00
- ``docs``: a tenth more tokens and the hit rate falls from 5/9 to 5/18, at the same time a token took; 20 GPUs more: +40.00
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, insert

from bench.year import coarser
from control.ledger_close import close_all
from core.capacity import NodeService
from core.money import money
from core.rates import Rate
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window
from models.partitions import ensure_months
from models.rates_repo import add_rates, declare_service
from models.tables import EngineMinuteRow, UsageMinuteRow

JUNE = Window(datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC))
BEFORE = Window(JUNE.start - JUNE.duration, JUNE.start)
QUARTERS = 8


@dataclass(frozen=True, slots=True)
class Month:
    """One deployment in one period; tokens of a quarter hour, ``busy_us`` of each minute."""

    model: str
    gpu_type: str
    gpus: int
    uncached: int
    cached: int
    busy_us: int = 60_000_000


FIRST = (
    Month("chat", "A100", 25, 80_000, 20_000, 48_000_000),
    Month("code", "H100", 10, 50_000, 0),
    Month("docs", "L4", 30, 90_000, 112_500),
)
SECOND = (
    Month("chat", "A100", 30, 80_000, 20_000, 40_000_000),
    Month("code", "H100", 10, 50_000, 0),
    Month("docs", "L4", 50, 162_500, 62_500),
)


def generate(db: Engine) -> None:
    """Prices, GPUs, usage and engine minutes of both periods, then the ledger's close."""
    with db.begin() as connection:
        ensure_months(connection, [BEFORE.start, JUNE.start])
        add_rates(connection, _rates(), BEFORE.start)
        for window, months in ((BEFORE, FIRST), (JUNE, SECOND)):
            for month in months:
                _run(connection, window.start, month)
        coarser(connection, "usage")
    report = close_all(db, JUNE.end)
    assert (report.closed, report.unpriced, report.failures) == (2 * 3 * QUARTERS, 0, [])


def _rates() -> list[Rate]:
    prices = [("A100", "2.00", BEFORE), ("L4", "1.00", BEFORE), ("H100", "2.00", BEFORE), ("H100", "3.00", JUNE)]
    return [Rate("gpu_hour", gpu, money(price, "USD"), "list", "test card", since.start) for gpu, price, since in prices]


def _run(connection: Connection, start: datetime, month: Month) -> None:
    place = {"cluster": "lab", "namespace": "prod", "model_id": month.model}
    target = f"http://{month.model}-{start:%m}"
    until = start + QUARTERS * QUARTER_HOUR
    deployment = Deployment(**place)
    declare_service(connection, NodeService(deployment, target, target, month.gpu_type, month.gpus, start, until), "test")
    asked = {
        **place, "org": "acme", "team": month.model, "project": "", "user_id": "", "key_id": "", "service_tier": "P1",
        "status": "ok", "usage_source": "exact", "workload_class": 0, "requests": 10, "input_uncached": month.uncached,
        "input_cache_read": month.cached,
    }  # fmt: skip
    quarters = [start + n * QUARTER_HOUR for n in range(QUARTERS)]
    connection.execute(insert(UsageMinuteRow), [{**asked, "minute": at} for at in quarters])
    seen = {**place, "target": target, "engine": "0", "node": target, "observed_us": 60_000_000, "busy_us": month.busy_us}
    counted = {"prompt_tokens": month.uncached + month.cached, "prompt_tokens_cached": month.cached}
    silent = dict.fromkeys(counted, 0)
    minutes = [(at + timedelta(minutes=n), counted if n == 0 else silent) for at in quarters for n in range(15)]
    connection.execute(insert(EngineMinuteRow), [{**seen, **sums, "minute": at} for at, sums in minutes])

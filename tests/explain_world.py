"""A generated June that costs 40 % more than the thirty days before it, by three known causes, in the real tables.

Each period is in service for two hours: 200.00, then 280.00 USD.
- ``chat``: 5 GPUs more for the same work (+20 % GPU-hours): +20.00
- ``code``: the H100's price rises from 2.00 to 3.00: +20.00
- ``docs``: a tenth more tokens and the hit rate falls from 5/9 to 5/18, at the same time a token took; 20 GPUs more: +40.00
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bill_lines import cur_line
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


SP = "arn:aws:savingsplans::012345678901:savingsplan/sp-1"


def generated_bill() -> list[dict[str, str]]:
    """A generated bill of the same two periods: a Savings Plan that ended, an instance type that became dearer, a machine that
    came and one that went, storage, a credit and tax."""
    lines: list[dict[str, str]] = []

    def add(day: str, kind: str, amounts: dict[str, str], **more: str) -> None:
        lines.append(cur_line(kind, amounts, start=f"2026-{day}T00:00:00Z", period=f"2026-{day[:2]}-01T00:00:00Z", **more))

    covered = {"unblended": "3277", "sp_effective": "1300", "public": "3277"}
    add("05-10", "SavingsPlanCoveredUsage", covered, usage="100", resource="i-chat", more={"savingsPlan/SavingsPlanARN": SP})
    add("05-10", "SavingsPlanNegation", {"unblended": "-3277"}, resource="", more={"savingsPlan/SavingsPlanARN": SP})
    fee = {"unblended": "1300", "sp_total": "1300", "sp_used": "1300"}
    add("05-10", "SavingsPlanRecurringFee", fee, resource="", more={"savingsPlan/SavingsPlanARN": SP})
    add("06-10", "Usage", {"unblended": "3277"}, usage="100", resource="i-chat")
    for day, cost in (("05-10", "5504"), ("06-10", "6000")):
        add(day, "Usage", {"unblended": cost}, usage="100", resource="i-code", usage_type="BoxUsage:p5.48xlarge")
    small = {"usage_type": "BoxUsage:g5.12xlarge"}
    for day, machine, hours, cost in (
        ("05-10", "i-docs", "100", "567.2"), ("06-10", "i-docs", "100", "567.2"),
        ("06-10", "i-new", "50", "283.6"), ("05-10", "i-old", "20", "113.44"),
    ):  # fmt: skip
        add(day, "Usage", {"unblended": cost}, usage=hours, resource=machine, **small)
    for day, tax, storage in (("05-31", "10", "5"), ("06-30", "12", "7")):
        add(day, "Tax", {"unblended": tax}, resource="")
        add(day, "Usage", {"unblended": storage}, resource="bucket", usage_type="TimedStorage", product="AmazonS3")
    add("06-30", "Credit", {"unblended": "-50"}, resource="")
    return lines

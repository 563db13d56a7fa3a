"""The demo's bills: a generated AWS account whose machines are those of the generated history, imported like any other bill."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

from cli.demo.aws_export import write_delivery
from cli.demo.aws_machines import Hold, Machine
from cli.demo.aws_month import EDP_RATE, Account, Delivery, Fix, midnight
from cli.demo.history import CHAT_POOL, LONG_POOL
from cli.settings import Settings
from cli.wiring import database_url, ready_database, utc_now
from core.windows import Window, month_on
from ingest.billing.adapter import BillOptions
from ingest.billing.delivery import Accept
from ingest.billing.importer import BillImport
from ingest.billing.layouts import find_deliveries
from ingest.billing.registry import ADAPTERS
from ingest.billing.stores import LocalFiles
from ingest.billing.switch import ImportSettings

CORRECTION = Decimal("-12.34")
FORMAT = "aws-cur"


@dataclass(frozen=True, slots=True)
class BillReport:
    """How many deliveries were read, and their rows."""

    deliveries: int
    rows: int


def demo_account(history: Window) -> Account:
    """The history's two pools on a g6e.12xlarge under a Savings Plan (two of its four GPUs are nobody's) and on a g5.xlarge on
    demand, beside a gateway that is in no inventory."""
    machines = (
        Machine("gpu-a", "i-0de0000000000000a", "g6e.12xlarge", (history,), "plan", (Hold(LONG_POOL, 2),)),
        Machine("gpu-b", "i-0de0000000000000b", "g5.xlarge", (history,), holds=(Hold(CHAT_POOL, 1),)),
        Machine("gateway", "i-0de0000000000000c", "m5.xlarge", (history,)),
    )
    return Account(machines, history.start.date())


def demo_deliveries(history: Window) -> list[Delivery]:
    """One delivery a month of the history: final for months that ended, until yesterday for the running one, which also corrects
    an hour of the month before."""
    return [_delivery(n, first, history) for n, first in enumerate(_months(history), 1)]


def _months(history: Window) -> Iterator[date]:
    first, end = history.start.date().replace(day=1), midnight(history.end.date())
    while midnight(first) < end:
        yield first
        first = month_on(first, 1)


def _delivery(number: int, first: date, history: Window) -> Delivery:
    end, known = midnight(month_on(first, 1)), midnight(history.end.date())
    if end <= known:
        refund = Decimal("-18.40")
        return Delivery(number, first, end, EDP_RATE, settled=True, refund=refund, invoice=f"GENERATED-{first:%Y-%m}")
    at = midnight(first) - timedelta(hours=36)
    fixes = (Fix(at, CORRECTION, "gpu-a"),) if history.contains(at) else ()
    return Delivery(number, first, known, EDP_RATE, fixes=fixes)


def load_bill(settings: Settings, history: Window) -> BillReport:
    """Write the deliveries as an export folder and import them. The same again changes nothing."""
    account, found = demo_account(history), demo_deliveries(history)
    engine = ready_database(settings, database_url(settings))
    rows = 0
    with tempfile.TemporaryDirectory() as folder:
        for delivery in found:
            store = LocalFiles(write_delivery(Path(folder), account, delivery))
        job = ImportSettings(engine, settings.data_dir, FORMAT, ADAPTERS[FORMAT], BillOptions(), Accept(), utc_now())
        for one in find_deliveries(store, needs_manifest=True) if found else ():
            rows += sum(bill.rows for bill in BillImport(job).run(store, one))
    engine.dispose()
    return BillReport(len(found), rows)

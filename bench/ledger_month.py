"""A month's quarter hours closed at once, every machine billed: how fast, and that the ledger is the bill to the last decimal."""

from __future__ import annotations

import time
from datetime import timedelta
from decimal import Decimal

from sqlalchemy import Engine, text

from bench.figures import Figure, Row
from bench.scratch import scratch
from bench.year import CLUSTER, END, MODELS, TENANTS, make_work
from control.ledger_close import CloseReport, CloseSettings, close_all
from core.money import total
from core.windows import Window
from models.database import open_engine, start_embedded, transaction, upgrade
from models.trueup_repo import charged_ledger, node_money

DAYS, QUICK_DAYS = 31, 1
REQUESTS_A_DAY, QUICK_REQUESTS_A_DAY = 200_000, 10_000
_BILL = """
    INSERT INTO bill_delivery (source, export, billing_period, version, delivery_id, format, origin, status, reason, digest, rows,
        totals, invoice_ids, is_final, folder, notes, received_at)
    VALUES ('bench', 'cur', :period, 1, 'bench', 'aws-cur', 'bench', 'current', '', 'bench', 0, '[]', '[]', FALSE, '', '[]', :at)
    RETURNING id
"""
_HOURS = f"""
    INSERT INTO node_charge (cluster, node, hour, delivery, resource_id, bucket, currency, instance_type, billed, effective,
        hours, gpus)
    SELECT '{CLUSTER}', 'node-' || m, hour, :delivery, 'i-' || m, 'gpu', 'USD', 'g5.12xlarge', 5.672, 2.1234567890123456, 1, 4
    FROM generate_series(CAST(:start AS timestamptz), CAST(:end AS timestamptz) - interval '1 hour', interval '1 hour') hour,
         generate_series(0, {MODELS - 1}) m
"""


def measure(*, quick: bool) -> Row:
    days, requests = (QUICK_DAYS, QUICK_REQUESTS_A_DAY) if quick else (DAYS, REQUESTS_A_DAY * DAYS)
    began = time.monotonic()
    with scratch() as folder:
        url = start_embedded(folder / "pg")
        upgrade(url)
        engine = open_engine(url, statement_timeout_ms=0)
        span = make_work(engine, requests, timedelta(days=days))
        _bill(engine, span)
        start_up_s = time.monotonic() - began
        report, took_s = _close(engine)
        started = time.perf_counter()
        difference = _difference(engine, span)
        checked_s = time.perf_counter() - started
        engine.dispose()
    return Row(
        "month", "a month's quarter hours closed on the bill",
        f"{requests:,} requests of {TENANTS} tenants × {MODELS} models in {days} days; each machine billed by the hour, "
        "a quarter of it held",
        (
            Figure("bill less ledger, unassigned and rounding", float(abs(difference)), "USD", "less", floor=0, goal=0),
            Figure("closed", report.closed / took_s, "windows/s"),
            Figure("the whole of it", took_s, "s", "less"),
        ),
        f"{report.closed} windows in {took_s:.1f} s, each also priced by rates; sharing the bill's hours anew {checked_s:.1f} s",
        start_up_s,
    )  # fmt: skip


def _bill(engine: Engine, span: Window) -> None:
    with transaction(engine) as connection:
        period = span.start.date().replace(day=1)
        delivery = connection.execute(text(_BILL), {"period": period, "at": END}).scalar_one()
        connection.execute(text(_HOURS), {"delivery": delivery, "start": span.start, "end": span.end})


def _close(engine: Engine) -> tuple[CloseReport, float]:
    started = time.perf_counter()
    report = close_all(engine, END + timedelta(hours=1), CloseSettings(grace=timedelta(0)))
    if report.failures or report.held or report.unpriced:
        raise AssertionError(f"not closed: {report.held or report.failures[:3] or report.unpriced}")
    return report, time.perf_counter() - started


def _difference(engine: Engine, span: Window) -> Decimal:
    """0: every billed cent is on a line, unassigned or rounding."""
    with engine.connect() as connection:
        money, ledger = node_money(connection), charged_ledger(connection, Window(span.start, END + timedelta(hours=1)))
    billed = total(m.effective for m in money)
    kept = [total((m.unassigned, m.rounding)) for m in money] + [cost for part in ledger for cost in part.lines.values()]
    return billed - total(kept)

"""The ledger closes to the last decimal: real closes of generated work, line by line against the capacity cost."""

from __future__ import annotations

import time
from datetime import timedelta

from sqlalchemy import Engine, text

from bench.figures import Figure, Row
from bench.scratch import scratch
from bench.year import CLUSTER, END, MODELS, TENANTS, make_work
from control.ledger_close import CloseReport, CloseSettings, close_all
from models.database import open_engine, start_embedded, transaction, upgrade

REQUESTS, HOURS = 200_000, 24
QUICK_REQUESTS, QUICK_HOURS = 10_000, 4
_WRONG = """
    SELECT count(*) AS windows, count(*) FILTER (WHERE w.capacity_cost IS NULL) AS unpriced,
           coalesce(max(abs(w.capacity_cost - l.cost)), 0) AS cost,
           coalesce(max(abs(w.capacity_cost - l.allocated)), 0) AS allocated
    FROM ledger_window w JOIN ledger_head USING (cluster, namespace, model_id, window_start, version)
    LEFT JOIN (
        SELECT cluster, namespace, model_id, window_start, version, sum(cost) AS cost, sum(allocated) AS allocated
        FROM ledger_line GROUP BY 1, 2, 3, 4, 5
    ) l USING (cluster, namespace, model_id, window_start, version)
"""
_TOTALS = """
    SELECT (SELECT sum(cost) FROM ledger_day), (SELECT sum(cost) FROM ledger_line_day), (SELECT sum(cost) FROM ledger_line_month),
           (SELECT sum(cost) FROM ledger_kind_day), (SELECT sum(cost) FROM ledger_kind_hour),
           (SELECT sum(capacity_cost) FROM ledger_window JOIN ledger_head
            USING (cluster, namespace, model_id, window_start, version))
"""


def measure(*, quick: bool) -> Row:
    requests, hours = (QUICK_REQUESTS, QUICK_HOURS) if quick else (REQUESTS, HOURS)
    began = time.monotonic()
    with scratch() as folder:
        url = start_embedded(folder / "pg")
        upgrade(url)
        engine = open_engine(url, statement_timeout_ms=0)
        make_work(engine, requests, timedelta(hours=hours))
        with transaction(engine) as connection:
            connection.execute(text(_MARK_ALL))
        start_up_s = time.monotonic() - began
        first, first_s = _close(engine)
        again, again_s = _reclose(engine)
        figures, lines = _figures(engine, first, first_s, again, again_s)
        engine.dispose()
    return Row(
        "ledger", "ledger difference, by window and in every sum kept of it",
        f"{requests:,} requests of {TENANTS} tenants × {MODELS} models in {hours} h, closed, then a tenth of the usage changed "
        "and closed again",
        figures, f"{first.closed} windows closed in {first_s:.1f} s ({lines:,} lines), {again.reclosed} closed again in "
        f"{again_s:.1f} s", start_up_s,
    )  # fmt: skip


_MARK_ALL = f"""
    INSERT INTO dirty_window (cluster, namespace, model_id, window_start, marked_at)
    SELECT DISTINCT cluster, namespace, model_id, date_bin('15 minutes', minute, TIMESTAMPTZ 'epoch'), now() FROM usage_minute
    WHERE cluster = '{CLUSTER}' ON CONFLICT DO NOTHING
"""
_CHANGE = "UPDATE usage_minute SET output = output + 7 WHERE user_id LIKE '%7'"


def _close(engine: Engine) -> tuple[CloseReport, float]:
    started = time.perf_counter()
    report = close_all(engine, END + timedelta(hours=1), CloseSettings(grace=timedelta(0)))
    if report.failures or report.held:
        raise AssertionError(f"not closed: {report.held or report.failures[:3]}")
    return report, time.perf_counter() - started


def _reclose(engine: Engine) -> tuple[CloseReport, float]:
    with transaction(engine) as connection:
        connection.execute(text(_CHANGE))
        connection.execute(text(_MARK_ALL))
    return _close(engine)


def _figures(
    engine: Engine, first: CloseReport, first_s: float, again: CloseReport, again_s: float
) -> tuple[tuple[Figure, ...], int]:
    with engine.connect() as connection:
        wrong = connection.execute(text(_WRONG)).one()
        totals = connection.execute(text(_TOTALS)).one()
        lines = int(connection.execute(text("SELECT count(*) FROM ledger_line")).scalar_one())
    if not wrong.windows or wrong.unpriced:
        raise AssertionError(f"{wrong.unpriced} of {wrong.windows} windows have no price")
    difference = max(wrong.cost, wrong.allocated)
    in_sums = max(abs(total - totals[-1]) for total in totals)
    return (
        Figure("greatest difference of a window", float(difference), "USD", "less", floor=0, goal=0),
        Figure("difference of the day and month sums", float(in_sums), "USD", "less", floor=0, goal=0),
        Figure("closed", first.closed / first_s, "windows/s"),
        Figure("closed again", again.reclosed / again_s, "windows/s"),
    ), lines

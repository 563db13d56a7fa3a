"""A generated year of rollups and ledger in PostgreSQL: 200 tenants × 8 models, skewed, with the sums of each level exact.

Lines of the ledger (per quarter hour and tenant) are made for the last quarter of a year, its day sums for the whole year.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from sqlalchemy import Connection, Engine, text

from control.budgets import set_budget
from core.capacity import NodeService
from core.usage import Deployment
from core.windows import Window
from ingest.prices.rate_card import default_rate_card
from models.database import transaction
from models.ledger_sums import TABLES
from models.partitions import ensure_months
from models.rates_repo import add_rates, declare_service
from models.tables_usage import ENGINE_MEASURES, USAGE_KEYS
from streaming.load_sql import ROLLUPS, Rollup

END = datetime(2026, 11, 30, 12, tzinfo=UTC)
TENANTS, MODELS = 200, 8
LINE_DAYS = 92
CLUSTER, NAMESPACE = "bench", "inference"
_KEYS = ", ".join(USAGE_KEYS)
_MEASURES = (
    "requests, input_uncached, input_cache_read, input_cache_write_5m, input_cache_write_1h, output, output_reasoning, "
    "prefill_context, kv_work_x2, duration_ms"
)

_REQUESTS = f"""
    SELECT date_trunc('minute', CAST(:start AS timestamptz) + random() * (CAST(:end AS timestamptz) - :start)) AS minute,
           floor({TENANTS} * power(random(), 3))::int AS t, floor({MODELS} * power(random(), 2))::int AS m,
           CASE WHEN random() < 0.02 THEN 'aborted' ELSE 'ok' END AS status, 10 + floor(random() * 6000)::bigint AS i,
           CASE WHEN random() < 0.3 THEN 512 ELSE 0 END AS c, floor(-250 * ln(1 - random()))::bigint AS o,
           floor(-4000 * ln(1 - random()))::bigint AS d
    FROM generate_series(1, :requests)
"""
_MINUTES = f"""
    INSERT INTO usage_minute (minute, {_KEYS}, {_MEASURES})
    SELECT minute, '{CLUSTER}', '{NAMESPACE}', 'model-' || m, 'org' || t % 20, 'team' || t, 'app', 'user' || t, 'key' || t, 'P1',
           status, 'exact', 0, count(*), sum(i), sum(c), 0, 0, sum(o), sum(o / 4), sum(i * i), sum(o * (2 * (i + c) + o)), sum(d)
    FROM ({_REQUESTS}) r GROUP BY minute, t, m, status ORDER BY minute
"""
_ENGINES = f"""
    INSERT INTO engine_minute (minute, cluster, namespace, model_id, target, engine, node, {", ".join(ENGINE_MEASURES)})
    SELECT minute, '{CLUSTER}', '{NAMESPACE}', 'model-' || m, 'target-' || m, '0', 'node-' || m,
           {", ".join("4" if name == "samples" else "0" if name in ("resets", "gap_us") else "900" for name in ENGINE_MEASURES)}
    FROM generate_series(CAST(:start AS timestamptz), CAST(:end AS timestamptz) - interval '1 minute',
         interval '1 minute') minute, generate_series(0, {MODELS - 1}) m
"""
_LINES = """
    INSERT INTO ledger_line (cluster, namespace, model_id, window_start, version, kind, token_kind, org, team, project, user_id,
        key_id, service_tier, workload_class, tokens, requests, cost, allocated)
    SELECT cluster, namespace, model_id, at, 1, CASE status WHEN 'ok' THEN 'served' ELSE 'wasted' END, k.token_kind, org, team,
           project, user_id, key_id, service_tier, workload_class, k.tokens, k.requests, k.tokens * k.price,
           k.tokens * k.price * 2
    FROM (
        SELECT date_bin('15 minutes', minute, TIMESTAMPTZ 'epoch') AS at, cluster, namespace, model_id, org, team, project,
               user_id, key_id, service_tier, workload_class, status, sum(requests)::bigint AS requests,
               sum(input_uncached)::bigint AS i, sum(input_cache_read)::bigint AS c, sum(output)::bigint AS o
        FROM usage_minute WHERE minute >= :start AND minute < :end GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
    ) u CROSS JOIN LATERAL (VALUES
        ('input', i, 0::bigint, 0.0000002), ('input_cached', c, 0, 0.00000002), ('output', o, requests, 0.000001)
    ) k (token_kind, tokens, requests, price) WHERE k.tokens > 0 OR k.requests > 0
"""
_IDLE = """
    INSERT INTO ledger_line (cluster, namespace, model_id, window_start, version, kind, cost, allocated)
    SELECT cluster, namespace, model_id, window_start, 1, 'idle', 0.01, 0 FROM ledger_head
    WHERE window_start >= :start AND window_start < :end
"""
_WINDOWS = f"""
    INSERT INTO ledger_window (cluster, namespace, model_id, window_start, version, state, currency, capacity_cost, used_cost,
        utilisation_ppm, utilisation_source, weight_source, price_source, engine_prompt_tokens, engine_generation_tokens,
        gateway_input_tokens, gateway_output_tokens, detail, closed_at)
    SELECT '{CLUSTER}', '{NAMESPACE}', 'model-' || m, at, 1, 'provisional', 'USD', 0.2515, 0.1, 400000, 'running > 0',
           'prefill : decode seconds', 'list price, bill pending', 13500, 13500, 13000, 13000,
           '{{"input_digest": "generated", "running": {{"unit": "0.0000001", "allocated_unit": "0.0000002", "input": "1",
             "input_cached": "0.1", "output": "2", "kv": "0", "capacity": "0.2515"}}}}', at + interval '30 minutes'
    FROM generate_series(CAST(:start AS timestamptz), CAST(:end AS timestamptz) - interval '15 minutes',
         interval '15 minutes') at, generate_series(0, {MODELS - 1}) m
"""
_SUMS = """
    INSERT INTO {table} ({unit}, {keys}, currency, lines, tokens, requests, cost, allocated)
    SELECT date_trunc('{unit}', {time}, 'UTC'), {keys}, 'USD', {lines}, sum(tokens), sum(requests), sum(cost), sum(allocated)
    FROM {finer} GROUP BY 1, {keys} ORDER BY 1
"""
_LINES_OF = ("ledger_line", "window_start", "count(*)")
_FINER = {
    "ledger_line_month": ("ledger_line_day", "day", "sum(lines)"), "ledger_kind_day": ("ledger_kind_hour", "hour", "sum(lines)")
}  # fmt: skip
"""What each table of sums is made of: table, time column, number of lines; the others of the lines themselves."""
_DAYS = """
    INSERT INTO ledger_day (day, cluster, namespace, model_id, org, team, project, user_id, service_tier, kind, currency, cost,
        allocated)
    SELECT day, cluster, namespace, model_id, org, team, project, user_id, service_tier, kind, currency, sum(cost), sum(allocated)
    FROM ledger_line_day GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
"""
_WINDOW_DAYS = """
    INSERT INTO ledger_window_day (day, cluster, namespace, model_id, currency, price_source, utilisation_source, weight_source,
        state, windows, engine_in, engine_out, gateway_in, gateway_out, last)
    SELECT date_trunc('day', window_start, 'UTC'), cluster, namespace, model_id, currency, price_source, utilisation_source,
           weight_source, state, count(*), sum(engine_prompt_tokens), sum(engine_generation_tokens), sum(gateway_input_tokens),
           sum(gateway_output_tokens), max(window_start)
    FROM ledger_window GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
"""
_HEADS = """
    INSERT INTO ledger_head (cluster, namespace, model_id, window_start, version)
    SELECT cluster, namespace, model_id, window_start, version FROM ledger_window
"""
_STREAM = """
    INSERT INTO stream_state (topic, catching_up, log_lines, read_lines, updated_at)
    SELECT topic, false, 0, 0, CAST(:end AS timestamptz) FROM unnest(ARRAY['usage', 'engine']) topic
"""
# As many as remain of a loader that applies a file every three seconds and remembers it for 35 days.
_FILES = """
    INSERT INTO applied_file (name, kind, rows, applied_at)
    SELECT 'part-' || n, CASE n % 2 WHEN 0 THEN 'usage' ELSE 'engine' END, 100, CAST(:end AS timestamptz) - n * interval '3 s'
    FROM generate_series(0, 999999) n
"""

_IN_A_HURRY = ("synchronous_commit = off", "max_wal_size = '4GB'", "work_mem = '256MB'", "autovacuum = off")


@dataclass(frozen=True, slots=True)
class Year:
    """What was made: the whole span, the span that has ledger lines, and the rows of each table."""

    span: Window
    lines: Window
    rows: dict[str, int]


def make(engine: Engine, requests: int, days: int) -> Year:
    """Fill an empty database. Takes about a minute a million requests; ``engine`` must have no statement timeout."""
    _configure(engine, *(f"SET {setting}" for setting in _IN_A_HURRY))
    span = make_work(engine, requests, timedelta(days=days))
    closed = Window(span.start, END - timedelta(minutes=30))
    lines = Window(max(span.start, END - timedelta(days=LINE_DAYS)), closed.end)
    _ledger(engine, closed, lines)
    with transaction(engine) as connection:
        _run(connection, _STREAM, span)
        _run(connection, _FILES, span)
        _budgets(connection)
    made = Year(span, lines, _analysed(engine))
    _configure(engine, "RESET ALL")
    return made


def _configure(engine: Engine, *changes: str) -> None:
    """Of the whole server, which is the bench's own; back to the product's before anything is measured."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for change in changes:
            connection.execute(text(f"ALTER SYSTEM {change}"))
        connection.execute(text("SELECT pg_reload_conf()"))


def make_work(engine: Engine, requests: int, duration: timedelta) -> Window:
    """Prices, inventory, usage and engine rollups of the time before ``END``; nothing of it closed."""
    span = Window(END - duration, END)
    _inventory(engine, span)
    for part in _months(span):
        with transaction(engine) as connection:
            ensure_months(connection, [part.start])
            connection.execute(text("SELECT setseed(0.5)"))
            _run(connection, _MINUTES, part, requests=round(requests * (part.duration / span.duration)))
            _run(connection, _ENGINES, part)
    with transaction(engine) as connection:
        for kind in ("usage", "engine"):
            coarser(connection, kind)
    return span


def _inventory(engine: Engine, span: Window) -> None:
    with transaction(engine) as connection:
        add_rates(connection, default_rate_card().rates, span.start)
        for m in range(MODELS):
            place = Deployment(CLUSTER, NAMESPACE, f"model-{m}")
            declare_service(connection, NodeService(place, f"target-{m}", f"node-{m}", "A10G", 1, span.start), "bench")


def coarser(connection: Connection, kind: str) -> None:
    """Fill every coarser rollup of ``usage`` or ``engine``, which are empty, with the sums of finer ones."""
    filled = [ROLLUPS[kind][0]]
    for rollup in ROLLUPS[kind][1:]:
        finer = _smallest(filled, rollup)
        keys, sums = ", ".join(rollup.keys), ", ".join(f"sum({name})" for name in rollup.measures)
        sql = (
            f"INSERT INTO {rollup.table} ({rollup.time}, {keys}, {', '.join(rollup.measures)}) "
            f"SELECT date_trunc('{rollup.time}', {finer.time}, 'UTC') AS at, {keys}, {sums} "
            f"FROM {finer.table} GROUP BY at, {keys} ORDER BY at"
        )
        connection.execute(text(sql))
        filled.append(rollup)


def _smallest(filled: Sequence[Rollup], wanted: Rollup) -> Rollup:
    """Of the rollups that ``wanted`` can be summed from, the one with the fewest keys and longest steps."""
    steps = ("minute", "hour", "day", "month")
    fit = [r for r in filled if set(wanted.keys) <= set(r.keys) and steps.index(r.time) <= steps.index(wanted.time)]
    return min(fit, key=lambda r: (len(r.keys), -steps.index(r.time)))


def _ledger(engine: Engine, closed: Window, lines: Window) -> None:
    with transaction(engine) as connection:
        _run(connection, _WINDOWS, closed)
        connection.execute(text(_HEADS))
        connection.execute(text(_WINDOW_DAYS))
    for part in _months(lines):
        with transaction(engine) as connection:
            _run(connection, _LINES, part)
            _run(connection, _IDLE, part)
    with transaction(engine) as connection:
        for table, unit, keys in sorted(TABLES, key=lambda found: found[0] in _FINER):
            finer, time, count = _FINER.get(table, _LINES_OF)
            sums = _SUMS.format(table=table, unit=unit, keys=", ".join(keys), finer=finer, time=time, lines=count)
            connection.execute(text(sums))
        connection.execute(text(_DAYS))


def _budgets(connection: Connection) -> None:
    for t in range(TENANTS):
        set_budget(connection, f"tenant:org{t % 20}/team{t}", "month", Decimal(100), "USD", "UTC", "bench", END)


def _months(span: Window) -> Iterator[Window]:
    at = span.start
    while at < span.end:
        after = (at.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
        yield Window(at, min(after, span.end))
        at = after


def _run(connection: Connection, sql: str, part: Window, **more: int) -> None:
    connection.execute(text(sql), {"start": part.start, "end": part.end, **more})


def _analysed(engine: Engine) -> dict[str, int]:
    tables = ("usage_minute", "usage_hour", "usage_day", "engine_minute", "ledger_window", "ledger_line", "ledger_day")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
        return {name: int(connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()) for name in tables}

"""What the pages wait for, over a generated year in PostgreSQL: the API's answers, beside DuckDB on the same rows as Parquet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import duckdb
import httpx
import psycopg
import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine, event

from api.app import create_app
from api.settings import ApiSettings
from bench.figures import Figure, Row, percentile
from bench.http_ingest import free_port, wait_until_ready
from bench.pages_ready import pages_ready
from bench.scratch import scratch
from bench.year import END, Year, make
from control.budget_standing import keep_standings
from eventlog.spool import SpoolLog, SpoolSettings
from models.access_repo import create_token
from models.database import open_engine, start_embedded, transaction, upgrade

REQUESTS, DAYS = 10_000_000, 365
QUICK_REQUESTS, QUICK_DAYS = 200_000, 60
REPEATS, QUICK_REPEATS = 20, 5
FLOOR_MS, GOAL_MS = 200, 50
TOKENS = ("input_uncached", "input_cache_read", "output")


@dataclass(frozen=True, slots=True)
class Asked:
    """One read of a page over the last ``days`` (0: a page without a time range). ``peer``: the grouping DuckDB does over the
    same rows (of ``usage_minute`` or ``ledger_line``)."""

    name: str
    path: str
    days: float
    by: str | None = None
    peer: str | None = None
    more: tuple[tuple[str, str], ...] = ()

    def parameters(self, year: Year) -> dict[str, str]:
        if not self.days:
            return dict(self.more)
        start = max(year.span.start, END - timedelta(days=self.days))
        found = {"from": start.isoformat(), "to": END.isoformat(), **dict(self.more)}
        return found if self.by is None else found | {"by": self.by}


USAGE, COST, COVERAGE, OVERVIEW = "/v1/usage", "/v1/unit-cost", "/v1/coverage", "/v1/overview"
DAY = "time_bucket(INTERVAL 1 day, minute)"
QUERIES = (
    Asked("usage by model, month", USAGE, 30, "model_id", "model_id"),
    Asked("usage by tenant, month", USAGE, 30, "org,team", "org, team"),
    Asked("usage by tenant and model, week", USAGE, 7, "team,model_id", "team, model_id"),
    Asked("usage by hour, 3 days", USAGE, 3, "hour", "time_bucket(INTERVAL 1 hour, minute)"),
    Asked("usage by day, month", USAGE, 30, "day", DAY),
    Asked("usage by day, year", USAGE, 365, "day", DAY),
    Asked("usage by tenant, year", USAGE, 365, "org,team", "org, team"),
    Asked("usage of one tenant by day, year", USAGE, 365, "day", DAY, (("filter.org", "org1"), ("filter.team", "team1"))),
    Asked("usage by minute, 3 hours", USAGE, 0.125, "minute", "minute"),
    Asked("unit cost by deployment, month", COST, 30, "deployment", "model_id, token_kind"),
    Asked("unit cost by tenant, month", COST, 30, "team", "team, token_kind"),
    Asked("unit cost by model and day, month", COST, 30, "model_id,day", "model_id, token_kind, window_start::DATE"),
    Asked("unit cost by hour, 3 days", COST, 3, "hour", "time_bucket(INTERVAL 1 hour, window_start), token_kind"),
    Asked("unit cost by deployment, year", COST, 365, "deployment"),
    Asked("coverage by deployment, month", COVERAGE, 30, "deployment"),
    Asked("coverage by day, year", COVERAGE, 365, "day"),
    Asked("overview, month", OVERVIEW, 30),
    Asked("overview, year", OVERVIEW, 365),
    Asked("budgets of 200 teams", "/v1/budgets", 0),
)


def measure(*, quick: bool) -> Row:
    began = time.monotonic()
    with scratch() as folder:
        url = start_embedded(folder / "pg")
        upgrade(url)
        maker = open_engine(url, statement_timeout_ms=0)
        year = make(maker, *((QUICK_REQUESTS, QUICK_DAYS) if quick else (REQUESTS, DAYS)))
        peers = Peers(maker, folder, year)
        maker.dispose()
        engine = open_engine(url, short_reads=True)
        start_up_s = time.monotonic() - began
        figures, slow = _ask(engine, folder, year, peers, QUICK_REPEATS if quick else REPEATS)
        engine.dispose()
    rows = ", ".join(f"{name} {count:,}" for name, count in year.rows.items())
    return Row(
        "queries", "dashboard queries, as the API answers them, and the pages over them",
        f"{QUICK_REQUESTS if quick else REQUESTS:,} requests of 200 tenants × 8 models in {QUICK_DAYS if quick else DAYS} days; "
        f"rows: {rows}; each asked {QUICK_REPEATS if quick else REPEATS} times after one warm-up, p95 beside DuckDB's median",
        figures, f"share of the time in the database and its slowest statement: {'; '.join(slow)}", start_up_s,
        {"rows": year.rows},
    )  # fmt: skip


def _ask(engine: Engine, folder: Path, year: Year, peers: Peers, repeats: int) -> tuple[tuple[Figure, ...], list[str]]:
    with transaction(engine) as connection:
        token = create_token(connection, "bench", ("read",), "", END)[1]
    keep_standings(engine, END, every_s=5.0)  # as the control loop does beside the API
    log = SpoolLog(folder / "log", SpoolSettings(reserve_bytes=0, reserve_percent=0), lambda: END)
    spent = _statement_times(engine)
    figures: list[Figure] = []
    slow: list[str] = []
    with _served(create_app(ApiSettings(data_dir=folder, standings_cache_s=0), engine, log, now=lambda: END), token) as client:
        for asked in QUERIES:
            took_ms, in_database = _timed(client, asked, year, repeats, spent)
            peer_ms = peers.ms(asked, repeats)
            p95 = percentile(took_ms, 0.95)
            figures.append(
                Figure(f"{asked.name}, p95", p95, "ms", "less", FLOOR_MS, GOAL_MS, peer_ms, "DuckDB" if peer_ms else "")
            )
            slow.append(f"{asked.name} p50 {percentile(took_ms, 0.5):.0f} ms, {in_database:.0%}")
        figures += pages_ready(str(client.base_url).rstrip("/"), token, folder, repeats)
    log.close()
    return tuple(figures), slow


@contextmanager
def _served(app: FastAPI, token: str) -> Iterator[httpx.Client]:
    """The app on uvicorn in a thread, and a client with the token."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until_ready(port)
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(10)


def _timed(client: httpx.Client, asked: Asked, year: Year, repeats: int, spent: list[float]) -> tuple[list[float], float]:
    took: list[float] = []
    parameters = asked.parameters(year)
    for number in range(repeats + 1):
        if number == 1:
            spent.clear()
        before = time.perf_counter()
        answer = client.get(asked.path, params=parameters)
        took.append((time.perf_counter() - before) * 1000)
        if answer.status_code != 200 or answer.json().get("rows") == []:
            raise AssertionError(f"{asked.name}: {answer.status_code} {answer.text[:300]}")
    return took[1:], sum(spent) * 1000 / sum(took[1:])


def _statement_times(engine: Engine) -> list[float]:
    """Seconds of each statement from now on."""
    spent: list[float] = []
    started: list[float] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _before(*_: Any) -> None:
        started.append(time.perf_counter())

    @event.listens_for(engine, "after_cursor_execute")
    def _after(*_: Any) -> None:
        spent.append(time.perf_counter() - started.pop())

    return spent


class Peers:
    """The finest rows as Parquet, and DuckDB over them."""

    def __init__(self, engine: Engine, folder: Path, year: Year) -> None:
        self._year = year
        self._files = {table: folder / f"{table}.parquet" for table in ("usage_minute", "ledger_line")}
        for table, file in self._files.items():
            _export(engine, table, folder / f"{table}.csv", file)

    def ms(self, asked: Asked, repeats: int) -> float | None:
        """Median of the same grouping over the finest rows; None where the question has no such form."""
        if asked.peer is None:
            return None
        usage = asked.path == USAGE
        time_column, sums = ("minute", (*TOKENS, "requests")) if usage else ("window_start", ("tokens", "cost", "allocated"))
        where = "".join(f" AND {name.removeprefix('filter.')} = '{value}'" for name, value in asked.more)
        query = f"""SELECT {asked.peer}, {", ".join(f"sum({name})" for name in sums)}
            FROM read_parquet('{self._files["usage_minute" if usage else "ledger_line"]}')
            WHERE {time_column} >= $start AND {time_column} < $end{where} GROUP BY ALL ORDER BY ALL"""
        values: dict[str, datetime] = {"start": max(self._year.span.start, END - timedelta(days=asked.days)), "end": END}
        with duckdb.connect() as connection:
            return percentile(_each_ms(lambda: connection.execute(query, values).fetchall(), repeats + 1)[1:], 0.5)


def _each_ms(work: Callable[[], object], times: int) -> list[float]:
    took: list[float] = []
    for _ in range(times):
        before = time.perf_counter()
        work()
        took.append((time.perf_counter() - before) * 1000)
    return took


def _export(engine: Engine, table: str, csv: Path, parquet: Path) -> None:
    with engine.connect() as connection:
        driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
        copy = f"COPY (SELECT * FROM {table}) TO STDOUT (FORMAT csv, HEADER)"
        with csv.open("wb") as out, driver.cursor() as cursor, cursor.copy(copy.encode()) as rows:
            for block in rows:
                out.write(block)
    with duckdb.connect() as duck:
        duck.execute(f"COPY (FROM read_csv('{csv}')) TO '{parquet}' (FORMAT parquet, COMPRESSION zstd)")
    csv.unlink()

"""A usage file of NDJSON through the running product to its rollups, beside DuckDB doing the same sums in one shot."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import orjson
from sqlalchemy import Connection, text

from bench.figures import Figure, Row
from bench.machine import Cores, told
from bench.stack import Stack, running
from cli.settings import load
from cli.wiring import event_log, usage_ingest
from ingest.usage.files import ingest_file
from ingest.usage.rows import SourceOptions

RECORDS, QUICK_RECORDS, WARM_UP_RECORDS = 1_000_000, 100_000, 5_000
TENANTS, MODELS, DUPLICATES = 200, 8, 0.03
PER_SECOND_OF_TRAFFIC = 500
GIVE_UP_S = 1_200.0
COUNTED = text("SELECT coalesce(sum(requests), 0)::bigint FROM usage_day WHERE cluster = 'bench'")
TOKENS = ("input_uncached", "input_cache_read", "output", "output_reasoning")


def measure(*, quick: bool) -> Row:
    records = QUICK_RECORDS if quick else RECORDS
    began = time.monotonic()
    with running() as stack:
        file = stack.folder / "usage.ndjson"
        _through(stack, write_usage(stack.folder / "warm-up.ndjson", WARM_UP_RECORDS, "warm", datetime.now(UTC)))
        start_up_s = time.monotonic() - began
        wanted = write_usage(file, records, "chat", datetime.now(UTC))[1]
        duck_s, distinct = one_shot(file)
        if distinct != wanted:
            raise AssertionError(f"DuckDB counts {distinct} records in the file, it was written with {wanted}")
        cores = Cores(stack.process.pid, stack.data_dir)
        ingest_s, whole_s, counted = _through(stack, (file, wanted))
        shares = cores.shares()
    rate, peer = records / whole_s, records / duck_s
    return Row(
        "file", "usage file → validated log → deltas → rollups, dedupe on",
        f"{records:,} records of NDJSON, {DUPLICATES:.0%} repeated, {TENANTS} tenants × {MODELS} models, 12 keys a record, "
        "every process of `tokenfuse up` running",
        (
            Figure("whole path", rate, "records/s", floor=20_000, goal=100_000, peer=peer, peer_is="DuckDB one-shot"),
            Figure("times DuckDB", peer / rate, "×", "less", floor=20, goal=4),
            Figure("records counted wrong", abs(counted - wanted), "records", "less", floor=0, goal=0),
        ),
        f"reading, validating and the log {ingest_s:.1f} s of {whole_s:.1f} s, the stream's tail {whole_s - ingest_s:.1f} s; "
        + told(shares),
        start_up_s, {"ingest_s": ingest_s, "whole_s": whole_s, "duckdb_s": duck_s, "cores": shares},
    )  # fmt: skip


def _through(stack: Stack, written: tuple[Path, int]) -> tuple[float, float, int]:
    """(seconds to read the file into the log, seconds to the last record in the rollups, records counted)."""
    file, wanted = written
    settings = load(data_dir=stack.data_dir, db_url=stack.engine.url.render_as_string(hide_password=False))
    with stack.engine.connect() as connection:
        before = int(connection.execute(COUNTED).scalar_one())
    started = time.perf_counter()
    with event_log(settings) as log:
        report = ingest_file(file, "usage", SourceOptions(), usage_ingest(settings, stack.engine, log), lambda *_: None)
    ingest_s = time.perf_counter() - started
    if report.quarantined:
        raise AssertionError(f"{report.quarantined} records were quarantined: {report.reasons}")

    def counted(connection: Connection) -> bool:
        return int(connection.execute(COUNTED).scalar_one()) - before >= wanted

    stack.wait("all records in the rollups", counted, GIVE_UP_S)
    whole_s = time.perf_counter() - started
    with stack.engine.connect() as connection:
        return ingest_s, whole_s, int(connection.execute(COUNTED).scalar_one()) - before


def write_usage(file: Path, records: int, name: str, now: datetime) -> tuple[Path, int]:
    """Write ``records`` lines that end a minute before ``now``; the file and how many distinct ids it has."""
    rnd = random.Random(name)
    start = now - timedelta(minutes=1, seconds=records / PER_SECOND_OF_TRAFFIC)
    written: list[int] = []
    with file.open("wb") as out:
        for number in range(records):
            if number and rnd.random() < DUPLICATES:
                out.write(orjson.dumps(_item(random.Random(again := rnd.choice(written)), again, name, start)) + b"\n")
                continue
            out.write(orjson.dumps(_item(random.Random(number), number, name, start)) + b"\n")
            written.append(number)
    return file, len(written)


def _item(rnd: random.Random, number: int, name: str, start: datetime) -> dict[str, Any]:
    """The record of that number: the same each time, so that a repeat is a true repeat."""
    finished = start + timedelta(seconds=number / PER_SECOND_OF_TRAFFIC)
    took = timedelta(milliseconds=min(int(rnd.expovariate(1 / 4_000)) + 1, 600_000))
    tenant, output = int(TENANTS * rnd.random() ** 3), int(rnd.expovariate(1 / 250))
    return {
        "schema": "usage/1", "request_id": f"{name}-{number:016x}:chat", "started_at": finished - took,
        "first_token_at": finished - took * 0.9, "finished_at": finished,
        "deployment": {"cluster": "bench", "namespace": "ns", "model_id": f"model-{int(MODELS * rnd.random() ** 2)}"},
        "tenant": {
            "org": f"org{tenant % 10}", "team": f"team{tenant}", "project": "p", "user": f"user{tenant}", "key_id": f"k{tenant}"
        },
        "tokens": {
            "input_uncached": rnd.randrange(10, 6_000), "input_cache_read": rnd.choice((0, 0, 512)), "output": output,
            "output_reasoning": output // 4,
        },
        "usage_source": "exact", "status": "ok", "service_tier": "P1", "http_status": 200, "stream": True,
    }  # fmt: skip


def one_shot(file: Path) -> tuple[float, int]:
    """Seconds DuckDB takes to read, dedupe and group the file by minute and keys; and the distinct records."""
    tokens = ", ".join(f"{name} BIGINT" for name in TOKENS)
    columns = f"""{{'request_id': 'VARCHAR', 'finished_at': 'TIMESTAMPTZ', 'service_tier': 'VARCHAR', 'status': 'VARCHAR',
        'usage_source': 'VARCHAR', 'deployment': 'STRUCT(cluster VARCHAR, namespace VARCHAR, model_id VARCHAR)',
        'tenant': 'STRUCT(org VARCHAR, team VARCHAR, project VARCHAR, "user" VARCHAR, key_id VARCHAR)',
        'tokens': 'STRUCT({tokens})'}}"""
    sums = ", ".join(f"sum(tokens.{name})" for name in TOKENS)
    query = f"""SELECT time_bucket(INTERVAL 1 minute, finished_at), deployment, tenant, service_tier, status, usage_source,
            count(*), {sums}
        FROM (SELECT * FROM read_json('{file}', format = 'newline_delimited', columns = {columns})
              QUALIFY row_number() OVER (PARTITION BY request_id) = 1) GROUP BY ALL"""
    with duckdb.connect() as connection:
        started = time.perf_counter()
        rows = connection.execute(query).fetchall()
        return time.perf_counter() - started, sum(row[6] for row in rows)

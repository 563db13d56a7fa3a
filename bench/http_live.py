"""HTTP batches accepted by a whole running Tokenfuse, and how soon they are in the rollups."""

from __future__ import annotations

import http.client
import json
import multiprocessing as mp
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, text

from bench.bare_accept import serve
from bench.figures import Figure, Row, percentile
from bench.http_ingest import BATCH, CLIENTS, NAME, free_port, template, wait_until_ready
from bench.http_ingest import measure as burst
from bench.machine import Cores, told
from bench.stack import Stack, running
from models.access_repo import create_token
from models.database import transaction

PACE_PER_S = 10
"""Batches a second while freshness is measured: at 500 records each, the floor's 5,000 records a second."""
MARK_EVERY = 5
SECONDS, QUICK_SECONDS = 40.0, 10.0
BURST_S, QUICK_BURST_S = 20.0, 5.0
SETTLE_S = 8.0
POLL_S = 0.05
SEEN = text(
    "SELECT org FROM usage_minute WHERE minute >= :since AND org = ANY(:waiting) GROUP BY org HAVING sum(requests) >= :all"
)
ACCEPTED = text("SELECT coalesce(sum(requests), 0)::bigint FROM usage_day")
GIVE_UP_S = 120.0


@dataclass(slots=True)
class Marks:
    """When each marked batch was answered, and how long until all its records were in ``usage_minute``."""

    answered: dict[str, float] = field(default_factory=dict)
    visible_s: list[float] = field(default_factory=list)

    def look(self, engine: Engine, since: datetime) -> None:
        if not self.answered:
            return
        with engine.connect() as connection:
            values = {"since": since, "waiting": list(self.answered), "all": BATCH}
            seen = connection.execute(SEEN, values).scalars().all()
        now_s = time.perf_counter()
        self.visible_s += [now_s - self.answered.pop(org) for org in seen]


def measure(*, quick: bool) -> Row:
    began = time.monotonic()
    burst_s = QUICK_BURST_S if quick else BURST_S
    with running() as stack:
        with transaction(stack.engine) as connection:
            token = create_token(connection, "bench", ("ingest",), "", datetime.now(UTC))[1]
        paced(stack, token, SETTLE_S)
        start_up_s = time.monotonic() - began
        marks = paced(stack, token, QUICK_SECONDS if quick else SECONDS)
        before = _counted(stack)
        cores = Cores(stack.process.pid, stack.data_dir)
        found = burst(_port(stack), token, burst_s, CLIENTS)
        shares = cores.shares()
        behind_s = _until_level(stack)
        counted = _counted(stack) - before
    bare = _bare(burst_s)
    p50, p95, p99 = (percentile(marks.visible_s, share) for share in (0.5, 0.95, 0.99))
    return Row(
        "http", "HTTP batch accept, fsynced, the stream running through",
        f"{CLIENTS} clients, batches of {BATCH} records, 200 tenants × 8 models; freshness at {PACE_PER_S * BATCH:,} records/s "
        f"({len(marks.visible_s)} marked batches), rate at full speed",
        (
            Figure(
                "accepted", found["records_per_s"], "records/s", floor=5_000, goal=20_000, peer=bare["records_per_s"],
                peer_is="bare endpoint that only syncs the body",
            ),
            Figure("batch p95", found["batch_ms_p95"], "ms", "less", peer=bare["batch_ms_p95"], peer_is="bare endpoint"),
            Figure("rollup visible p50", p50, "s", "less"),
            Figure("rollup visible p95", p95, "s", "less", floor=8, goal=3),
            Figure("rollup visible p99", p99, "s", "less"),
            Figure("level again after full speed", behind_s, "s", "less"),
        ),
        f"at full speed, the clients on the same cores: {told(shares)}",
        start_up_s, {"burst": found, "bare": bare, "cores": shares, "counted_of_burst": counted},
    )  # fmt: skip


def paced(stack: Stack, token: str, seconds: float) -> Marks:
    """Send batches at an even pace, every fifth under a tenant of its own, and watch for those."""
    marks, since = Marks(), datetime.now(UTC) - timedelta(minutes=5)
    connection = http.client.HTTPConnection("127.0.0.1", _port(stack), timeout=60)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    started_s, number = time.perf_counter(), 0
    while (now_s := time.perf_counter()) < started_s + seconds:
        if now_s >= started_s + number / PACE_PER_S:
            org = f"mark-{time.time_ns()}" if number % MARK_EVERY == 0 else "acme"
            body = template(datetime.now(UTC) - timedelta(seconds=5)).replace(NAME, f"paced-{time.time_ns()}".encode())
            connection.request("POST", "/v1/usage", body.replace(b'"acme"', f'"{org}"'.encode()), headers)
            answer = connection.getresponse()
            answer_body = answer.read()
            if answer.status != 202 or json.loads(answer_body)["accepted"] != BATCH:
                raise AssertionError(f"{answer.status}: {answer_body[:300]!r}")
            if org != "acme":
                marks.answered[org] = time.perf_counter()
            number += 1
        marks.look(stack.engine, since)
        time.sleep(POLL_S)
    until_s = time.perf_counter() + GIVE_UP_S
    while marks.answered:
        if time.perf_counter() > until_s:
            raise AssertionError(f"{len(marks.answered)} marked batches are not in the rollups after {GIVE_UP_S:.0f} s")
        marks.look(stack.engine, since)
        time.sleep(POLL_S)
    return marks


def _port(stack: Stack) -> int:
    return int(stack.api_url.rsplit(":", 1)[1])


def _counted(stack: Stack) -> int:
    with stack.engine.connect() as connection:
        return int(connection.execute(ACCEPTED).scalar_one())


def _until_level(stack: Stack) -> float:
    """Seconds until a batch sent now is visible: it queues behind everything accepted before it."""
    with transaction(stack.engine) as connection:
        token = create_token(connection, "level", ("ingest",), "", datetime.now(UTC))[1]
    return max(paced(stack, token, 0.01).visible_s)


def _bare(seconds: float) -> dict[str, float]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tfbench") as folder:
        server = mp.get_context("spawn").Process(target=serve, args=(folder, port, BATCH))
        server.start()
        try:
            wait_until_ready(port)
            return burst(port, "none", seconds, CLIENTS)
        finally:
            server.terminate()
            server.join(20)

"""A whole Tokenfuse on free ports and a data folder of its own: ``tokenfuse up``, with history to price by."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Connection, Engine, text

from cli.guards import add_guard
from control.ledger_close import CloseSettings, close_all
from core.capacity import NodeService
from core.engine import EngineKey, EngineSample
from core.engine_line import encode_line
from core.ports import LogBatch
from core.usage import Deployment
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.engine.service import full_record
from models.access_repo import create_token
from models.database import open_engine, transaction
from models.partitions import ensure_months
from models.rates_repo import declare_service

POOL = Deployment("bench", "inference", "model-a")
NODE = "bench-node"
TARGET = "http://bench-node:8000/metrics"
HISTORY = timedelta(hours=1)
WAIT_S, STOP_S = 300.0, 90.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(slots=True)
class Stack:
    """A running ``tokenfuse up``. ``api`` is an HTTP client with the admin token."""

    folder: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]
    api_url: str
    api: httpx.Client = field(init=False)
    engine: Engine = field(init=False)

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    def command(self, *arguments: str, expect: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != expect:
            raise AssertionError(f"{arguments} → {done.returncode}: {done.stdout[-1500:]} {done.stderr[-3000:]}")
        return done.stdout

    def guard(self, name: str) -> tuple[str, dict[str, str]]:
        """Register a guard; its token and signing key."""
        key = add_guard(self.data_dir / "guards.json", name)
        with transaction(self.engine) as connection:
            _, token = create_token(connection, name, ("policy", "ingest"), "", datetime.now(UTC))
        return token, key

    def wait(self, what: str, done: Callable[[Connection], bool], timeout_s: float = WAIT_S) -> None:
        """Poll the database until ``done``."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with transaction(self.engine) as connection:
                if done(connection):
                    return
            time.sleep(0.2)
        raise AssertionError(f"no {what} within {timeout_s:.0f} s; logs in {self.data_dir}/run")


@contextmanager
def running(*, settings: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Start ``tokenfuse up``, wait until it is ready, and stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tfstack"))
    folder.chmod(0o755)
    ports = {name: str(free_port()) for name in ("API_PORT", "UI_PORT", "FLINK_PORT", "DEMO_PORT")}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TOKENFUSE_")},
        "TOKENFUSE_SETTINGS": str(folder / "tokenfuse.toml"),
        "TOKENFUSE_DATA_DIR": str(folder / "data"),
        **{f"TOKENFUSE_{name}": port for name, port in ports.items()},
        **(settings or {}),
    }
    with (folder / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "up"], env=environment, stdout=log, stderr=log, start_new_session=True
        )
    stack = Stack(folder, environment, process, f"http://127.0.0.1:{ports['API_PORT']}")
    try:
        _connect(stack)
        yield stack
    finally:
        _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _connect(stack: Stack) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            if httpx.get(f"{stack.api_url}/readyz", timeout=2).is_success:
                break
        except httpx.HTTPError:
            pass
        if time.monotonic() > deadline or stack.process.poll() is not None:
            raise AssertionError(f"tokenfuse up is not ready: {(stack.folder / 'up.log').read_text()[-3000:]}")
        time.sleep(0.3)
    url = stack.command("db", "url").strip()
    stack.engine = open_engine(url)
    with transaction(stack.engine) as connection:
        _, token = create_token(connection, "stack admin", ("admin",), "", datetime.now(UTC))
    stack.api = httpx.Client(base_url=stack.api_url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def give_history(stack: Stack) -> None:
    """One busy hour on one A10G, closed, so that the running hour has unit rates."""
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    start = now - HISTORY
    with transaction(stack.engine) as connection:
        ensure_months(connection, [start, now])
        declare_service(connection, NodeService(POOL, TARGET, NODE, "A10G", 1, start - timedelta(minutes=15)), "bench")
    stack.api.post(
        "/v1/usage", json=[record(f"history-{i}", start + timedelta(seconds=i)) for i in range(3500)]
    ).raise_for_status()
    _engine_samples(stack, start, 120)
    stack.wait("usage of the history", lambda c: _count(c, "SELECT coalesce(sum(requests), 0) FROM usage_hour") >= 3500)
    stack.wait("engine minutes", lambda c: _count(c, "SELECT coalesce(sum(samples), 0) FROM engine_minute") >= 119)
    stack.wait("a level stream", lambda c: _count(c, "SELECT count(*) FROM stream_state WHERE catching_up") == 0)
    report = close_all(stack.engine, datetime.now(UTC), CloseSettings(grace=timedelta(0)))
    if not report.closed and not report.unchanged:
        raise AssertionError(f"no quarter hour could be closed: {report}")


def _count(connection: Connection, sql: str) -> int:
    return int(connection.execute(text(sql)).scalar_one())


def _engine_samples(stack: Stack, start: datetime, count: int) -> None:
    samples = []
    for i in range(count):
        at = start + timedelta(seconds=30 * i)
        done = 30 * i
        counters = {
            "prompt_tokens": 400 * done, "generation_tokens": 100 * done, "prompt_tokens_cached": 0,
            "prompt_tokens_computed": 400 * done,
            "requests_finished": done, "steps": 100 * done, "iteration_tokens": 500 * done, "preemptions": 0, "queue_us": 0,
            "prefill_us": 200_000 * done, "decode_us": 500_000 * done, "inference_us": 700_000 * done,
        }  # fmt: skip
        gauges = {"running": 1, "waiting": 0, "kv_usage_ppm": 100_000, "kv_capacity_tokens": 100_000}
        samples.append(
            EngineSample(
                EngineKey(TARGET, "0", POOL.model_id), at, POOL, NODE, process_started_at=start - timedelta(days=1),
                interval_ms=30_000, counters=counters, gauges=gauges,
            )
        )  # fmt: skip
    log = SpoolLog(stack.data_dir / "log", SpoolSettings(), lambda: datetime.now(UTC))
    log.append("engine", LogBatch([encode_line(s) for s in samples], [full_record(s, (), "bench") for s in samples]))
    log.close()


def record(request_id: str, at: datetime, *, team: str = "history", prompt: int = 400, output: int = 100) -> dict[str, Any]:
    """One usage record of a second's length on the bench's deployment."""
    return {
        "schema": "usage/1",
        "request_id": request_id,
        "started_at": (at - timedelta(seconds=1)).isoformat(),
        "finished_at": at.isoformat(),
        "deployment": {"cluster": POOL.cluster, "namespace": POOL.namespace, "model_id": POOL.model_id},
        "tenant": {"org": "bench", "team": team},
        "tokens": {"input_uncached": prompt, "output": output},
    }

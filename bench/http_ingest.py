"""HTTP batch accept: one uvicorn worker, batches of 500 usage records, fsynced by the spool before each answer.

``python -m bench.http_ingest`` prints JSON. The server runs in a process of its own over a real PostgreSQL and a real spool; the
clients send ready-made bodies over keep-alive connections, so the figure is the server's. Start-up and warm-up are apart.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing as mp
import socket
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

BATCH = 500
CLIENTS = 4
SECONDS = 8.0
WARM_UP_S = 2.0


NAME = b"@batch@"


def template(at: datetime) -> bytes:
    """One batch of 200 tenants and 8 models; ``NAME`` in its ids is replaced, so that the clients cost next to nothing."""
    started, first, finished = (t.isoformat() for t in (at, at + timedelta(milliseconds=300), at + timedelta(seconds=2)))
    return json.dumps(
        [
            {
                "schema": "usage/1", "request_id": f"chatcmpl-{NAME.decode()}-{i}", "started_at": started,
                "first_token_at": first, "finished_at": finished,
                "deployment": {"cluster": "c", "namespace": "n", "model_id": f"model-{i % 8}"},
                "tenant": {"org": "acme", "team": f"team-{i % 200}", "project": "", "user": "", "key_id": f"key-{i % 200}"},
                "tokens": {
                    "input_uncached": 900 + i, "input_cache_read": 100, "input_cache_write_5m": 0, "input_cache_write_1h": 0,
                    "output": 150, "output_reasoning": 0,
                },
                "usage_source": "exact", "status": "ok", "service_tier": "P1", "http_status": 200, "stream": True,
            }
            for i in range(BATCH)
        ]
    ).encode()  # fmt: skip


def serve(url: str, data_dir: str, port: int) -> None:
    """The API process."""
    import uvicorn

    from api.app import create_app, utc_now
    from api.settings import ApiSettings
    from eventlog.spool import SpoolLog, SpoolSettings
    from models.database import open_engine

    folder = Path(data_dir)
    log = SpoolLog(folder / "log", SpoolSettings(), utc_now)
    app = create_app(ApiSettings(data_dir=folder), open_engine(url), log)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


class Client(threading.Thread):
    """Sends batches until told to stop; notes when each was answered and how long it took."""

    def __init__(self, number: int, port: int, token: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.answers: list[tuple[float, float]] = []
        self._number, self._port, self._stop_it = number, port, stop
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        batch, number = template(datetime.now(UTC) - timedelta(seconds=10)), 0
        while not self._stop_it.is_set():
            data = batch.replace(NAME, f"{self._number}-{number}".encode())
            number += 1
            sent_s = time.perf_counter()
            connection.request("POST", "/v1/usage", data, self._headers)
            answer = connection.getresponse()
            counts = json.loads(answer.read())
            done_s = time.perf_counter()
            if answer.status != 202 or counts["accepted"] != BATCH:
                raise RuntimeError(f"{answer.status}: {str(counts)[:200]}")
            self.answers.append((done_s, done_s - sent_s))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(port: int, timeout_s: float = 60) -> None:
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("the API did not become ready")


def run(data_dir: Path, seconds: float = SECONDS, clients: int = CLIENTS) -> dict[str, Any]:
    """Measure; ``data_dir`` is an empty folder that the caller removes."""
    from models.access_repo import create_token
    from models.database import open_engine, start_embedded, stop_embedded, upgrade

    url = start_embedded(data_dir / "pg")
    upgrade(url)
    engine = open_engine(url)
    with engine.begin() as connection:
        token = create_token(connection, "bench", ("ingest",), "", datetime.now(UTC))[1]
    engine.dispose()
    port = free_port()
    server = mp.get_context("spawn").Process(target=serve, args=(url, str(data_dir), port))
    server.start()
    try:
        wait_until_ready(port)
        return measure(port, token, seconds, clients)
    finally:
        server.terminate()
        server.join(20)
        stop_embedded(data_dir / "pg")


def measure(port: int, token: str, seconds: float, clients: int) -> dict[str, Any]:
    stop = threading.Event()
    senders = [Client(n, port, token, stop) for n in range(clients)]
    for sender in senders:
        sender.start()
    time.sleep(WARM_UP_S)
    begun_s = time.perf_counter()
    time.sleep(seconds)
    ended_s = time.perf_counter()
    stop.set()
    for sender in senders:
        sender.join(60)
    took = sorted(took_s for s in senders for done_s, took_s in s.answers if begun_s <= done_s < ended_s)
    return {
        "what": "HTTP batch accept, fsynced",
        "batch": BATCH,
        "clients": clients,
        "records_per_s": round(len(took) * BATCH / (ended_s - begun_s)),
        "batch_ms_p50": round(took[len(took) // 2] * 1000, 1),
        "batch_ms_p95": round(took[int(len(took) * 0.95)] * 1000, 1),
        "batches": len(took),
    }


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tfbench") as folder:
        Path(folder).chmod(0o755)
        json.dump(run(Path(folder)), sys.stdout)


if __name__ == "__main__":
    main()

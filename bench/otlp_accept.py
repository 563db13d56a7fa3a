"""OTLP accept rate: batches of 512 spans of model calls, protobuf and gzip, fsynced by the spool before each answer.

``python -m bench.otlp_accept`` prints JSON. One uvicorn worker in a process of its own over a real PostgreSQL and a real spool;
the clients send bodies packed beforehand over keep-alive connections, every span under an id of its own: the figure is the
server's.
"""

from __future__ import annotations

import gzip
import http.client
import itertools
import json
import multiprocessing as mp
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.figures import Figure, Row, percentile
from bench.http_ingest import free_port, serve, wait_until_ready
from bench.scratch import scratch
from models.access_repo import create_token
from models.database import open_engine, start_embedded, stop_embedded, upgrade

BATCH = 512
"""What a batch span processor exports at once."""
CLIENTS = 2
SECONDS, QUICK_SECONDS = 15.0, 3.0
WARM_UP_S = 2.0
MARK = b"@@@@@@@@"
"""In every trace id of the template; replaced by the batch's number."""
MOST_PER_S = 15_000
"""Bodies are packed for this rate; a faster server would run out and say so."""
ATTRIBUTES: dict[str, Any] = {
    "gen_ai.operation.name": "chat", "gen_ai.provider.name": "vllm", "gen_ai.request.model": "model-{n}",
    "gen_ai.response.model": "model-{n}", "gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 150,
    "gen_ai.usage.cache_read.input_tokens": 640, "gen_ai.response.finish_reasons": "stop", "gen_ai.request.max_tokens": 512,
    "gen_ai.request.temperature": 0.7, "server.address": "vllm.llm.svc", "server.port": 8000,
    "gen_ai.conversation.id": "conv-{n}", "enduser.id": "user-{n}", "tokenfuse.team": "team-{n}",
    "gen_ai.response.time_to_first_chunk": 0.3,
}  # fmt: skip


def template(at: datetime) -> bytes:
    """One export request of ``BATCH`` spans of 8 models and 200 teams."""
    request = ExportTraceServiceRequest()
    block = request.resource_spans.add()
    block.resource.attributes.add(key="service.name").value.string_value = "bench"
    spans = block.scope_spans.add().spans
    end_ns = int(at.timestamp() * 1_000_000) * 1000
    for number in range(BATCH):
        span = spans.add(
            trace_id=MARK + number.to_bytes(8, "big"), span_id=(number + 1).to_bytes(8, "big"), name="chat", kind=3,
            start_time_unix_nano=end_ns - 2_000_000_000, end_time_unix_nano=end_ns,
        )  # fmt: skip
        for key, value in ATTRIBUTES.items():
            given = span.attributes.add(key=key).value
            if isinstance(value, str):
                given.string_value = value.format(n=number % (8 if "model" in key else 200))
            elif isinstance(value, int):
                given.int_value = value
            else:
                given.double_value = value
    return request.SerializeToString()


def bodies(count: int) -> list[bytes]:
    whole = template(datetime.now(UTC) - timedelta(minutes=1))
    return [gzip.compress(whole.replace(MARK, (number + 1).to_bytes(8, "big")), 1) for number in range(count)]


class Client(threading.Thread):
    """Sends the next body until told to stop; notes when each was answered and how long it took."""

    def __init__(self, port: int, token: str, packed: list[bytes], numbers: itertools.count[int], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.answers: list[tuple[float, float]] = []
        self.fault = ""
        self._port, self._packed, self._numbers, self._stop_it = port, packed, numbers, stop
        self._headers = {
            "authorization": f"Bearer {token}", "content-type": "application/x-protobuf", "content-encoding": "gzip",
        }  # fmt: skip

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._stop_it.is_set():
            number = next(self._numbers)
            if number >= len(self._packed):
                self.fault = "the bodies ran out"
                return
            sent_s = time.perf_counter()
            connection.request("POST", "/v1/traces", self._packed[number], self._headers)
            answer = connection.getresponse()
            body = answer.read()
            done_s = time.perf_counter()
            if answer.status != 200 or body:
                self.fault = f"{answer.status}: {body[:200]!r}"
                return
            self.answers.append((done_s, done_s - sent_s))


def run(data_dir: Path, seconds: float) -> dict[str, Any]:
    """Measure; ``data_dir`` is an empty folder that the caller removes."""
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
        packed = bodies(int((seconds + WARM_UP_S) * MOST_PER_S / BATCH))
        wait_until_ready(port)
        return burst(port, token, packed, seconds, psutil.Process(server.pid))
    finally:
        server.terminate()
        server.join(20)
        stop_embedded(data_dir / "pg")


def burst(port: int, token: str, packed: list[bytes], seconds: float, server: psutil.Process) -> dict[str, Any]:
    stop, numbers = threading.Event(), itertools.count()
    senders = [Client(port, token, packed, numbers, stop) for _ in range(CLIENTS)]
    for sender in senders:
        sender.start()
    time.sleep(WARM_UP_S)
    begun_s, used_s = time.perf_counter(), _cpu_s(server)
    time.sleep(seconds)
    ended_s, used_s = time.perf_counter(), _cpu_s(server) - used_s
    stop.set()
    for sender in senders:
        sender.join(60)
        if sender.fault:
            raise RuntimeError(sender.fault)
    took = [took_s for s in senders for done_s, took_s in s.answers if begun_s <= done_s < ended_s]
    return {
        "batch": BATCH,
        "clients": CLIENTS,
        "spans_per_cpu_s": round(len(took) * BATCH / used_s),
        "spans_per_s": round(len(took) * BATCH / (ended_s - begun_s)),
        "batch_ms_p50": round(percentile(took, 0.5) * 1000, 1),
        "batch_ms_p95": round(percentile(took, 0.95) * 1000, 1),
        "batches": len(took),
    }


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def decode_share() -> tuple[float, float]:
    """Microseconds of process time a span: decoding alone, and decoding and making its row."""
    from ingest.otlp import decode
    from ingest.otlp.genai_spans import span_rows
    from ingest.usage.rows import SourceOptions

    body, rounds = template(datetime.now(UTC)), 10
    options = SourceOptions()
    span_rows(decode.spans_of(body), options)
    begun_s = time.process_time()
    for _ in range(rounds):
        spans = decode.spans_of(body)
    decoded_s = time.process_time()
    for _ in range(rounds):
        span_rows(spans, options)
    done_s = time.process_time()
    each = rounds * BATCH / 1e6
    return (decoded_s - begun_s) / each, (done_s - begun_s) / each


def measure(*, quick: bool) -> Row:
    with scratch() as folder:
        found = run(folder, QUICK_SECONDS if quick else SECONDS)
    decoding_us, rows_us = decode_share()
    return Row(
        "otlp", "OTLP traces accepted, fsynced",
        f"{CLIENTS} clients, batches of {BATCH} spans of {len(ATTRIBUTES)} attributes, protobuf, gzip; 8 models x 200 teams",
        (
            Figure("accepted", found["spans_per_s"], "spans/s", floor=5_000),
            Figure("accepted per CPU second of the server", found["spans_per_cpu_s"], "spans", floor=5_000),
            Figure("batch p50", found["batch_ms_p50"], "ms", "less"),
            Figure("batch p95", found["batch_ms_p95"], "ms", "less"),
        ),
        f"of a span's time {decoding_us:.0f} µs decode it and {rows_us - decoding_us:.0f} µs make its record; the rest is HTTP, "
        "verdicts and the log",
        None, found,
    )  # fmt: skip


def main() -> None:
    with scratch() as folder:
        json.dump(run(folder, SECONDS), sys.stdout)


if __name__ == "__main__":
    main()

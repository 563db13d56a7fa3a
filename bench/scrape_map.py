"""What one core spends on a target: page bytes → canonical samples → log line, and the HTTP scrape before it.

Bar: 1,000 targets at 15 s on one core, that is 15 ms a target.
"""

from __future__ import annotations

import http.server
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.figures import Figure, Row
from bench.scratch import scratch
from core.ports import Page
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.engine.families import read_series
from ingest.engine.names import name_table
from ingest.engine.parse import Origin, parse_page
from ingest.engine.scraper import LivePages, ScrapeSettings, Target
from ingest.engine.service import EngineIngest

TARGETS, EVERY_S = 1_000, 15.0
BAR_MS = EVERY_S * 1000 / TARGETS
BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
HISTOGRAMS = (
    "time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
    "request_inference_time_seconds", "request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens",
    "request_params_max_tokens", "request_params_n", "request_prefill_kv_computed_tokens", "iteration_tokens_total",
)  # fmt: skip
COUNTERS = (
    "prompt_tokens_total", "generation_tokens_total", "prefix_cache_queries_total", "prefix_cache_hits_total",
    "num_preemptions_total", "prompt_tokens_cached_total",
)  # fmt: skip


def vllm_page(step: int) -> bytes:
    """A page of the size and make of vLLM 0.33's: 15 histograms, one engine, process and HTTP families."""
    labels = 'engine="0",model_name="org/model-32b"'
    lines = [f"process_start_time_seconds 1.79603946882e+09\nvllm:num_requests_running{{{labels}}} {step % 7}.0"]
    lines += [f"vllm:num_requests_waiting{{{labels}}} 0.0\nvllm:kv_cache_usage_perc{{{labels}}} 0.25"]
    for name in COUNTERS:
        lines.append(f"# HELP vllm:{name} Number of tokens.\n# TYPE vllm:{name} counter\nvllm:{name}{{{labels}}} {1000 * step}.0")
        lines.append(f"# TYPE vllm:{name[:-6]}_created gauge\nvllm:{name[:-6]}_created{{{labels}}} 1.7960395122291539e+09")
    for source in ("local_compute", "local_cache_hit", "external_kv_transfer"):
        lines.append(f'vllm:prompt_tokens_by_source_total{{{labels},source="{source}"}} {300 * step}.0')
    for reason in ("stop", "length", "abort", "error", "repetition"):
        lines.append(f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="org/model-32b"}} {step}.0')
    for name in HISTOGRAMS:
        lines.append(f"# HELP vllm:{name} Histogram.\n# TYPE vllm:{name} histogram")
        lines += [f'vllm:{name}_bucket{{engine="0",le="{le}",model_name="org/model-32b"}} {step}.0' for le in (*BUCKETS, "+Inf")]
        lines.append(f"vllm:{name}_count{{{labels}}} {step}.0\nvllm:{name}_sum{{{labels}}} {step}.0")
    lines.append('vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="566944",num_gpu_blocks="35434"} 1.0')
    return ("\n".join(lines) + "\n").encode()


def dcgm_page(step: int, gpus: int = 8) -> bytes:
    """A node of eight GPUs, as dcgm-exporter shows it on Kubernetes."""
    names = ("SM_CLOCK", "MEM_CLOCK", "GPU_TEMP", "POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION", "GPU_UTIL", "FB_USED", "FB_FREE")
    lines = []
    for name in names:
        lines.append(f"# TYPE DCGM_FI_DEV_{name} gauge")
        lines += [f'DCGM_FI_DEV_{name}{{gpu="{n}",UUID="GPU-{n}",Hostname="node-1",pod="p-{n}",namespace="prod"}} {step % 90}'
                  for n in range(gpus)]  # fmt: skip
    lines += [f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="{n}",UUID="GPU-{n}",Hostname="node-1"}} 0.5' for n in range(gpus)]
    return ("\n".join(lines) + "\n").encode()


def measure(*, quick: bool) -> Row:
    rounds = 60 if quick else 400
    engine, gpu = vllm_page(1), dcgm_page(1)
    with scratch() as folder:
        _mapped_ms(folder / "warm", vllm_page, 10)
        engine_ms, gpu_ms = _mapped_ms(folder / "vllm", vllm_page, rounds), _mapped_ms(folder / "dcgm", dcgm_page, rounds)
    scrape_ms = _scraped_ms(engine, max(3, rounds // 20))
    parser_ms, map_ms = _parts_ms(engine, rounds)
    whole_ms = engine_ms + scrape_ms
    figures = (
        Figure(
            "one target: scrape, map, log",
            whole_ms,
            "ms of one core",
            "less",
            BAR_MS,
            BAR_MS / 2,
            parser_ms,
            "prometheus_client alone",
        ),
        Figure("targets at 15 s on one core", EVERY_S * 1000 / whole_ms, "targets", "more", TARGETS, 2 * TARGETS),
        Figure("of it: page → canonical samples → fsynced log line", engine_ms, "ms", "less"),
        Figure("of it: HTTP on loopback, the serving side's share too", scrape_ms, "ms", "less"),
        Figure("one GPU exporter of 8 GPUs: map and log", gpu_ms, "ms", "less"),
    )
    profile = (
        f"of a vLLM page's {engine_ms:.2f} ms: choosing lines and parsing {map_ms:.2f}, the rest memory, lines and the spool"
    )
    lines = len(engine.splitlines())
    load = f"a vLLM page of {len(engine):,} bytes in {lines:,} lines, a DCGM page of {len(gpu):,} bytes, {rounds} rounds"
    return Row("scrape", "Scrape and map one target", load, figures, profile)


def _mapped_ms(folder: Path, page: Callable[[int], bytes], rounds: int) -> float:
    """CPU milliseconds per page through the ingest into a spool, 50 targets at a time."""
    log = SpoolLog(folder, SpoolSettings(reserve_bytes=0, reserve_percent=0), lambda: datetime.now(UTC))
    ingest = EngineIngest(log, lambda: datetime.now(UTC), lambda _: None)
    start, batch, spent = datetime.now(UTC), 50, 0.0
    for n in range(max(1, rounds // batch)):
        body = page(n + 1)
        at = start + timedelta(seconds=n)
        names = [f"http://host-{t}:8000/metrics" for t in range(batch)]
        pages = [(Page(name, at, body, "text/plain"), Origin("c", "n", "node")) for name in names]
        before = time.process_time()
        ingest.take(pages)
        spent += time.process_time() - before
    log.close()
    shutil.rmtree(folder)
    return spent / (max(1, rounds // batch) * batch) * 1000


def _parts_ms(body: bytes, rounds: int) -> tuple[float, float]:
    """The peer: prometheus_client's parser on the whole page; and our reading of the page alone."""
    from prometheus_client.parser import text_string_to_metric_families

    text, page = body.decode(), Page("http://host:8000/metrics", datetime.now(UTC), body, "text/plain")
    before = time.process_time()
    for _ in range(rounds // 4):
        list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]
    parser_ms = (time.process_time() - before) / (rounds // 4) * 1000
    parse_page(page, Origin())
    before = time.process_time()
    for _ in range(rounds):
        read_series(body, "text/plain", "bench", name_table().is_wanted)
    return parser_ms, (time.process_time() - before) / rounds * 1000


def _scraped_ms(body: bytes, rounds: int) -> float:
    """CPU milliseconds of this process per page asked for over HTTP (client and server threads together)."""
    with _served(body) as port:
        targets = [Target(f"http://127.0.0.1:{port}/{n}") for n in range(20)]
        source = LivePages(targets, ScrapeSettings(workers=8), lambda: datetime.now(UTC))
        list(source.pages())
        before, count = time.process_time(), 0
        for _ in range(rounds):
            count += len(list(source.pages()))
        spent = time.process_time() - before
        source.close()
    return spent / count * 1000


@contextmanager
def _served(body: bytes) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

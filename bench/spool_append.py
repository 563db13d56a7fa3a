"""Appends and records per second of the spool, every append fsynced before it returns, by batch size and number of threads.

Run: ``python -m bench.spool_append [--seconds S] [--folder DIR]``; prints JSON. A warm-up of the same load comes first and is
not counted. ``fsync_ms`` is the median of one bare fdatasync after a 200-byte write on the same disk, to compare ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from core.ports import LogBatch
from eventlog.manifest import segments
from eventlog.spool import SpoolLog, SpoolSettings

LINE = (
    "chatcmpl-{n:032x}:chat,1764500000000,1764500009000,prod,llm,qwen3-32b,acme,search,rag,u{n},k1,P1,ok,exact,0,"
    "900,300,0,0,250,40,9500,0,1"
)
RECORD = b'{"schema":"usage/1","request_id":"x","pad":"' + b"x" * 850 + b'"}'


def run(folder: Path, batch_size: int, threads: int, seconds: float) -> dict[str, float]:
    log = SpoolLog(folder, SpoolSettings(reserve_bytes=0, reserve_percent=0), lambda: datetime.now(UTC))
    batch = LogBatch([LINE.format(n=n) for n in range(batch_size)], [RECORD] * batch_size)
    _load(log, batch, threads, seconds / 4)
    took, latencies_s = _load(log, batch, threads, seconds)
    log.close()
    latencies_s.sort()
    return {
        "batch": batch_size,
        "threads": threads,
        "appends_per_s": round(len(latencies_s) / took),
        "records_per_s": round(len(latencies_s) * batch_size / took),
        "p50_ms": round(latencies_s[len(latencies_s) // 2] * 1000, 2),
        "p99_ms": round(latencies_s[len(latencies_s) * 99 // 100] * 1000, 2),
        "segments": len(segments(folder, "usage", "000001")),
    }


def _load(log: SpoolLog, batch: LogBatch, threads: int, seconds: float) -> tuple[float, list[float]]:
    latencies_s: list[float] = []
    start = time.perf_counter()

    def send() -> None:
        before = time.perf_counter()
        while before < start + seconds:
            log.append("usage", batch)
            after = time.perf_counter()
            latencies_s.append(after - before)
            before = after

    workers = [threading.Thread(target=send) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - start, latencies_s


def bare_fsync_ms(folder: Path) -> float:
    """What the disk itself takes."""
    times_s = []
    with (folder / "bare").open("wb") as file:
        for _ in range(200):
            before = time.perf_counter()
            os.write(file.fileno(), b"x" * 200)
            os.fdatasync(file.fileno())
            times_s.append(time.perf_counter() - before)
    return round(statistics.median(times_s) * 1000, 3)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=2.0)
    arguments.add_argument("--folder", type=Path, default=None)
    chosen = arguments.parse_args()
    base = Path(tempfile.mkdtemp(prefix="spoolbench", dir=chosen.folder))
    rows = []
    for batch_size in (1, 100, 1000):
        for threads in (1, 8):
            rows.append(run(base / f"{batch_size}x{threads}", batch_size, threads, chosen.seconds))
            shutil.rmtree(base / f"{batch_size}x{threads}")
    machine = {"cpus": os.cpu_count(), "system": platform.platform(), "fsync_ms": bare_fsync_ms(base)}
    record_bytes = {"line": len(LINE.format(n=0)), "record": len(RECORD)}
    shutil.rmtree(base)
    print(json.dumps({"bench": "spool_append", "machine": machine, "bytes": record_bytes, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

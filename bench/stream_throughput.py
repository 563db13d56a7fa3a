"""Log file → Flink (dedupe, slices) → delta files → rollups, in records a second, beside DuckDB reading the same file once.

Start-up is apart: one line goes through first, then all segments become visible at once and the clock runs until the last
line is committed. ``python -m bench.stream_throughput DATA [LINES]``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from sqlalchemy import Engine, text

from bench.machine import Cores
from core.usage import LINE_COLUMNS, encode_line
from models.database import open_engine, start_embedded, stop_embedded, upgrade
from streaming.settings import StreamSettings

LINES = 1_000_000
PER_SEGMENT = 50_000
TENANTS, MODELS = 200, 8
DUPLICATES = 0.03
START_MS = 1_796_000_000_000
RECORDS_PER_SECOND_OF_TRAFFIC = 500
GIVE_UP_S = 1_200.0
PROBES = 20


def run(data_dir: Path, lines: int = LINES) -> dict[str, Any]:
    """Generate ``lines`` usage lines in ``data_dir`` (emptied first), stream them, compare; rates in records a second."""
    shutil.rmtree(data_dir, ignore_errors=True)
    data_dir.mkdir(parents=True)
    _write_log(data_dir / "staged", lines)
    used_before = sum(os.times()[:2])
    duck_s, distinct = _duckdb_once(data_dir / "staged")
    duck_cpu_s = sum(os.times()[:2]) - used_before
    url = start_embedded(data_dir / "pg")
    upgrade(url)
    engine = open_engine(url)
    try:
        measured = _stream(data_dir, url, engine, lines)
        with engine.connect() as connection:
            query = "SELECT sum(requests) FROM usage_day WHERE org NOT LIKE 'probe%'"
            counted = int(connection.execute(text(query)).scalar_one())
            files = connection.execute(text("SELECT kind, count(*), sum(rows)::bigint FROM applied_file GROUP BY kind")).all()
    finally:
        engine.dispose()
        stop_embedded(data_dir / "pg")
    return {
        "lines": lines, "distinct_ids": distinct, "counted": counted, "exact": counted == distinct, **measured,
        "duckdb_records_per_s": round(lines / duck_s), "times_duckdb": round(lines / duck_s / measured["records_per_s"], 1),
        "duckdb_cpu_s_per_million": round(duck_cpu_s / lines * 1e6, 1),
        "dedupe": "on, one state key a record", "delta_files": {kind: {"files": n, "rows": rows} for kind, n, rows in files},
    }  # fmt: skip


def _write_log(folder: Path, lines: int) -> None:
    folder.mkdir(parents=True)
    rnd = random.Random(1)
    made = _lines(rnd, lines)
    for number in range(-(-lines // PER_SEGMENT)):
        count = min(PER_SEGMENT, lines - number * PER_SEGMENT)
        segment = f"aaaaaaaa-{number + 1:012d}"
        with (folder / f"{segment}.{count}.csv").open("w") as file:
            for _ in range(count):
                file.write(f"{next(made)},{segment}\n")


def _lines(rnd: random.Random, lines: int) -> Iterator[str]:
    for i in range(lines):
        finished = START_MS + i * 1000 // RECORDS_PER_SECOND_OF_TRAFFIC + rnd.randrange(2_000)
        duration = min(int(rnd.expovariate(1 / 4_000)) + 1, 3_600_000)
        tenant, output = int(TENANTS * rnd.random() ** 3), int(rnd.expovariate(1 / 250))
        is_repeat = i > 0 and rnd.random() < DUPLICATES
        yield encode_line(
            (
                f"chatcmpl-{rnd.randrange(i) if is_repeat else i:032x}", finished - duration * 9 // 10, finished,
                "c1", "ns", f"model-{int(MODELS * rnd.random() ** 2)}", f"org{tenant % 10}", f"team{tenant}", "project",
                f"user{tenant}", f"key{tenant}", "P1", "ok", "exact", 0, rnd.randrange(10, 6_000), rnd.choice((0, 0, 512)), 0, 0,
                output, output // 4, duration, 0, 1, 1,
            )
        )  # fmt: skip


def _duckdb_once(folder: Path) -> tuple[float, int]:
    """Seconds to read, dedupe and group the same lines by minute and keys, and the number of distinct ids."""
    names = [*LINE_COLUMNS, "segment"]
    columns = "{" + ", ".join(f"'{n}': '{'VARCHAR' if _is_text(n) else 'BIGINT'}'" for n in names) + "}"
    sums = ", ".join(f"sum({n})" for n in LINE_COLUMNS[15:22])
    query = f"""SELECT finished_ms // 60000, {", ".join(LINE_COLUMNS[3:15])}, count(*), {sums}
        FROM (SELECT * FROM read_csv('{folder}/*.csv', header = false, columns = {columns}, quote = '"')
              QUALIFY row_number() OVER (PARTITION BY request_id ORDER BY segment) = 1) GROUP BY ALL"""
    with duckdb.connect() as connection:
        started = time.perf_counter()
        rows = connection.execute(query).fetchall()
        return time.perf_counter() - started, sum(row[13] for row in rows)


def _is_text(name: str) -> bool:
    return name in ("request_id", "segment", *LINE_COLUMNS[3:14])


def _stream(data_dir: Path, url: str, engine: Engine, lines: int) -> dict[str, Any]:
    settings = data_dir / "settings.json"
    settings.write_text(StreamSettings(data_dir, url, heap_mb=3_072).to_json())
    with (data_dir / "run.log").open("wb") as output:
        command = [sys.executable, "-m", "streaming.run", str(settings)]
        process = subprocess.Popen(
            command, cwd=Path(__file__).parent.parent, stdout=output, stderr=output, start_new_session=True
        )
    try:
        folder = data_dir / "log/usage/000001"
        folder.mkdir(parents=True, exist_ok=True)
        _put_probe(folder, 0)
        start_up_s = _until_applied(engine, 1, process)
        before, cores = _profile(data_dir), Cores(process.pid, data_dir)
        for path in sorted((data_dir / "staged").iterdir()):
            path.rename(folder / path.name)
        streamed_s = _until_applied(engine, lines + 1, process)
        shares = cores.shares()
        after = _profile(data_dir)
        visible = _latency(data_dir, engine)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    busy = {name: round((ms - before["busy_ms"][name]) / 1000 / streamed_s, 2) for name, ms in after["busy_ms"].items()}
    return {
        "records_per_s": round(lines / streamed_s), "start_up_s": round(start_up_s, 1), "streamed_s": round(streamed_s, 1),
        "cpu_s_per_million": {part: round(share * streamed_s / lines * 1e6, 1) for part, share in shares.items()},
        "profile": {
            "busy_cores": dict(sorted(busy.items(), key=lambda pair: -pair[1])),
            "state_bytes": after["state_bytes"], "checkpoint_ms": after["checkpoint_ms"],
        },
        **visible,
    }  # fmt: skip


def _until_applied(engine: Engine, lines: int, process: subprocess.Popen[bytes]) -> float:
    """Seconds from now until that many lines in all are committed."""
    started = time.perf_counter()
    query = text("SELECT coalesce(sum(lines), 0) FROM segment_progress")
    while (elapsed := time.perf_counter() - started) < GIVE_UP_S and process.poll() is None:
        with engine.connect() as connection:
            if int(connection.execute(query).scalar_one()) >= lines:
                return elapsed
        time.sleep(0.1)
    raise RuntimeError("the stream did not finish; read run.log and run/flink.log in the data folder")


def _put_probe(folder: Path, number: int) -> str:
    """Make a segment of one line visible; returns the org it belongs to."""
    segment, org = f"bbbbbbbb-{number + 1:012d}", f"probe{number}"
    names, counts = ("c1", "ns", "m", org, "", "", "", "", "P1", "ok", "exact", 0), (1, 0, 0, 0, 1, 0, 1, 0, 1, 1)
    (folder / f".{segment}").write_text(f"{encode_line((f'probe-{number}', START_MS, START_MS, *names, *counts))},{segment}\n")
    (folder / f".{segment}").rename(folder / f"{segment}.1.csv")
    return org


def _latency(data_dir: Path, engine: Engine) -> dict[str, Any]:
    """Seconds from a one-line segment's rename to its row in ``usage_minute``, in the running job."""
    folder, waits = data_dir / "log/usage/000001", []
    for i in range(1, PROBES + 1):
        tenant = _put_probe(folder, i)
        started = time.perf_counter()
        while not _is_counted(engine, tenant) and time.perf_counter() - started < 60:
            time.sleep(0.02)
        waits.append(time.perf_counter() - started)
    waits.sort()
    return {
        "visible_to_rollup_p50_s": round(waits[PROBES // 2], 2),
        "visible_to_rollup_p95_s": round(waits[PROBES * 95 // 100], 2),
    }


def _is_counted(engine: Engine, org: str) -> bool:
    with engine.connect() as connection:
        query = text("SELECT 1 FROM usage_minute WHERE minute = :at AND org = :org")
        at = datetime.fromtimestamp(START_MS // 60_000 * 60, UTC)
        return connection.execute(query, {"at": at, "org": org}).scalar() is not None


def _profile(data_dir: Path) -> dict[str, Any]:
    """Milliseconds each chain of operators was busy so far, over its subtasks, by Flink's own clocks; state and checkpoint."""
    base = f"http://127.0.0.1:{(data_dir / 'run/flink.port').read_text()}/jobs"
    job = _get(f"{base}/overview")["jobs"][0]["jid"]
    busy = {v["name"][:90]: v["metrics"]["accumulated-busy-time"] for v in _get(f"{base}/{job}")["vertices"]}
    while not (latest := _get(f"{base}/{job}/checkpoints")["latest"]["completed"]):
        time.sleep(0.2)  # the endpoint may lag behind the files of the first checkpoint
    return {"busy_ms": busy, "state_bytes": latest["state_size"], "checkpoint_ms": latest["end_to_end_duration"]}


def _get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as response:
        found: dict[str, Any] = json.load(response)
        return found


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), *(int(n) for n in sys.argv[2:3])), indent=1))

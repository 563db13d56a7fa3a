"""Commands cut off at the worst moment: what they did counts once, what they left is done by the next run."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, text
from tokenfuse_command import Tokenfuse
from waiting import wait_for

from models.database import open_engine

pytestmark = [pytest.mark.e2e, pytest.mark.flink]

RECORDS = 300_000
TRACE = ("--format", "azure-llm", "--deployment", "c/n/trace", "--tenant", "azure")


@pytest.fixture(scope="module")
def big_file(tokenfuse: Tokenfuse) -> Path:
    """More than one command reads in a few seconds; input and output of record i are i and i % 7."""
    file = tokenfuse.folder / "big.jsonl"
    with file.open("w") as out:
        for i in range(RECORDS):
            place = '"deployment": {"cluster": "c", "namespace": "n", "model_id": "big"}, "tenant": {"org": "o"}'
            times = '"started_at": "2026-11-30T10:00:00Z", "finished_at": "2026-11-30T10:00:01Z"'
            out.write(f'{{"request_id": "big-{i}", {times}, {place}, "tokens": {{"input_uncached": {i}, "output": {i % 7}}}}}\n')
    return file


@pytest.fixture(scope="module")
def db(tokenfuse: Tokenfuse) -> Iterator[Engine]:
    tokenfuse.run("db", "upgrade")
    engine = open_engine(tokenfuse.run("db", "url").stdout.strip())
    yield engine
    engine.dispose()


def visible_segments(tokenfuse: Tokenfuse) -> int:
    return len(list((tokenfuse.folder / "data/log/usage").glob("*/*.csv")))


def applied_lines(db: Engine) -> int:
    with db.connect() as connection:
        return int(connection.execute(text("SELECT coalesce(sum(lines), 0) FROM segment_progress")).scalar_one())


def totals(tokenfuse: Tokenfuse, model: str) -> tuple[int, int, int]:
    (row,) = tokenfuse.json("show", "usage", "--by", "model_id", "--where", f"model_id={model}")
    return row["requests"], row["input_uncached"], row["output"]


def test_ctrl_c_in_a_big_file_ends_cleanly_and_the_next_run_takes_the_rest(
    tokenfuse: Tokenfuse, db: Engine, big_file: Path
) -> None:
    reading = tokenfuse.start("ingest", "usage", str(big_file), "--format", "usage")
    wait_for("the first segments", lambda: visible_segments(tokenfuse) > 0)
    reading.send_signal(signal.SIGINT)
    _, told = reading.communicate(timeout=60)
    assert reading.returncode == 1, told
    assert "stopped" in told
    assert "Traceback" not in told
    assert not list((tokenfuse.folder / "data/log/usage").glob("*/.open/*")), "what was acknowledged is visible"
    report = tokenfuse.json("ingest", "usage", str(big_file), "--format", "usage")
    assert (report["rows"], report["quarantined"]) == (RECORDS, 0)
    assert report["accepted"] + report["duplicate"] == RECORDS


def test_kill_9_of_the_stream_half_way_loses_and_repeats_nothing(tokenfuse: Tokenfuse, db: Engine, realdata: Path) -> None:
    trace = realdata / "traces/azure_llm_2023/AzureLLMInferenceTrace_code.csv"
    tokenfuse.run("ingest", "usage", str(trace), *TRACE)
    waiting = sum(int(path.name.split(".")[1]) for path in (tokenfuse.folder / "data/log/usage").glob("*/*.csv"))
    stream = tokenfuse.start("stream", "run")
    wait_for("the first lines in the database", lambda: applied_lines(db) > 0)
    kill_whole(stream, tokenfuse.folder / "data/run/stream-job.json")
    assert 0 < applied_lines(db) < waiting, "half-way"
    tokenfuse.run("ingest", "usage", str(trace), *TRACE)
    tokenfuse.run("stream", "run", "--until-idle", timeout=900)
    with trace.open() as file:
        rows = list(csv.DictReader(file))
    wanted = (len(rows), sum(int(r["ContextTokens"]) for r in rows), sum(int(r["GeneratedTokens"]) for r in rows))
    assert totals(tokenfuse, "trace") == wanted
    assert totals(tokenfuse, "big") == (RECORDS, sum(range(RECORDS)), sum(i % 7 for i in range(RECORDS)))


def kill_whole(stream: subprocess.Popen[str], job_note: Path) -> None:
    """kill -9 of the command and of the job's own process group, at once."""
    job = json.loads(job_note.read_text())["group"]
    os.killpg(stream.pid, signal.SIGKILL)
    os.killpg(job, signal.SIGKILL)
    stream.communicate()
    wait_for("the end of the job", lambda: not psutil.pid_exists(job) or psutil.Process(job).status() == psutil.STATUS_ZOMBIE)

"""The commands on a real Prometheus: history read back with its coverage, found engines followed without a restart, doctor."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from prometheus_server import Pages, Prometheus, free_port
from remote_write import write
from sqlalchemy import Engine, text

from core.engine import EngineSample
from core.engine_fold import FoldState, fold, parse_line
from core.usage import Deployment
from core.windows import epoch_ms
from eventlog.spool import SpoolLog, SpoolSettings

pytestmark = pytest.mark.prometheus
MINUTE_MS = 60_000
DAYS = 2
HOLE = range(20 * 60, 21 * 60)
"""Minutes before the present in which the server stored nothing."""


class Command:
    """The real command on a folder and database of its own."""

    def __init__(self, folder: Path, db_url: str) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TOKENFUSE_")},
            "TOKENFUSE_SETTINGS": str(folder / "tokenfuse.toml"),
            "TOKENFUSE_DATA_DIR": str(folder / "data"),
            "TOKENFUSE_DB_URL": db_url,
            "TOKENFUSE_MIN_FREE_MB": "1",
            "TOKENFUSE_DEFAULT_RATES": "false",
        }

    def settings(self, body: str) -> None:
        (self.folder / "tokenfuse.toml").write_text(body)

    def json(self, *words: str, expect: int = 0) -> Any:
        command = [sys.executable, "-m", "cli.main", *words, "--json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == expect, done.stderr[-3000:]
        return json.loads(done.stdout)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "cli.main", *words]
        with (self.folder / "process.log").open("ab") as log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def lines(self, topic: Any) -> list[str]:
        log = SpoolLog(self.folder / "data" / "log", SpoolSettings(reserve_bytes=1), lambda: datetime.now(UTC))
        try:
            return [line.line for line in log.read(topic, limit=10**9)]
        finally:
            log.close()

    def samples(self) -> list[EngineSample]:
        return [parse_line(fields) for fields in csv.reader(self.lines("engine"))]


def folded(samples: list[EngineSample]) -> int:
    states: dict[object, FoldState] = {}
    total = 0
    for sample in samples:
        states[sample.key], deltas = fold(states.get(sample.key), sample)
        total += sum(delta.measures["prompt_tokens"] for delta in deltas)
    return total


@pytest.fixture
def command(tmp_path: Path, db_url: str) -> Command:
    return Command(tmp_path, db_url)


@pytest.fixture(scope="module")
def now_ms() -> int:
    """The present when these tests begin; a whole run has begun long before."""
    return epoch_ms(datetime.now(UTC)) // MINUTE_MS * MINUTE_MS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, now_ms: int) -> Iterator[Prometheus]:
    """One engine whose counter grows by 7 a minute for two days, restarts after one, and has an hour without a sample."""
    found = Prometheus(tmp_path_factory.mktemp("prometheus"), "  []\nstorage: {tsdb: {out_of_order_time_window: 30d}}\n")
    target = {"job": "vllm", "instance": "gpu-1:8000"}
    minutes = [m for m in range(DAYS * 1440, 0, -1) if m not in HOLE]
    restart = 1440
    value = {m: 7 * (DAYS * 1440 - m if m > restart else restart - m) for m in minutes}
    try:
        found.start("--web.enable-remote-write-receiver")
        at = {m: now_ms - m * MINUTE_MS for m in minutes}
        engine = {"__name__": "vllm:prompt_tokens_total", "model_name": "m", "engine": "0", **target}
        write(found.url, [(engine, [(at[m], float(value[m])) for m in minutes])])
        write(found.url, [({"__name__": "up", **target}, [(at[m], 1.0) for m in minutes])])
        yield found
    finally:
        found.kill()


TOTAL = 7 * (1440 - 1) + 7 * (1440 - 1)
"""Of the first process up to its last sample, and of the second up to its last."""


def block(server: Prometheus, since: str = "1h") -> str:
    return f'[[prometheus]]\nname = "main"\nurl = "{server.url}"\nsince = "{since}"\nlag_s = 0\n'


def test_history_is_read_back_with_its_coverage_per_day(command: Command, server: Prometheus) -> None:
    command.settings(block(server))
    rows = command.json("backfill", "--prometheus", "--since", f"{DAYS + 1}d")
    assert {row["target"] for row in rows} == {"http://gpu-1:8000/metrics"}
    assert sum(row["samples"] for row in rows) == len(command.samples()) == DAYS * 1440 - len(HOLE)
    by_day = {row["day"]: (row["minutes"], row["of_minutes"], Decimal(row["coverage"])) for row in rows}
    assert len(by_day) == len(rows) in (DAYS + 1, DAYS + 2)
    assert sum(of_minutes for _, of_minutes, _ in by_day.values()) in ((DAYS + 1) * 1440 - 1, (DAYS + 1) * 1440)
    assert all(share == (Decimal(minutes) / of).quantize(Decimal("0.0001")) for minutes, of, share in by_day.values())
    assert folded(command.samples()) == TOTAL
    assert "source_gap" in {json.loads(line)["kind"] for line in command.lines("fault")}


def test_history_again_and_after_reading_on_counts_once(command: Command, server: Prometheus) -> None:
    command.settings(block(server))
    command.json("backfill", "--prometheus", "--since", "30h")
    once = folded(command.samples())
    command.json("backfill", "--prometheus", "--since", "30h")
    assert folded(command.samples()) == once > 0


def test_history_before_what_is_read_already_is_an_engine_of_its_own(command: Command, server: Prometheus, now_ms: int) -> None:
    command.settings(block(server, since="1h"))
    scrape = command.start("process", "scrape")
    try:
        wait_for(lambda: (command.folder / "data/prometheus/main.json").exists() or None)
        wait_for(lambda: json.loads((command.folder / "data/prometheus/main.json").read_text())["targets"] or None)
        wait_for(lambda: read_to_ms(command) > now_ms or None)
    finally:
        end(scrape)
    live = command.samples()
    assert folded(live) == 7 * (len(live) - 1)
    command.json("backfill", "--prometheus", "--since", f"{DAYS + 1}d")
    names = {sample.key.target for sample in command.samples()}
    assert {name.partition("#before-")[0] for name in names} == {"http://gpu-1:8000/metrics"}
    assert len(names) == 2
    assert folded(command.samples()) == TOTAL - 7, "all but the one interval between the two"


def read_to_ms(command: Command) -> int:
    return int(json.loads((command.folder / "data/prometheus/main.json").read_text())["read_to_ms"])


def test_backfill_without_a_server_says_what_to_set(command: Command) -> None:
    command.settings("")
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "backfill", "--prometheus"],
        env=command.environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "[[prometheus]]" in done.stderr


def page(model: str) -> Callable[[], bytes]:
    labels = f'{{engine="0",model_name="{model}"}}'
    return lambda: f"vllm:prompt_tokens_total{labels} 5\nvllm:num_requests_running{labels} 0\n".encode()


def test_found_engines_are_followed_without_a_restart_and_leave_the_inventory_when_they_go(command: Command, db: Engine) -> None:
    pages = Pages({"/metrics": page("a"), "/b": page("b")})
    file = command.folder / "engines.json"
    first = {"targets": [pages.address], "labels": {"gpu": "A10G", "count": "1", "model_id": "a"}}
    second = {"targets": [pages.address], "labels": {"gpu": "L4", "count": "2", "model_id": "b", "__metrics_path__": "/b"}}
    put(file, [first])
    found = f'[[discovery]]\nname = "pool"\nkind = "file"\nfiles = ["{file}"]\nrefresh_s = 0.2\ncluster = "c"\nnamespace = "n"\n'
    command.settings(f"scrape_interval_s = 2\n{found}")
    scrape = command.start("process", "scrape")
    try:
        assert wait_for(lambda: inventory(db)) == {"a": ("A10G", 1, False)}
        put(file, [first, second])
        assert wait_for(lambda: inventory(db).get("b")) == ("L4", 2, False)
        wait_for(lambda: scraped(db) == 2)
        assert scrape.poll() is None
        put(file, [second])
        wait_for(lambda: inventory(db)["a"][2])
    finally:
        end(scrape)
        pages.close()
    assert {sample.deployment for sample in command.samples()} == {Deployment("c", "n", "a"), Deployment("c", "n", "b")}
    gone = [fault for line in command.lines("fault") if (fault := json.loads(line))["kind"] == "target_vanished"]
    assert [fault["source"] for fault in gone] == [f"http://{pages.address}/metrics"]


def test_what_went_while_nobody_looked_leaves_the_inventory_at_the_next_start(command: Command, db: Engine) -> None:
    pages = Pages({"/metrics": page("a")})
    file = command.folder / "engines.json"
    put(file, [{"targets": [pages.address], "labels": {"gpu": "A10G", "count": "1", "model_id": "a"}}])
    command.settings(f'[[discovery]]\nname = "pool"\nkind = "file"\nfiles = ["{file}"]\nrefresh_s = 0.2\n')
    for expected, targets in ((False, None), (True, [])):
        if targets is not None:
            put(file, targets)
        scrape = command.start("process", "scrape")
        try:
            wait_for(lambda want=expected: inventory(db).get("a") == ("A10G", 1, want))  # type: ignore[misc]
        finally:
            end(scrape)
    pages.close()


def test_doctor_names_what_is_wrong_with_each_source(command: Command, server: Prometheus) -> None:
    command.settings(
        block(server)
        + f'[[prometheus]]\nname = "gone"\nurl = "http://127.0.0.1:{free_port()}"\nread = false\n'
        + '[[discovery]]\nname = "pool"\nkind = "file"\nfiles = ["engines.json"]\n'
    )
    (command.folder / "engines.json").write_text('[{"targets": ["gpu-1:8000"], "labels": {}}]')
    command.environment["PYTHONPATH"] = str(Path.cwd())
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "doctor", "--json"],
        env=command.environment, cwd=command.folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    found = [(f["check"], f["verdict"], f["found"]) for f in json.loads(done.stdout)]
    said = [row for row in found if row[0].startswith(("prometheus", "discovery"))]
    assert any(row[:2] == ("prometheus main", "error") and "generation_tokens" in row[2] for row in said)
    assert any(row[:2] == ("prometheus main", "ok") and "scrapes every 60 s" in row[2] for row in said)
    assert any(row[:2] == ("prometheus main", "ok") and "keeps samples for 15d" in row[2] for row in said)
    assert any(row[:2] == ("prometheus gone", "error") and "Connection refused" in row[2] for row in said)
    assert any(row[:2] == ("discovery pool", "error") and "no GPU type" in row[2] for row in said)


def put(file: Path, groups: list[dict[str, Any]]) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(groups))
    fresh.replace(file)


def inventory(db: Engine) -> dict[str, tuple[str, int, bool]]:
    """Model -> (GPU type, count, whether it left service)."""
    query = text("SELECT model_id, gpu_type, gpu_count, in_service_to IS NOT NULL FROM node_service ORDER BY id")
    with db.connect() as connection:
        return {row[0]: (row[1], row[2], row[3]) for row in connection.execute(query)}


def scraped(db: Engine) -> int:
    """Samples of the last round."""
    with db.connect() as connection:
        detail = connection.execute(text("SELECT detail FROM heartbeat WHERE name = 'scrape'")).scalar_one_or_none() or {}
    return int(detail.get("samples", 0))


def wait_for(what: Callable[[], Any]) -> Any:
    """Until it gives something; a minute at most."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("did not come")


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0

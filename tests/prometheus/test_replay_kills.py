"""Half an hour of engines, replayed at speed into a real Prometheus that is killed twice and read by a collector that is killed
twice: what was stored is counted, once and to the token, and what was not stored is a gap with a name."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_server import Pages, Prometheus
from replayed_engines import Clock, Counting, Recorded
from stored_truth import Stored, dump, increase

from core.engine import EngineSample
from core.engine_fold import FoldState, fold, parse_line
from core.windows import epoch_ms
from eventlog.spool import SpoolLog, SpoolSettings

pytestmark = pytest.mark.prometheus
WALL_S = float(os.environ.get("TOKENFUSE_REPLAY_S", "50"))
RECORDED_S = 1800.0
TOKENS = {"prompt_tokens": "vllm:prompt_tokens_total", "generation_tokens": "vllm:generation_tokens_total"}
START = "process_start_time_seconds"
JOB = """- job_name: {name}
  metrics_path: /{name}
  static_configs: [{{targets: ['{address}'], labels: {{path: /{name}}}}}]
"""
SETTINGS = """
[[prometheus]]
name = "replayed"
url = "{url}"
lag_s = 2
overlap_s = 3
poll_s = 0.3
since = "1m"
"""


class Collector:
    """The real ``scrape`` process on a folder of its own."""

    def __init__(self, folder: Path, db_url: str, prometheus_url: str) -> None:
        folder.mkdir()
        (folder / "tokenfuse.toml").write_text(SETTINGS.format(url=prometheus_url))
        self._folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TOKENFUSE_")},
            "TOKENFUSE_SETTINGS": str(folder / "tokenfuse.toml"),
            "TOKENFUSE_DATA_DIR": str(folder / "data"),
            "TOKENFUSE_DB_URL": db_url,
            "TOKENFUSE_MIN_FREE_MB": "1",
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def cursor(self) -> Path:
        return self._folder / "data" / "prometheus" / "replayed.json"

    def start(self) -> None:
        with (self._folder / "collector.log").open("ab") as log:
            command = [sys.executable, "-m", "cli.main", "process", "scrape"]
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, start_new_session=True)

    def end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)
            self._process.wait(60)
        self._process = None

    def wait_until_read(self, at: float) -> None:
        """Until everything before ``at`` (unix seconds) is in the log."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.cursor.exists() and json.loads(self.cursor.read_text())["read_to_ms"] >= at * 1000:
                return
            time.sleep(0.2)
        raise AssertionError((self._folder / "collector.log").read_text()[-4000:])

    def lines(self) -> tuple[list[EngineSample], list[dict[str, object]]]:
        log = SpoolLog(self._folder / "data" / "log", SpoolSettings(reserve_bytes=1), lambda: datetime.now(UTC))
        try:
            samples = [parse_line(fields) for fields in csv.reader(line.line for line in log.read("engine", limit=10**9))]
            return samples, [json.loads(line.line) for line in log.read("fault", limit=10**9)]
        finally:
            log.close()


@dataclass(frozen=True, slots=True)
class World:
    stored: Stored
    samples: list[EngineSample]
    faults: list[dict[str, object]]
    dead: list[tuple[float, float]]
    """When the Prometheus did not run (unix seconds)."""


@pytest.fixture
def world(tmp_path: Path, db_url: str) -> Iterator[World]:
    clock = Clock(time.time(), RECORDED_S / WALL_S)
    engines = {
        "/recorded": Recorded(clock, tmp_path / "pages"),
        "/stamped": Counting(clock, 431.0, stamped=True),
        "/bare": Counting(clock, 307.0, stamped=False),
    }
    pages = Pages(engines)
    jobs = "".join(JOB.format(name=path.strip("/"), address=pages.address) for path in engines)
    prometheus = Prometheus(tmp_path / "prometheus", jobs)
    collector = Collector(tmp_path / "tokenfuse", db_url, prometheus.url)
    try:
        dead = _play(clock, prometheus, collector)
        prometheus.stop()
        stored = dump(tmp_path / "prometheus" / "data", [*TOKENS.values(), START])
        samples, faults = collector.lines()
        yield World(stored, samples, faults, dead)
    finally:
        collector.end(signal.SIGKILL)
        prometheus.kill()
        pages.close()


def _play(clock: Clock, prometheus: Prometheus, collector: Collector) -> list[tuple[float, float]]:
    dead: list[tuple[float, float]] = []

    def until(share: float) -> None:
        time.sleep(max(0.0, clock.zero + share * WALL_S - time.time()))

    def without_prometheus(until_share: float) -> None:
        killed = time.time()
        prometheus.kill()
        until(until_share)
        prometheus.start()
        dead.append((killed, time.time()))

    def without_collector(until_share: float) -> None:
        collector.end(signal.SIGKILL)
        until(until_share)
        collector.start()

    prometheus.start()
    collector.start()
    until(0.22)
    without_collector(0.26)
    until(0.36)
    without_prometheus(0.45)
    until(0.58)
    without_collector(0.62)
    until(0.70)
    without_prometheus(0.79)
    until(1.0)
    end = time.time()
    collector.wait_until_read(end)
    collector.end(signal.SIGTERM)
    return dead


def by_instance(samples: list[EngineSample]) -> dict[str, dict[int, EngineSample]]:
    found: dict[str, dict[int, EngineSample]] = defaultdict(dict)
    for sample in samples:
        found[sample.key.target.removeprefix("http://")][epoch_ms(sample.at)] = sample
    return found


def test_a_half_hour_with_four_kills_is_counted_as_it_was_stored(world: World) -> None:
    every_stored_page_is_one_sample_and_counts_to_the_token(world)
    every_hole_has_a_name_and_nothing_in_it(world)


def every_stored_page_is_one_sample_and_counts_to_the_token(world: World) -> None:
    ours = by_instance(world.samples)
    assert set(ours) == set(world.stored)
    assert {instance.partition("/")[2] for instance in ours} == {"recorded", "stamped", "bare"}
    read_to = max(at for times in ours.values() for at in times)
    for instance, times in world.stored.items():
        held = {at: values for at, values in times.items() if TOKENS["prompt_tokens"] in values and at <= read_to}
        assert sorted(ours[instance]) == sorted(held), "each stored page is one sample, and no sample is of anything else"
        for at, sample in ours[instance].items():
            assert {name: held[at][series] for name, series in TOKENS.items()} == {name: sample.counters[name] for name in TOKENS}
        for name, series in TOKENS.items():
            assert folded(world.samples, instance, name) == increase(held, series) > 0, (instance, name)


def every_hole_has_a_name_and_nothing_in_it(world: World) -> None:
    named = [
        (fault["source"], *(datetime.fromisoformat(str(fault["detail"][end])).timestamp() for end in ("from", "to")))  # type: ignore[index]
        for fault in world.faults
        if fault["kind"] == "source_gap"
    ]
    for instance in world.stored:
        for killed, back in world.dead:
            assert any(
                source == f"http://{instance}" and since <= killed + 1 and until >= back - 1 for source, since, until in named
            ), (instance, killed, back, named)
    for sample in world.samples:
        assert not any(killed + 1 < sample.at.timestamp() < back - 1 for killed, back in world.dead)
    assert any(fault["kind"] == "target_down" for fault in world.faults), "the engines' own restarts are seen by up 0"


def folded(samples: list[EngineSample], instance: str, counter: str) -> int:
    """The counter's sum over all minutes, by the fold the stream uses, in the order of the log."""
    state: FoldState | None = None
    total = 0
    for sample in samples:
        if sample.key.target == f"http://{instance}":
            state, deltas = fold(state, sample)
            total += sum(delta.measures[counter] for delta in deltas)
    return total

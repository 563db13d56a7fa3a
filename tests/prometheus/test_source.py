"""What a real Prometheus holds and what is read of it: exact samples at chosen times, written by its remote-write protocol."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_server import Prometheus
from remote_write import STALE, write

from core.engine import EngineSample
from core.engine_fold import FoldState, fold, parse_line
from core.windows import epoch_ms
from eventlog.spool import SpoolLog
from ingest.engine.claims import Claims
from ingest.prometheus.api import PrometheusApi
from ingest.prometheus.reader import PrometheusReader, Step
from ingest.prometheus.settings import Access, PrometheusSettings

pytestmark = pytest.mark.prometheus
JOBS = itertools.count()
LENIENT = "storage: {tsdb: {out_of_order_time_window: 30d}}\n"
PROMPT, START = "vllm:prompt_tokens_total", "process_start_time_seconds"
Values = Mapping[int, float]
"""Seconds before the source's present -> value."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    found = Prometheus(tmp_path_factory.mktemp("prometheus"), "  []\n" + LENIENT)
    try:
        found.start("--web.enable-remote-write-receiver")
        yield found
    finally:
        found.kill()


class Source:
    """One job of the server, to be written to and read. ``now_ms`` is the present of its test, not of the run's start: a reader
    comes back to the last minutes only."""

    def __init__(self, server: Prometheus, log: SpoolLog, folder: Path) -> None:
        self.server, self.log, self.file = server, log, folder / "cursor.json"
        self.job = f"job{next(JOBS)}"
        self.now_ms = epoch_ms(datetime.now(UTC)) // 1000 * 1000
        self.settings = PrometheusSettings(
            "test", Access(server.url), match=f'job="{self.job}"', lag_s=0, overlap_s=120, window_s=3600, since=timedelta(hours=1)
        )

    def write(self, name: str, values: Values, **labels: str) -> None:
        told = {"job": self.job, "instance": "gpu-1:8000", **labels}
        if name.startswith("vllm:"):
            told = {"engine": "0", "model_name": "m", **told}
        points = sorted((self.now_ms - before_s * 1000, value) for before_s, value in values.items())
        write(self.server.url, [({"__name__": name, **told}, points)])

    def reader(self, **given: Any) -> PrometheusReader:
        options = {"ensure_partitions": lambda _: None, **given}
        return PrometheusReader(options.pop("settings", self.settings), self.log, self.file, lambda: datetime.now(UTC), **options)

    def read(self, **given: Any) -> list[EngineSample]:
        """Everything that is there now, by a reader that goes on where the file says."""
        reader = self.reader(**given)
        while not reader.step().caught_up:
            pass
        reader.close()
        return self.samples()

    def samples(self) -> list[EngineSample]:
        self.log.flush()
        return [parse_line(fields) for fields in csv.reader(line.line for line in self.log.read("engine"))]

    def read_lines(self) -> list[list[str]]:
        """The same as the log's fields, of GPUs too."""
        reader = self.reader()
        while not reader.step().caught_up:
            pass
        reader.close()
        self.log.flush()
        return list(csv.reader(line.line for line in self.log.read("engine")))

    def faults(self) -> list[dict[str, Any]]:
        self.log.flush()
        return [json.loads(line.line) for line in self.log.read("fault")]

    def before_s(self, sample: EngineSample) -> float:
        return (self.now_ms - epoch_ms(sample.at)) / 1000

    def kinds(self) -> set[str]:
        return {str(fault["kind"]) for fault in self.faults()} - {"unmapped_metrics"}


@pytest.fixture
def source(server: Prometheus, log: SpoolLog, tmp_path: Path) -> Source:
    return Source(server, log, tmp_path)


def folded(samples: list[EngineSample], counter: str = "prompt_tokens") -> int:
    states: dict[object, FoldState] = {}
    total = 0
    for sample in samples:
        states[sample.key], deltas = fold(states.get(sample.key), sample)
        total += sum(delta.measures[counter] for delta in deltas)
    return total


def test_a_scrape_becomes_the_sample_its_page_would_have_given(source: Source) -> None:
    source.write(PROMPT, {30: 100})
    source.write("vllm:kv_cache_usage_perc", {30: 0.25})
    source.write("vllm:num_requests_running", {30: 3})
    source.write("vllm:prompt_tokens_created", {30: 1.79e9})
    source.write(START, {30: 1.7899e9})
    [sample] = source.read()
    assert (sample.key.target, sample.key.engine, sample.key.model_id) == ("http://gpu-1:8000/metrics", "0", "m")
    assert source.before_s(sample) == 30
    assert sample.counters["prompt_tokens"] == 100
    assert {name: sample.gauges[name] for name in ("running", "kv_usage_ppm")} == {"running": 3, "kv_usage_ppm": 250_000}
    assert sample.created_at == datetime.fromtimestamp(1.79e9, UTC)
    assert sample.process_started_at == datetime.fromtimestamp(1.7899e9, UTC)


def test_data_parallel_engines_of_one_page_stay_apart(source: Source) -> None:
    source.write(PROMPT, {60: 0, 30: 78}, engine="0")
    source.write(PROMPT, {60: 0, 30: 26}, engine="1")
    samples = source.read()
    assert {sample.key.engine for sample in samples} == {"0", "1"}
    assert folded(samples) == 104


def test_a_counter_reset_counts_80(source: Source) -> None:
    source.write(PROMPT, {75: 100, 60: 150, 45: 10, 30: 30})
    assert folded(source.read()) == 80


def test_a_restart_that_ends_higher_is_told_by_the_process_start(source: Source) -> None:
    born_s = source.now_ms / 1000 - 40
    source.write(PROMPT, {75: 100, 60: 150, 30: 160})
    source.write(START, {75: 1.79e9, 60: 1.79e9, 30: born_s})
    assert folded(source.read()) == 50 + 160


@pytest.mark.parametrize(("born_before_s", "counted"), [(100, 30), (4000, 0)])
def test_a_new_pod_counts_what_it_did_since_its_birth_if_the_server_watched_by_then(
    source: Source, born_before_s: int, counted: int
) -> None:
    source.write("up", {120: 1, 105: 1}, instance="gpu-old:8000")
    source.write("up", {75: 1})
    source.write(PROMPT, {75: 30})
    source.write(START, {75: source.now_ms / 1000 - born_before_s})
    assert folded(source.read()) == counted


def test_windows_are_half_open_and_every_sample_is_in_exactly_one(source: Source) -> None:
    source.write(PROMPT, {90: 1, 60: 2, 30: 3})
    api = PrometheusApi(Access(source.server.url))

    def window(first: int, last: int) -> list[int]:
        start, end = (datetime.fromtimestamp((source.now_ms - s * 1000) / 1000, UTC) for s in (first, last))
        return [
            (source.now_ms - at) // 1000
            for one in api.raw(f'__name__="{PROMPT}",job="{source.job}"', start, end)
            for at, _ in one.points
        ]

    assert (window(90, 60), window(60, 30), window(90, 30)) == ([90], [60], [90, 60])
    api.close()


def test_a_value_is_never_repeated_where_the_server_holds_none(source: Source) -> None:
    source.write(PROMPT, {90: 7, 75: 8, 60: STALE})
    source.write("up", {90: 1, 75: 1, 60: 0, 45: 0, 30: 0})
    samples = source.read()
    assert [source.before_s(sample) for sample in samples] == [90, 75], "instant queries would show the 8 for five minutes more"
    assert source.kinds() == {"target_down"}


def test_a_hole_is_a_fault_with_its_ends_and_nothing_is_put_into_it(source: Source) -> None:
    times = {s: 1.0 for s in (*range(900, 600, -15), *range(300, 0, -15))}
    source.write("up", times)
    source.write(PROMPT, {s: 10_000 - s for s in times})
    samples = source.read()
    assert sorted(map(source.before_s, samples)) == sorted(times)
    [hole] = [fault for fault in source.faults() if fault["kind"] == "source_gap"]
    ends = [datetime.fromisoformat(hole["detail"][end]) for end in ("from", "to")]
    assert [round(source.now_ms / 1000 - end.timestamp()) for end in ends] == [615, 300]
    assert folded(samples) == 900 - 15, "what was done in the hole is counted, over the hole"


def test_a_target_that_is_not_scraped_any_more_is_a_gap_with_its_name(source: Source) -> None:
    source.write("up", {s: 1 for s in range(600, 300, -15)})
    source.write(PROMPT, {s: 1 for s in range(600, 300, -15)})
    source.read(settings=replace(source.settings, window_s=200))
    gone = [fault for fault in source.faults() if fault["kind"] == "target_vanished"]
    assert [fault["source"] for fault in gone] == ["http://gpu-1:8000/metrics"]


def test_nan_is_a_gap_and_a_fault_never_a_number(source: Source) -> None:
    source.write(PROMPT, {60: 100, 30: float("nan")})
    source.write("vllm:num_requests_running", {60: 1, 30: 1})
    samples = source.read()
    assert ["prompt_tokens" in sample.counters for sample in samples] == [True, False]
    assert "bad_value" in source.kinds()


def test_reading_twice_counts_once(source: Source) -> None:
    source.write(PROMPT, {s: 1000 - s for s in range(600, 0, -15)})
    once = source.read()
    source.file.unlink()
    twice = source.read()
    assert len(twice) == 2 * len(once), "a cursor that is lost costs a second reading"
    assert folded(once) == folded(twice) == 585


def test_a_restart_between_log_and_cursor_reads_the_window_again_and_counts_once(source: Source) -> None:
    source.write(PROMPT, {s: 1000 - s for s in range(600, 300, -15)})
    source.read()
    kept = source.file.read_text()
    source.write(PROMPT, {s: 1000 - s for s in range(300, 0, -15)})
    source.read()
    source.file.write_text(kept)  # the samples were written, the cursor was not
    assert folded(source.read()) == 585


def test_samples_that_come_late_are_taken_once(source: Source) -> None:
    source.write(PROMPT, {s: 1000 - s for s in range(600, 0, -30)})
    reader = source.reader(settings=replace(source.settings, overlap_s=3600))
    while not reader.step().caught_up:
        pass
    first = len(source.samples())
    source.write(PROMPT, {s: 1000 - s for s in range(585, 0, -30)})
    reader.step()
    reader.step()
    reader.close()
    samples = source.samples()
    assert (first, len(samples)) == (20, 40)
    assert folded(samples) == 585
    assert "several_processes" not in source.kinds()


def test_a_late_sample_of_a_process_that_is_over_is_counted_to_it(source: Source) -> None:
    old, new = 1.79e9, source.now_ms / 1000 - 200
    source.write(PROMPT, {300: 100, 240: 150, 180: 10, 120: 30})
    source.write(START, {300: old, 240: old, 180: new, 120: new})
    reader = source.reader(settings=replace(source.settings, overlap_s=3600))
    while not reader.step().caught_up:
        pass
    assert folded(source.samples()) == 80
    source.write(PROMPT, {225: 190})
    source.write(START, {225: old})
    reader.step()
    reader.close()
    assert folded(source.samples()) == 80 + 40
    assert "several_processes" not in source.kinds()


def test_an_engine_under_two_jobs_is_counted_once(source: Source) -> None:
    source.settings = replace(source.settings, match=f'job=~"{source.job}|{source.job}-again"')
    source.write(PROMPT, {s: 1000 - s for s in range(600, 0, -15)})
    source.write(PROMPT, {s + 1: 1000 - s for s in range(600, 0, -15)}, job=f"{source.job}-again")
    samples = source.read()
    assert folded(samples) == 585
    assert len({source.before_s(sample) % 15 for sample in samples}) == 1, "copies are not mixed"
    assert "read_twice" in source.kinds()


def test_one_copy_of_a_pair_of_servers_is_followed_until_it_ends(source: Source) -> None:
    source.write(PROMPT, {s: 1000 - s for s in range(600, 300, -15)}, prometheus_replica="a")
    source.write(PROMPT, {s + 1: 1000 - s for s in range(600, 0, -15)}, prometheus_replica="b")
    samples = source.read(settings=replace(source.settings, window_s=250))
    assert folded(samples) == 585
    assert "read_twice" in source.kinds()


def test_federated_series_keep_the_engines_own_address(source: Source) -> None:
    own = {"exported_job": "vllm", "exported_instance": "gpu-7:8000", "exported_namespace": "ml", "namespace": "monitoring"}
    source.write(PROMPT, {30: 5}, instance="other-prometheus:9090", **own)
    [sample] = source.read()
    assert sample.key.target == "http://gpu-7:8000/metrics"


def test_the_place_of_an_engine_is_what_its_labels_say(source: Source) -> None:
    source.write(PROMPT, {30: 5}, namespace="ml", node="node-9", cluster="west")
    [sample] = source.read()
    assert (sample.deployment.cluster, sample.deployment.namespace, sample.node) == ("west", "ml", "node-9")
    assert sample.key.target == "http://gpu-1:8000/metrics#west", "one address in two clusters is two engines"


def test_an_engine_that_is_scraped_is_not_read_as_well(source: Source) -> None:
    source.write(PROMPT, {60: 1, 30: 2})
    claims = Claims()
    claims.scrape(["https://gpu-1:8000/metrics"])
    assert source.read(claims=claims) == []
    assert source.kinds() == {"read_twice"}


def test_recording_rules_and_other_programs_are_no_engines(source: Source) -> None:
    source.write("vllm:prompt_tokens_total:rate5m", {30: 5})
    source.write(START, {30: 1.79e9}, instance="node-exporter:9100")
    source.write(PROMPT, {30: 5}, instance="")
    assert source.read() == []
    assert source.kinds() == {"no_target_label"}


def test_a_log_that_is_full_keeps_the_cursor_where_it_was(source: Source, tmp_path: Path) -> None:
    from core.errors import Unavailable
    from eventlog.spool import DiskSpace, SpoolSettings

    source.write(PROMPT, {60: 1, 30: 2})
    full = SpoolLog(tmp_path / "full", SpoolSettings(), lambda: datetime.now(UTC), space=lambda _: DiskSpace(0, 10**12))
    source.log, log = full, source.log
    with pytest.raises(Unavailable):
        source.read()
    full.close()
    assert not source.file.exists()
    source.log = log
    assert len(source.read()) == 2


def test_a_server_that_is_down_is_a_fault_and_no_sample(source: Source) -> None:
    reader = source.reader(settings=replace(source.settings, access=Access("http://127.0.0.1:1", timeout_s=1)))
    with pytest.raises(Exception, match="does not answer") as caught:
        reader.step()
    reader.report(caught.value)  # type: ignore[arg-type]
    reader.close()
    assert source.kinds() == {"source_down"}


def test_a_step_says_what_it_took(source: Source) -> None:
    source.write(PROMPT, {60: 1, 30: 2})
    reader = source.reader()
    first, second = reader.step(), reader.step()
    reader.close()
    assert isinstance(first, Step)
    assert (first.samples, second.samples) == (2, 0)
    assert first.times == {"http://gpu-1:8000/metrics": (source.now_ms - 60_000, source.now_ms - 30_000)}


def test_a_creation_stamp_that_moves_is_a_restart(source: Source) -> None:
    source.write(PROMPT, {75: 100, 60: 150, 30: 160})
    source.write("vllm:prompt_tokens_created", {75: 1.79e9, 60: 1.79e9, 30: source.now_ms / 1000 - 40})
    assert folded(source.read()) == 50 + 160


def test_an_old_and_a_new_name_of_one_thing_give_one_value(source: Source) -> None:
    source.write(PROMPT, {30: 1})
    source.write("vllm:gpu_cache_usage_perc", {30: 0.5})
    source.write("vllm:kv_cache_usage_perc", {30: 0.5})
    [sample] = source.read()
    assert sample.gauges["kv_usage_ppm"] == 500_000


def test_a_gpu_shared_by_three_pods_is_one_gpu_with_the_pods_own_labels(source: Source) -> None:
    for pod in ("a", "b", "c"):
        labels = {"instance": "node-1:9400", "gpu": "0", "UUID": "GPU-1", "modelName": "NVIDIA A10G", "pod": "dcgm-exporter-x"}
        source.write("DCGM_FI_DEV_POWER_USAGE", {30: 300}, **labels, exported_pod=pod, exported_namespace="ml")
    [line] = source.read_lines()
    told = json.loads(line[8])
    assert line[2] == "GPU-1/"
    assert {told["g"][name] for name in told["g"] if "power" in name} == {300_000}
    assert "dcgm-exporter-x" not in line[8]
    assert all(f"ml/{pod}" in line[8] for pod in ("a", "b", "c"))


def test_a_window_too_large_for_the_server_is_read_in_parts(tmp_path: Path, log: SpoolLog) -> None:
    small = Prometheus(tmp_path / "small", "  []\n" + LENIENT)
    try:
        small.start("--web.enable-remote-write-receiver", "--query.max-samples=100")
        source = Source(small, log, tmp_path)
        source.write(PROMPT, {s: 10_000 - s for s in range(3000, 0, -5)})
        assert folded(source.read()) == 3000 - 5
        assert len(source.samples()) == 600
    finally:
        small.kill()


def test_a_target_that_is_not_listed_is_named_by_its_jobs_page(tmp_path: Path, log: SpoolLog) -> None:
    jobs = "- {job_name: a, metrics_path: /engine-a, scheme: https}\n- {job_name: b, metrics_path: /engine-b}\n"
    configured = Prometheus(tmp_path / "configured", jobs + LENIENT)
    try:
        configured.start("--web.enable-remote-write-receiver")
        source = Source(configured, log, tmp_path)
        source.settings = replace(source.settings, match="")
        for job, values in (("a", {60: 0, 30: 5}), ("b", {60: 0, 30: 7}), ("c", {60: 0, 30: 9})):
            source.write(PROMPT, values, job=job)
        samples = source.read()
        assert {sample.key.target for sample in samples} == {
            "https://gpu-1:8000/engine-a", "http://gpu-1:8000/engine-b", "http://gpu-1:8000/metrics"
        }  # fmt: skip
        assert folded(samples) == 5 + 7 + 9, "two pages of one host are two engines"
    finally:
        configured.kill()

"""Recorded scrapes: the recording's truth to the token, and every way a folder can be wrong."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from core.engine import EngineKey, EngineSample
from core.engine_fold import FoldState, fold, parse_line
from core.errors import BadInput
from core.windows import epoch_ms
from eventlog.spool import DiskSpace, SpoolLog, SpoolSettings
from ingest.engine.parse import Origin
from ingest.engine.replay import ReplayReport, replay_folder

NOW = datetime(2026, 11, 30, 14, tzinfo=UTC)
PAGE = 'vllm:prompt_tokens_total{engine="0",model_name="m"} %s\nvllm:num_requests_running{engine="0",model_name="m"} 1\n'
PLENTY = DiskSpace(free_bytes=10**12, total_bytes=10**12)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SpoolLog]:
    spool = SpoolLog(tmp_path / "log", SpoolSettings(), lambda: NOW, space=lambda _: PLENTY)
    yield spool
    spool.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "scrapes"
    made.mkdir()
    return made


def replay(folder: Path, log: SpoolLog, origin: Origin | None = None, **options: object) -> ReplayReport:
    months: list[datetime] = []

    def ensure_partitions(times: Iterable[datetime]) -> None:
        months.extend(times)

    chosen = origin or Origin(cluster="c1", namespace="prod")
    report = replay_folder(
        folder, log, "recording", chosen, now=lambda: NOW, ensure_partitions=ensure_partitions, **options  # type: ignore[arg-type]
    )  # fmt: skip
    log.flush()
    assert len(months) == report.samples, "the partitions of every sample exist before it is acknowledged"
    return report


def samples(log: SpoolLog) -> list[EngineSample]:
    return [parse_line(fields) for fields in csv.reader(entry.line for entry in log.read("engine"))]


def faults(log: SpoolLog) -> list[dict[str, object]]:
    return [json.loads(entry.line) for entry in log.read("fault")]


def totals(found: Iterable[EngineSample]) -> Counter[str]:
    states: dict[EngineKey, FoldState] = {}
    total: Counter[str] = Counter()
    for one in found:
        states[one.key], deltas = fold(states.get(one.key), one)
        for delta in deltas:
            total.update(delta.measures)
    return total


@pytest.mark.realdata
def test_the_recording_gives_its_truth_through_the_fold_alone(realdata: Path, log: SpoolLog) -> None:
    """183 pages, one restart, a silence of 143 s: prompt 2,210,492, generated 21,069, cached 375,296."""
    recording = realdata / "recordings" / "open"
    truth = json.loads((recording / "truth.json").read_text())
    report = replay(recording / "metrics", log)
    assert (report.files, report.pages, report.samples, report.faults, report.skipped) == (183, 183, 183, 0, ())
    found = samples(log)
    total = totals(found)
    assert total["prompt_tokens"] == truth["engine_prompt_tokens"] == 2_210_492
    assert total["generation_tokens"] == truth["engine_generation_tokens"] == 21_069
    assert total["prompt_tokens_cached"] == truth["engine_cached_prompt_tokens"] == 375_296
    assert total["prompt_tokens"] == total["prompt_tokens_cached"] + total["prompt_tokens_computed"]
    assert (total["samples"], total["resets"]) == (truth["scrapes"], truth["engine_restarts"])
    elapsed = (found[-1].at - found[0].at) // timedelta(microseconds=1)
    assert total["observed_us"] + total["gap_us"] == elapsed
    assert total["gap_us"] == sum(
        (b.at - a.at) // timedelta(microseconds=1) for a, b in ((found[64], found[65]), (found[157], found[158]))
    )


@pytest.mark.realdata
def test_replaying_the_recording_again_changes_no_total(realdata: Path, log: SpoolLog) -> None:
    recording = realdata / "recordings" / "open" / "metrics"
    replay(recording, log)
    once = totals(samples(log))
    replay(recording, log)
    twice = samples(log)
    assert len(twice) == 366
    assert totals(twice) == once


def test_the_time_of_a_sample_is_the_time_in_the_name(folder: Path, log: SpoolLog) -> None:
    (folder / "1796040005.250.prom").write_text(PAGE % 150)
    with gzip.open(folder / "1796040000.prom.gz", "wt") as packed:
        packed.write(PAGE % 100)
    seen: list[tuple[int, int]] = []
    report = replay(folder, log, progress=lambda done, files: seen.append((done, files)))
    first, second = samples(log)
    assert [epoch_ms(first.at), epoch_ms(second.at)] == [1796040000_000, 1796040005_250], "in order of time"
    assert (first.key, first.deployment.cluster) == (EngineKey("recording", "0", "m"), "c1")
    assert (first.interval_ms, first.watched_since) == (5250, first.at)
    assert (report.samples, seen) == (2, [(2, 2)])
    record = json.loads(next(iter(log.read("engine"))).record or b"")
    assert (record["schema"], record["counters"], record["unmapped"]) == ("engine/1", {"prompt_tokens": 100}, [])


def test_bad_names_and_pages_are_named_and_skipped_and_the_rest_is_taken(folder: Path, log: SpoolLog) -> None:
    good, packed = PAGE % 100, gzip.compress((PAGE % 110).encode())
    (folder / "1796040000.prom").write_text(good)
    (folder / "1796040005.prom").write_text(good[:-1])
    (folder / "1796040010.prom.gz").write_bytes(packed[:-12])
    (folder / "1796040015.prom.gz").write_bytes(b"no gzip")
    (folder / "1796040020.prom").write_text("<html>\n")
    (folder / "1796040025.prom").write_bytes(b"")
    (folder / "1796040030.prom").write_text(PAGE % 130)
    (folder / "1796040030.prom.gz").write_bytes(packed)
    (folder / "notes.txt").write_text("mine")
    (folder / "5.prom").write_text(good)
    (folder / "1999999999.prom").write_text(good)
    (folder / ".hidden").write_text("")
    (folder / "sub").mkdir()
    report = replay(folder, log)
    assert {name: reason.partition(": ")[2].split(" (value")[0][:60] for name, reason in report.skipped} == {
        "1796040005.prom": "last line: page was cut short",
        "1796040010.prom.gz": "page was cut short. the gzip file ends too early.",
        "1796040015.prom.gz": "cannot be read: Not a gzipped file (b'no').",
        "1796040020.prom": "not a metrics page: invalid metric name:<html>. is this a me",
        "1796040025.prom": "page is empty.",
        "1796040030.prom.gz": "has the same time as 1796040030.prom.",
        "notes.txt": "name is not UNIXTIME.prom[.gz].",
        "5.prom": "time of the name is before 2015 or in the future",
        "1999999999.prom": "time of the name is before 2015 or in the future",
    }
    assert (report.files, report.pages, report.samples) == (11, 2, 2)
    assert totals(samples(log))["prompt_tokens"] == 30
    assert {fault["kind"] for fault in faults(log)} == {"page_cut_short", "bad_page", "bad_file_name"}


@pytest.mark.parametrize("what", ["absent", "a file", "empty", "no page"])
def test_a_folder_without_recorded_pages_is_refused(tmp_path: Path, log: SpoolLog, what: str) -> None:
    place = tmp_path / "x"
    if what == "a file":
        place.write_text("")
    elif what != "absent":
        place.mkdir()
    if what == "no page":
        (place / "readme.md").write_text("")
    with pytest.raises(BadInput) as caught:
        replay(place, log)
    assert str(place) in str(caught.value)


def test_an_engine_born_during_the_recording_counts_from_zero(folder: Path, log: SpoolLog) -> None:
    created = 'vllm:prompt_tokens_created{engine="%s",model_name="m"} %s\n'
    (folder / "1796040000.prom").write_text(PAGE % 100 + created % (0, 1796030000))
    (folder / "1796040060.prom").write_text(
        PAGE % 100
        + 'vllm:prompt_tokens_total{engine="1",model_name="m"} 30\n'
        + created % (0, 1796030000)
        + created % (1, 1796040020)
    )
    replay(folder, log)
    assert totals(samples(log))["prompt_tokens"] == 30


def test_what_changes_from_page_to_page_is_a_fault(folder: Path, log: SpoolLog) -> None:
    start = "process_start_time_seconds %s\n"
    other = 'vllm:prompt_tokens_total{engine="1",model_name="m"} 5\n'
    (folder / "1796040000.prom").write_text(start % 1796030000 + PAGE % 100 + other)
    (folder / "1796040060.prom").write_text(
        start % 1796030000 + (PAGE % 110).split("\n")[0] + '\nvllm:new_total{model_name="m"} 1\n'
    )
    (folder / "1796040120.prom").write_text(start % 1796020000 + PAGE % 9_000_000)
    report = replay(folder, log)
    assert [(fault["kind"], fault["detail"]) for fault in faults(log)] == [
        ("metric_vanished", {"name": "running", "engine": "0", "subject": "0/m/running"}),
        ("engine_vanished", {"engine": "1", "model_id": "m", "subject": "1/m"}),
        (
            "unmapped_metrics",
            {"names": ["vllm:new_total"], "hint": "add them to a file of ingest/engine/table", "subject": "vllm:new_total"},
        ),
        (
            "several_processes",
            {"hint": "scrape each engine at its own address, not through a load balancer", "subject": "0/m"},
        ),
    ]
    assert report.samples == 3, "a page of another process behind the same address is not counted"
    assert totals(samples(log))["prompt_tokens"] == 10


def test_a_fault_line_has_the_columns_of_its_table(folder: Path, log: SpoolLog) -> None:
    (folder / "1796040030.prom").write_text('vllm:prompt_tokens_total{engine="0",model_name="m"} NaN\n')
    replay(folder, log)
    replay(folder, log)
    first, again = faults(log)
    assert first == again, "the same fault has the same id, so it is one row"
    assert {name: value for name, value in first.items() if name != "id"} == {
        "kind": "bad_value",
        "source": "recording",
        "window_start": "2026-11-30T12:00:00Z",
        "window_end": "2026-11-30T12:01:00Z",
        "detail": {
            "engine": "0",
            "model_id": "m",
            "name": "prompt_tokens",
            "value": "nan is not within 0 to 1e+15",
            "subject": "0/m/prompt_tokens",
        },
        "noticed_at": "2026-11-30T14:00:00Z",
    }

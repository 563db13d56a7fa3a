"""The spool's files: names, the segment column, when segments become visible, one fsync for many, the sweep."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from spool_samples import PLENTY, ids, spool, until, usage_batch, usage_line

from core.errors import BadInput
from core.ports import LogBatch
from eventlog.manifest import segments
from eventlog.spool import SpoolLog, SpoolSettings


def test_a_visible_segment_carries_its_name_and_line_count_and_its_records_beside_it(tmp_path: Path) -> None:
    log = spool(tmp_path)
    ack = log.append("usage", usage_batch("r1", "r2"))
    log.append("usage", LogBatch([usage_line("r3")]))
    log.close()
    [file] = segments(tmp_path, "usage", "000001")
    assert (file.segment, file.lines, file.epoch) == (ack.segment, 3, "000001")
    assert file.path == tmp_path / "usage/000001" / f"{ack.segment}.3.csv"
    assert file.path.read_text().splitlines() == [f"{usage_line(name)},{ack.segment}" for name in ("r1", "r2", "r3")]
    full = tmp_path / "usage.full/000001" / f"{ack.segment}.jsonl"
    assert full.read_text() == '{"request_id":"r1"}\n{"request_id":"r2"}\n\n'


def test_topics_without_full_records_hold_the_lines_as_they_are(tmp_path: Path) -> None:
    log = spool(tmp_path)
    log.append("quarantine", LogBatch(['{"id":"1"}']))
    log.close()
    [file] = segments(tmp_path, "quarantine", "000001")
    assert file.path.read_text() == '{"id":"1"}\n'
    assert not (tmp_path / "quarantine.full").exists()


def test_what_is_being_written_is_hidden_from_the_job(tmp_path: Path) -> None:
    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    shown = [path.relative_to(tmp_path / "usage/000001") for path in (tmp_path / "usage/000001").rglob("*") if path.is_file()]
    assert all(any(part.startswith((".", "_")) for part in path.parts) for path in shown)
    assert segments(tmp_path, "usage", "000001") == []
    log.close()


def test_an_idle_segment_becomes_visible_by_age_alone(tmp_path: Path) -> None:
    log = spool(tmp_path, age_s=0.05)
    log.append("usage", usage_batch("r1"))
    until(lambda: bool(segments(tmp_path, "usage", "000001")))
    log.append("usage", usage_batch("r2"))
    until(lambda: len(segments(tmp_path, "usage", "000001")) == 2)
    log.close()


def test_a_segment_never_grows_over_its_size(tmp_path: Path) -> None:
    log = spool(tmp_path, segment_bytes=1000)
    for n in range(40):
        log.append("usage", usage_batch(f"r{n}"))
    log.close()
    files = segments(tmp_path, "usage", "000001")
    assert len(files) > 3
    assert all(file.path.stat().st_size <= 1000 for file in files)
    assert sum(file.lines for file in files) == 40


def test_a_batch_larger_than_a_segment_is_refused_and_says_so(tmp_path: Path) -> None:
    log = spool(tmp_path, segment_bytes=1000)
    with pytest.raises(BadInput, match="append smaller batches"):
        log.append("usage", usage_batch(*(f"r{n}" for n in range(100))))
    log.close()
    assert segments(tmp_path, "usage", "000001") == []


def test_an_append_returns_only_after_both_files_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[str, int] = {}
    real = os.fdatasync

    def noting(handle: int) -> None:
        real(handle)
        synced[str(Path(f"/proc/self/fd/{handle}").readlink())] = os.fstat(handle).st_size

    monkeypatch.setattr(os, "fdatasync", noting)
    log = spool(tmp_path)
    for n in range(3):
        log.append("usage", usage_batch(f"r{n}"))
        files = [path for path in (tmp_path / "usage/000001/.open").iterdir()]
        assert sorted(path.suffix for path in files) == [".csv", ".jsonl"]
        assert all(synced[str(path)] == path.stat().st_size > 0 for path in files)
    log.close()


def test_appends_that_wait_for_the_disk_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first_is_syncing, go_on = threading.Event(), threading.Event()
    calls: list[int] = []
    real = os.fdatasync

    def slow_first(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            first_is_syncing.set()
            go_on.wait()
        real(handle)

    monkeypatch.setattr(os, "fdatasync", slow_first)
    log = spool(tmp_path)
    threads = [threading.Thread(target=log.append, args=("usage", usage_batch(f"r{n}"))) for n in range(20)]
    threads[0].start()
    first_is_syncing.wait()
    for thread in threads[1:]:
        thread.start()
    writer = log._writers["usage"]
    until(lambda: len(writer._waiting) == 19)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(calls) == 4, "two commits of two files for twenty appends"
    log.flush()
    assert sorted(ids(log)) == sorted(f"r{n}" for n in range(20))
    log.close()


def test_a_reader_never_passes_a_segment_that_is_still_open(tmp_path: Path) -> None:
    """Writer one holds a lower number open while writer two publishes a higher one: a reader must not skip the lower."""
    one, two = spool(tmp_path), spool(tmp_path)
    one.append("usage", usage_batch("low"))
    two.append("usage", usage_batch("high"))
    two.flush()
    assert ids(one) == []
    one.flush()
    assert ids(two) == ["low", "high"]
    one.close()
    two.close()


def test_sequence_numbers_go_on_after_the_counter_was_lost(tmp_path: Path) -> None:
    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    log.flush()
    log.append("usage", usage_batch("r2"))
    log.close()
    (tmp_path / "usage/.seq").unlink()
    log = spool(tmp_path)
    log.append("usage", usage_batch("r3"))
    log.flush()
    assert ids(log) == ["r1", "r2", "r3"]
    log.close()


def test_the_sweep_removes_what_was_read_and_is_old_and_nothing_else(tmp_path: Path) -> None:
    at = [datetime.now(UTC)]
    log = SpoolLog(tmp_path, SpoolSettings(retention=timedelta(days=7)), lambda: at[0], space=lambda _: PLENTY)
    for name in ("one", "two", "three"):
        log.append("fault", LogBatch([f'{{"id":"{name}"}}', "{}"]))
        log.flush()
    lines = list(log.read("fault"))
    half_of_two = lines[2].offset
    assert log.sweep_retention("fault", half_of_two) == [], "nothing is old"
    at[0] += timedelta(days=8)
    assert len(log.sweep_retention("fault", half_of_two)) == 1
    assert [one.offset for one in log.read("fault")] == [one.offset for one in lines[2:]]
    assert list(log.read("fault", half_of_two)) == lines[3:], "an offset stays good after the sweep"
    with pytest.raises(BadInput, match="archive"):
        log.sweep_retention("usage", half_of_two)
    log.close()

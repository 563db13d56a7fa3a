"""Epochs: sealing waits for the last writer, writers move on at their next segment, a seal cut short is finished."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from spool_samples import ids, spool, until, usage_batch

from core.errors import Unavailable
from eventlog.archive import archive_segments
from eventlog.layout import make_epoch
from eventlog.line_columns import make_noted
from eventlog.locks import exclusive
from eventlog.manifest import current_epoch, epochs, is_sealed, remove_emptied_epochs, seal_epoch, segments


def test_a_topic_starts_with_the_first_epoch(tmp_path: Path) -> None:
    assert epochs(tmp_path, "usage") == []
    assert current_epoch(tmp_path, "usage") == "000001"
    assert epochs(tmp_path, "usage") == ["000001"]
    assert not is_sealed(tmp_path, "usage", "000001")


def test_sealing_waits_for_the_slow_writer_and_later_lines_go_to_the_next_epoch(tmp_path: Path) -> None:
    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    sealing = threading.Thread(target=seal_epoch, args=(tmp_path, "usage"))
    sealing.start()
    until(lambda: epochs(tmp_path, "usage") == ["000001", "000002"])
    log.append("usage", usage_batch("r2"))
    assert not is_sealed(tmp_path, "usage", "000001"), "the writer still has its segment open there"
    log.flush()
    sealing.join()
    assert is_sealed(tmp_path, "usage", "000001")
    log.append("usage", usage_batch("r3"))
    log.flush()
    assert [file.lines for file in segments(tmp_path, "usage", "000001")] == [2]
    assert [file.lines for file in segments(tmp_path, "usage", "000002")] == [1]
    assert ids(log) == ["r1", "r2", "r3"]
    log.close()


def test_a_writer_that_was_about_to_enter_a_sealed_epoch_takes_the_next(tmp_path: Path) -> None:
    """The writer has read the old epoch's name and waits for its lock while the seal is being set."""
    log = spool(tmp_path)
    with exclusive(tmp_path / "usage/000001/.lock"):
        entering = threading.Thread(target=log.append, args=("usage", usage_batch("r1")))
        entering.start()
        locks = Path("/proc/self/fd")
        until(lambda: sum(str(fd.resolve()).endswith("usage/000001/.lock") for fd in locks.iterdir()) == 2)
        make_epoch(tmp_path, "usage", "000002")
        (tmp_path / "usage/000001/_SEALED").touch()
    entering.join()
    log.close()
    assert segments(tmp_path, "usage", "000001") == []
    assert [file.lines for file in segments(tmp_path, "usage", "000002")] == [1]


def test_an_epoch_that_is_only_half_made_is_completed_by_the_writer_that_enters_it(tmp_path: Path) -> None:
    log = spool(tmp_path)
    make_noted(tmp_path / "usage/000002", "usage")
    log.append("usage", usage_batch("r1"))
    log.close()
    assert [file.lines for file in segments(tmp_path, "usage", "000002")] == [1]


def test_a_seal_that_waits_too_long_says_so_and_the_next_call_finishes_it(tmp_path: Path) -> None:
    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    with pytest.raises(Unavailable, match="last writer"):
        seal_epoch(tmp_path, "usage", timeout_s=0.05)
    assert epochs(tmp_path, "usage") == ["000001", "000002"]
    log.close()
    assert seal_epoch(tmp_path, "usage") == "000002"
    assert is_sealed(tmp_path, "usage", "000001")
    assert not is_sealed(tmp_path, "usage", "000002")


def test_sealing_publishes_what_a_dead_writer_left_first(tmp_path: Path) -> None:
    log = spool(tmp_path / "live")
    log.append("usage", usage_batch("r1"))
    shutil.copytree(tmp_path / "live", tmp_path / "image")
    log.close()
    seal_epoch(tmp_path / "image", "usage")
    assert [file.lines for file in segments(tmp_path / "image", "usage", "000001")] == [1]


def test_under_load_each_seal_is_clean_and_no_line_is_lost(tmp_path: Path) -> None:
    log = spool(tmp_path, age_s=0.02)
    stop = threading.Event()
    acked: list[list[str]] = [[], []]

    def send(sender: int) -> None:
        while not stop.is_set():
            name = f"{sender}.{len(acked[sender])}"
            log.append("usage", usage_batch(name))
            acked[sender].append(name)

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(2)]
    for thread in threads:
        thread.start()
    at_seal = []
    for turn in range(4):
        until(lambda turn=turn: len(acked[0]) > 10 * (turn + 1) or not threads[0].is_alive())  # type: ignore[misc]
        old = current_epoch(tmp_path, "usage")
        seal_epoch(tmp_path, "usage")
        at_seal.append((old, segments(tmp_path, "usage", old)))
    stop.set()
    for thread in threads:
        thread.join()
    log.close()
    for old, files in at_seal:
        assert segments(tmp_path, "usage", old) == files, "nothing came after the seal"
    log = spool(tmp_path)
    assert sorted(ids(log)) == sorted(acked[0] + acked[1])
    log.close()


@pytest.fixture
def four_epochs(tmp_path: Path) -> Path:
    """Epochs 1 to 3 are sealed and hold one segment each; 4 is the newest."""
    log = spool(tmp_path / "log")
    for turn in range(3):
        log.append("usage", usage_batch(f"r{turn}"))
        log.flush()
        seal_epoch(tmp_path / "log", "usage")
    log.close()
    return tmp_path


def archive_epoch(data: Path, epoch: str) -> None:
    archive_segments(data, "usage", epoch, [file.segment for file in segments(data / "log", "usage", epoch)])


def test_an_epoch_goes_with_its_last_segment_and_the_newest_two_stay(four_epochs: Path) -> None:
    log = four_epochs / "log"
    assert remove_emptied_epochs(log, "usage") == [], "every sealed epoch still holds lines"
    archive_epoch(four_epochs, "000003")
    assert epochs(log, "usage") == ["000001", "000002", "000003", "000004"], "a job may still read the one before the newest"
    archive_epoch(four_epochs, "000001")
    assert epochs(log, "usage") == ["000002", "000003", "000004"]
    archive_epoch(four_epochs, "000002")
    assert epochs(log, "usage") == ["000003", "000004"]
    assert sorted(place.name for place in (log / "usage.full").iterdir()) == ["000003", "000004"]
    reader = spool(log)
    assert ids(reader) == ["r0", "r1", "r2"]
    reader.close()


def test_a_removed_epoch_still_counts_as_sealed_and_one_that_never_was_does_not(four_epochs: Path) -> None:
    archive_epoch(four_epochs, "000001")
    assert is_sealed(four_epochs / "log", "usage", "000001")
    assert segments(four_epochs / "log", "usage", "000001") == []
    assert not is_sealed(four_epochs / "log", "usage", "000005")
    assert not is_sealed(four_epochs / "log", "engine", "000001")


def test_an_empty_epoch_that_is_not_sealed_stays(tmp_path: Path) -> None:
    for epoch in ("000001", "000002", "000003"):
        make_epoch(tmp_path, "usage", epoch)
    assert remove_emptied_epochs(tmp_path, "usage") == []
    assert epochs(tmp_path, "usage") == ["000001", "000002", "000003"]


def test_a_removal_cut_short_is_finished_by_the_next(four_epochs: Path) -> None:
    topic = four_epochs / "log/usage"
    (topic / "000001").rename(topic / ".removed-000001")
    assert epochs(four_epochs / "log", "usage") == ["000002", "000003", "000004"]
    remove_emptied_epochs(four_epochs / "log", "usage")
    assert not (topic / ".removed-000001").exists()

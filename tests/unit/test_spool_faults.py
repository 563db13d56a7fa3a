"""Disks that are full or broken: the append is refused whole, what was acknowledged stays, work goes on when the disk does."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from spool_samples import ids, spool, until, usage_batch

from core.errors import DiskFull, Unavailable
from eventlog.spool import DiskSpace, SpoolLog, SpoolSettings

GIB = 1024**3

RESERVES = [
    # free, total, accepted
    (2 * GIB, 10 * GIB, True),
    (GIB + 4096, 10 * GIB, True),
    (GIB, 10 * GIB, False),  # the batch would eat into the reserve
    (GIB // 2, 10 * GIB, False),
    (3 * GIB, 200 * GIB, False),  # 2 % of 200 GiB are 4 GiB
    (5 * GIB, 200 * GIB, True),
]


@pytest.mark.parametrize(("free", "total", "is_accepted"), RESERVES)
def test_the_reserve_is_the_larger_of_one_gib_and_two_percent(tmp_path: Path, free: int, total: int, is_accepted: bool) -> None:
    log = SpoolLog(tmp_path, SpoolSettings(), lambda: datetime.now(UTC), space=lambda _: DiskSpace(free, total))
    if is_accepted:
        log.append("usage", usage_batch("r1"))
    else:
        with pytest.raises(DiskFull, match="must stay free") as refused:
            log.append("usage", usage_batch("r1"))
        assert refused.value.retry_after_s == 30
        assert list((tmp_path / "usage/000001/.open").iterdir()) == [], "refused before anything was written"
    log.close()


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_cut_short_by_the_system_leaves_nothing_of_the_batch(tmp_path: Path) -> None:
    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    sizes = {path: path.stat().st_size for path in (tmp_path / "usage/000001/.open").iterdir()}
    with largest_file(max(sizes.values()) + 150), pytest.raises(DiskFull, match="nothing of this batch was kept"):
        log.append("usage", usage_batch(*(f"lost{n}" for n in range(10))))
    assert {path: path.stat().st_size for path in sizes} == sizes
    log.append("usage", usage_batch("r2"))
    log.close()
    log = spool(tmp_path)
    assert ids(log) == ["r1", "r2"]
    log.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_really_fills_up_loses_no_acknowledged_line(small_disk: Path) -> None:
    settings = SpoolSettings(segment_age_s=3600, reserve_bytes=0, reserve_percent=0, segment_bytes=40_000)
    log = SpoolLog(small_disk / "log", settings, lambda: datetime.now(UTC), space=lambda _: DiskSpace(GIB, GIB))
    acked: list[str] = []
    refused: DiskFull | None = None
    while refused is None:
        names = [f"{len(acked)}.{part}" for part in range(20)]
        try:
            log.append("usage", usage_batch(*names))
            acked += names
        except DiskFull as error:
            refused = error
    assert refused.retry_after_s > 0
    log.flush()
    assert ids(log) == acked
    for path in sorted((small_disk / "log/usage/000001").glob("*.csv"))[:2]:
        path.unlink()  # somebody makes room
    log.append("usage", usage_batch("again"))
    log.close()


def failing(monkeypatch: pytest.MonkeyPatch, name: str, at_calls: set[int]) -> None:
    """Let the system call fail with EIO at those calls (counted from 1)."""
    real = getattr(os, name)
    calls = [0]

    def sometimes(*args: object) -> object:
        calls[0] += 1
        if calls[0] in at_calls:
            raise OSError(errno.EIO, "Input/output error")
        return real(*args)

    monkeypatch.setattr(os, name, sometimes)


@pytest.mark.parametrize("call", [1, 2])
def test_a_failed_sync_of_either_file_drops_the_batch_from_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    with monkeypatch.context() as patch:
        failing(patch, "fdatasync", {call})
        with pytest.raises(Unavailable, match="Input/output error"):
            log.append("usage", usage_batch("lost"))
    log.append("usage", usage_batch("r2"))
    log.flush()
    assert ids(log) == ["r1", "r2"]
    log.close()


def test_where_even_the_way_back_fails_the_next_append_takes_it_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    with monkeypatch.context() as patch:
        failing(patch, "fdatasync", {1})
        failing(patch, "ftruncate", {1, 2})
        for _ in range(2):
            with pytest.raises(Unavailable):
                log.append("usage", usage_batch("lost"))
    log.append("usage", usage_batch("r2"))
    log.close()
    log = spool(tmp_path)
    assert ids(log) == ["r1", "r2"]
    log.close()


def test_a_segment_that_could_not_be_published_is_published_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    for call in (1, 2):
        with monkeypatch.context() as patch:
            failing(patch, "fsync", {call})
            with pytest.raises(Unavailable, match="could not be published"):
                log.flush()
    log.append("usage", usage_batch("r2"))
    log.flush()
    assert ids(log) == ["r1", "r2"]
    log.close()


def test_a_segment_that_cannot_be_opened_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = spool(tmp_path)
    with monkeypatch.context() as patch:
        failing(patch, "fsync", {1})
        with pytest.raises(Unavailable):
            log.append("usage", usage_batch("lost"))
    assert list((tmp_path / "usage/000001/.open").iterdir()) == []
    log.append("usage", usage_batch("r1"))
    log.flush()
    assert ids(log) == ["r1"]
    log.close()


def test_a_keyboard_interrupt_in_the_middle_of_a_commit_keeps_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    log = spool(tmp_path)
    log.append("usage", usage_batch("r1"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append("usage", usage_batch("lost"))
    log.append("usage", usage_batch("r2"))
    log.flush()
    assert ids(log) == ["r1", "r2"]
    log.close()


def test_a_keyboard_interrupt_while_waiting_in_line_leaves_the_others_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_syncing, go_on = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(handle: int) -> None:
        is_syncing.set()
        go_on.wait()
        real(handle)

    log = spool(tmp_path)
    monkeypatch.setattr(os, "fdatasync", slow)
    line = log._writers["usage"]._waiting
    first = threading.Thread(target=log.append, args=("usage", usage_batch("r1")))
    last = threading.Thread(target=log.append, args=("usage", usage_batch("r2")))

    def interrupt_the_main_thread() -> None:
        until(lambda: len(line) == 1)
        last.start()
        until(lambda: len(line) == 2)
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: len(line) == 1)
        go_on.set()

    first.start()
    is_syncing.wait()
    stranger = threading.Thread(target=interrupt_the_main_thread)
    stranger.start()
    with pytest.raises(KeyboardInterrupt):
        log.append("usage", usage_batch("given up"))
    for thread in (stranger, first, last):
        thread.join()
    log.flush()
    assert ids(log) == ["r1", "r2"]
    log.close()

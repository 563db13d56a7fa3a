"""What every event log backend promises. A further backend is one more class with ``open`` and ``full`` in BACKENDS."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fakes import MemoryDisk, MemoryLog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import BadInput, DiskFull, Unavailable
from core.ports import EventLog, LogBatch, LogLine
from eventlog.spool import DiskSpace, SpoolLog, SpoolSettings

GIB = 1024**3


class SpoolHome:
    """Where spools live that share one folder; ``full`` is the disk's state."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.full = False

    def open(self) -> EventLog:
        return SpoolLog(self._folder, SpoolSettings(), lambda: datetime.now(UTC), space=lambda _: self._space())

    def _space(self) -> DiskSpace:
        return DiskSpace(free_bytes=GIB if self.full else 50 * GIB, total_bytes=100 * GIB)


class MemoryHome:
    def __init__(self, folder: Path) -> None:
        self._disk = MemoryDisk()

    @property
    def full(self) -> bool:
        return self._disk.is_full

    @full.setter
    def full(self, value: bool) -> None:
        self._disk.is_full = value

    def open(self) -> EventLog:
        return MemoryLog(self._disk)


BACKENDS: dict[str, type[SpoolHome] | type[MemoryHome]] = {"spool": SpoolHome, "memory": MemoryHome}
Home = SpoolHome | MemoryHome


@pytest.fixture(params=list(BACKENDS))
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return BACKENDS[request.param](tmp_path / "log")


@pytest.fixture
def log(home: Home) -> Iterator[EventLog]:
    opened = home.open()
    yield opened
    opened.close()


def batch(*names: str) -> LogBatch:
    return LogBatch(list(names), [f'{{"request_id":"{name}"}}'.encode() for name in names])


def settled(home: Home, log: EventLog, topic: str = "usage") -> list[LogLine]:
    """Everything appended so far, read by a log opened afterwards."""
    log.close()
    again = home.open()
    try:
        return list(again.read(topic))  # type: ignore[arg-type]
    finally:
        again.close()


def test_lines_and_records_come_back_in_the_order_of_appending(home: Home, log: EventLog) -> None:
    log.append("usage", batch("a", 'b,"x, y"'))
    log.append("usage", batch("团队"))
    found = settled(home, log)
    assert [one.line for one in found] == ["a", 'b,"x, y"', "团队"]
    assert [one.record for one in found] == [*batch("a", 'b,"x, y"', "团队").records]


def test_a_line_without_record_reads_back_without_one(home: Home, log: EventLog) -> None:
    log.append("engine", LogBatch(["e1"]))
    log.append("fault", LogBatch(['{"kind":"gap"}']))
    assert [(one.line, one.record) for one in list(log.read("engine")) or settled(home, log, "engine")] == [("e1", None)]
    assert [(one.line, one.record) for one in settled(home, log, "fault")] == [('{"kind":"gap"}', None)]


def test_topics_are_apart(home: Home, log: EventLog) -> None:
    log.append("usage", batch("u"))
    log.append("quarantine", LogBatch(["q"]))
    assert [one.line for one in settled(home, log, "quarantine")] == ["q"]


def test_an_ack_names_the_place_of_its_lines(log: EventLog) -> None:
    first, second = log.append("usage", batch("a", "b")), log.append("usage", batch("c"))
    assert (first.topic, first.lines, first.first_line) == ("usage", 2, 0)
    assert second.lines == 1
    assert second.segment != first.segment or second.first_line == 2


@pytest.mark.parametrize("page", [1, 2, 3, 7, 100])
def test_reading_on_from_the_last_offset_gives_each_line_once(home: Home, log: EventLog, page: int) -> None:
    names = [f"r{n}" for n in range(20)]
    for start in range(0, 20, 4):
        log.append("usage", batch(*names[start : start + 4]))
    whole = settled(home, log)
    reader = home.open()
    found: list[LogLine] = []
    while lines := list(reader.read("usage", found[-1].offset if found else None, page)):
        assert len(lines) <= page
        found += lines
    reader.close()
    assert found == whole
    assert [one.line for one in found] == names


def test_offsets_compare_in_reading_order(home: Home, log: EventLog) -> None:
    for n in range(12):
        log.append("usage", batch(f"r{n}", f"s{n}"))
    offsets = [one.offset for one in settled(home, log)]
    assert offsets == sorted(set(offsets))


def test_an_offset_of_another_kind_is_refused(log: EventLog) -> None:
    with pytest.raises(BadInput, match="not an offset"):
        list(log.read("usage", "yesterday"))


BAD_BATCHES = {
    "no line": ("usage", LogBatch([])),
    "fewer records than lines": ("usage", LogBatch(["a", "b"], [b"{}"])),
    "more records than lines": ("usage", LogBatch(["a"], [b"{}", b"{}"])),
    "line break in a line": ("usage", LogBatch(["a\nb"])),
    "carriage return in a line": ("usage", LogBatch(["a\rb"])),
    "NUL in a line": ("usage", LogBatch(["a\0b"])),
    "line break in a record": ("usage", LogBatch(["a"], [b"{\n}"])),
    "two errors that cancel out": ("usage", LogBatch(["a\nb", "c"], [b"{}", b"{}"])),
    "records on a topic that has none": ("fault", LogBatch(["a"], [b"{}"])),
}


@pytest.mark.parametrize("case", list(BAD_BATCHES))
def test_a_batch_that_cannot_be_lines_is_refused_whole(home: Home, log: EventLog, case: str) -> None:
    topic, bad = BAD_BATCHES[case]
    with pytest.raises(BadInput):
        log.append(topic, bad)  # type: ignore[arg-type]
    log.append("usage", batch("good"))
    assert [one.line for one in settled(home, log)] == ["good"]


def test_a_full_disk_refuses_with_retry_and_keeps_what_was_acknowledged(home: Home, log: EventLog) -> None:
    log.append("usage", batch("before"))
    home.full = True
    with pytest.raises(DiskFull) as refused:
        log.append("usage", batch("during"))
    assert refused.value.retryable
    assert refused.value.retry_after_s > 0
    home.full = False
    log.append("usage", batch("after"))
    assert [one.line for one in settled(home, log)] == ["before", "after"]


def test_a_closed_log_takes_nothing(log: EventLog) -> None:
    log.close()
    log.close()
    with pytest.raises(Unavailable):
        log.append("usage", batch("late"))


def test_appenders_at_once_lose_nothing_and_keep_batches_whole(home: Home, log: EventLog) -> None:
    def send(sender: int) -> None:
        for n in range(10):
            log.append("usage", batch(*(f"{sender}.{n}.{part}" for part in range(3))))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [one.line for one in settled(home, log)]
    assert len(found) == len(set(found)) == 8 * 10 * 3
    batches = [tuple(line.rsplit(".", 1)[0] for line in found[start : start + 3]) for start in range(0, len(found), 3)]
    assert all(len(set(group)) == 1 for group in batches)
    for sender in range(8):
        mine = [group[0] for group in batches if group[0].startswith(f"{sender}.")]
        assert mine == [f"{sender}.{n}" for n in range(10)]


def test_two_logs_on_one_store_see_each_others_lines(home: Home, log: EventLog) -> None:
    other = home.open()
    log.append("usage", batch("a"))
    other.append("usage", batch("b"))
    log.append("usage", batch("c"))
    other.close()
    assert sorted(one.line for one in settled(home, log)) == ["a", "b", "c"]


def test_a_reader_that_follows_sees_every_line_without_anyone_closing(log: EventLog) -> None:
    log.append("usage", batch("a"))
    log.append("usage", batch("b"))
    found: list[str] = []
    last = None
    while len(found) < 2:
        for one in log.read("usage", last):
            found.append(one.line)
            last = one.offset
        time.sleep(0.02)
    assert found == ["a", "b"]


TEXT = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=("Cs",)), min_size=1, max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(TEXT, min_size=1, max_size=4), min_size=1, max_size=5))
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_any_text_comes_back_as_it_went_in(
    backend: str, tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]]
) -> None:
    home = BACKENDS[backend](tmp_path_factory.mktemp("log"))
    log = home.open()
    for names in batches:
        log.append("usage", LogBatch(names, [name.encode() for name in names]))
    found = settled(home, log)
    expected = [name for names in batches for name in names]
    assert [one.line for one in found] == expected
    assert [one.record for one in found] == [name.encode() for name in expected]

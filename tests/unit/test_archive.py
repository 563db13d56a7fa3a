"""The archive: by UTC date, nothing lost or doubled whenever it is killed, lines read back as they were."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spool_samples import DAY_MS, HOUR_MS, ids, spool, usage_batch, usage_line

from core.errors import BadInput, Conflict, NotFound
from core.ports import LogBatch, LogLine
from eventlog.archive import archive_segment, archive_segments, contains_ids, ids_since, sweep_archive
from eventlog.archive_manifest import entries, files_of
from eventlog.manifest import segments
from eventlog.reader import read_log

FIRST_DAY = date(1970, 1, 1)


def names(data: Path, topic: str = "usage") -> list[str]:
    return [file.segment for file in segments(data / "log", topic, "000001")]


def lines_of(data: Path, topic: str = "usage") -> list[LogLine]:
    return list(read_log(data / "log", topic, None, 1000))


def parquet_ids(data: Path) -> list[str]:
    return [row for file in files_of(data, "usage") for row in pq.read_table(file, partitioning=None)["request_id"].to_pylist()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four segments: two days, a segment over midnight, names with commas and other scripts, a line without record."""
    log = spool(tmp_path / "log")
    log.append("usage", usage_batch("a1", "a2", finished_ms=HOUR_MS))
    log.flush()
    lines = [usage_line("b1", DAY_MS - 1), usage_line('"b,2"', DAY_MS, model='"通义, 千问"'), usage_line("b3", 0)]
    log.append("usage", LogBatch(lines, [b'{"request_id":"b1"}', '{"request_id":"b,2","raw":"团"}'.encode(), b"{}"]))
    log.flush()
    log.append("usage", LogBatch([usage_line("c1", DAY_MS + 5)]))
    log.flush()
    log.append("usage", usage_batch("d1", finished_ms=3 * DAY_MS))
    log.close()
    return tmp_path


ALL = ["a1", "a2", "b1", "b,2", "b3", "c1", "d1"]


def test_rows_go_to_the_file_of_their_utc_date_and_the_log_lets_go_of_them(data: Path) -> None:
    before = lines_of(data)
    first = names(data)[0]
    paths = archive_segments(data, "usage", "000001", names(data))
    folder = data / "archive/usage"
    assert paths == [folder / f"date=1970-01-0{day}/{first}.parquet" for day in (1, 2, 4)]
    assert [pq.read_table(path, partitioning=None).num_rows for path in paths] == [4, 2, 1]
    assert names(data) == []
    assert list((data / "log/usage.full/000001").iterdir()) == []
    assert lines_of(data) == before, "the log reads on through the archive, byte for byte"


def test_columns_are_typed_and_the_record_is_kept_as_text(data: Path) -> None:
    archive_segments(data, "usage", "000001", names(data))
    [row] = [
        row
        for file in files_of(data, "usage")
        for row in pq.read_table(file, partitioning=None).to_pylist()
        if row["request_id"] == "b,2"
    ]
    assert (row["model_id"], row["finished_ms"], row["input_uncached"], row["line_no"]) == ("通义, 千问", DAY_MS, 10, 1)
    assert row["record"] == '{"request_id":"b,2","raw":"团"}'


def test_one_segment_and_many_give_the_same_rows(data: Path) -> None:
    for segment in names(data):
        archive_segment(data, "usage", "000001", segment)
    assert sorted(parquet_ids(data)) == sorted(ALL)
    assert len(entries(data, "usage")) == 4


def test_archiving_again_changes_nothing_and_names_the_same_files(data: Path) -> None:
    chosen = names(data)
    once = archive_segments(data, "usage", "000001", chosen)
    assert archive_segments(data, "usage", "000001", chosen) == once
    assert archive_segment(data, "usage", "000001", chosen[3]) == once
    assert sorted(parquet_ids(data)) == sorted(ALL)


def test_reading_goes_on_from_an_offset_whose_segment_has_been_archived(data: Path) -> None:
    before = lines_of(data)
    archive_segments(data, "usage", "000001", names(data)[:2])
    for n, one in enumerate(before):
        assert list(read_log(data / "log", "usage", one.offset, 3)) == before[n + 1 : n + 4]


class Killed(BaseException):
    pass


def kill_at(number: int, seen: list[str]) -> Callable[[str], None]:
    def step(name: str) -> None:
        seen.append(name)
        if len(seen) == number:
            raise Killed(name)

    return step


@pytest.mark.parametrize("number", range(1, 14))
def test_a_kill_at_any_step_loses_and_doubles_no_row(data: Path, number: int) -> None:
    before = lines_of(data)
    chosen = names(data)
    seen: list[str] = []
    try:
        archive_segments(data, "usage", "000001", chosen, at_step=kill_at(number, seen))
        assert len(seen) < number
    except Killed:
        assert lines_of(data) == before, f"readers see every line once although killed at {seen[-1]}"
    archive_segments(data, "usage", "000001", chosen)
    assert lines_of(data) == before
    assert sorted(parquet_ids(data)) == sorted(ALL)
    assert sorted(path for path in (data / "archive/usage").rglob("*.parquet")) == sorted(files_of(data, "usage"))
    assert not (data / "archive/usage/.pending.json").exists()


def test_the_kills_cover_every_step(data: Path) -> None:
    seen: list[str] = []
    archive_segments(data, "usage", "000001", names(data), at_step=kill_at(0, seen))
    assert len(seen) < 13
    assert {name.split()[0] for name in seen} == {"intent", "file", "manifest", "remove", "records", "clear"}


@pytest.mark.parametrize("number", range(1, 10))
def test_a_kill_followed_by_another_selection_settles_the_first(data: Path, number: int) -> None:
    chosen = names(data)
    with pytest.raises(Killed):
        archive_segments(data, "usage", "000001", chosen[:3], at_step=kill_at(number, []))
    archive_segment(data, "usage", "000001", chosen[3])
    archive_segments(data, "usage", "000001", chosen)
    assert sorted(parquet_ids(data)) == sorted(ALL)
    assert names(data) == []


def test_a_torn_manifest_line_counts_for_nothing_and_is_cut(data: Path) -> None:
    chosen = names(data)
    archive_segments(data, "usage", "000001", chosen[:2])
    manifest = data / "archive/usage/manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes() + b'{"seq":[3,3],"epo')
    archive_segments(data, "usage", "000001", chosen[2:])
    assert sorted(parquet_ids(data)) == sorted(ALL)


def test_a_log_folder_restored_from_a_backup_doubles_nothing(data: Path) -> None:
    shutil.copytree(data / "log", data / "backup")
    chosen = names(data)
    before = lines_of(data)
    archive_segments(data, "usage", "000001", chosen)
    shutil.rmtree(data / "log")
    (data / "backup").rename(data / "log")
    assert lines_of(data) == before
    archive_segments(data, "usage", "000001", chosen)
    assert names(data) == []
    assert sorted(parquet_ids(data)) == sorted(ALL)


def test_another_segment_of_an_archived_name_is_a_conflict(data: Path) -> None:
    segment = names(data)[0]
    archive_segment(data, "usage", "000001", segment)
    (data / f"log/usage/000001/{segment}.1.csv").write_text(f"{usage_line('x')},{segment}\n")
    with pytest.raises(Conflict, match="2 lines under this name"):
        archive_segment(data, "usage", "000001", segment)


def test_what_is_nowhere_is_named(data: Path) -> None:
    with pytest.raises(NotFound, match="00000000-000000009999"):
        archive_segment(data, "usage", "000001", "00000000-000000009999")


def test_a_segment_with_other_than_its_stated_lines_is_left_in_the_log(data: Path) -> None:
    [file, *_] = segments(data / "log", "usage", "000001")
    file.path.write_bytes(file.path.read_bytes()[:-40])
    with pytest.raises(BadInput, match="has not the 2 lines"):
        archive_segment(data, "usage", "000001", file.segment)
    assert file.path.exists()


def test_a_topic_without_archive_is_refused(data: Path) -> None:
    with pytest.raises(BadInput, match="not archived"):
        archive_segment(data, "fault", "000001", "00000000-000000000001")


def test_warm_up_lines_fill_dedupe_state_and_are_not_archived_again(tmp_path: Path) -> None:
    log = spool(tmp_path / "log")
    log.append("usage", LogBatch([usage_line("old", counted=0), usage_line("new")]))
    log.close()
    archive_segments(tmp_path, "usage", "000001", names(tmp_path))
    assert parquet_ids(tmp_path) == ["new"]


def test_engine_samples_keep_their_payload(tmp_path: Path) -> None:
    line = f't|0|m|{DAY_MS},http://h:8000,0,c,n,m,,{DAY_MS},"{{""p"":null,""c"":{{""steps"":3}},""g"":{{}}}}"'
    log = spool(tmp_path / "log")
    log.append("engine", LogBatch([line], [b'{"schema":"engine/1"}']))
    log.close()
    before = lines_of(tmp_path, "engine")
    [path] = archive_segments(tmp_path, "engine", "000001", names(tmp_path, "engine"))
    assert path.parent.name == "date=1970-01-02"
    assert lines_of(tmp_path, "engine") == before
    assert before[0].line == line


def test_the_sweep_drops_whole_days_and_keeps_the_rest_readable(data: Path) -> None:
    before = lines_of(data)
    archive_segments(data, "usage", "000001", names(data))
    removed = sweep_archive(data, "usage", date(1970, 1, 2))
    assert [path.parent.name for path in removed] == ["date=1970-01-01"]
    assert sorted(parquet_ids(data)) == ["b,2", "c1", "d1"]
    assert [one.offset for one in lines_of(data)] == [before[n].offset for n in (3, 5, 6)]
    assert sweep_archive(data, "usage", date(1970, 1, 2)) == []


def test_the_sweep_of_everything_leaves_numbers_that_go_on(data: Path) -> None:
    last = lines_of(data)[-1].offset
    archive_segments(data, "usage", "000001", names(data))
    sweep_archive(data, "usage", date(2000, 1, 1))
    log = spool(data / "log")
    log.append("usage", usage_batch("e1"))
    log.flush()
    assert [one.line.split(",")[0] for one in log.read("usage", last)] == ["e1"]
    assert ids(log) == ["e1"]
    log.close()


def test_late_records_find_their_ids(data: Path) -> None:
    assert contains_ids(data, ["a1"]) == set(), "nothing is archived yet"
    archive_segments(data, "usage", "000001", names(data))
    assert contains_ids(data, ["a1", "b,2", "d1", "zz"]) == {"a1", "b,2", "d1"}
    assert contains_ids(data, ["a1", "b,2", "d1"], date(1970, 1, 2)) == {"b,2", "d1"}
    assert contains_ids(data, ["a1", "d1"], datetime(1970, 1, 4, 5, tzinfo=UTC)) == {"d1"}
    assert contains_ids(data, []) == set()


def test_warm_up_rows_are_lines_of_weight_zero_one_per_id(data: Path) -> None:
    log = spool(data / "log")
    log.append("usage", usage_batch("d1", finished_ms=3 * DAY_MS + 7))
    log.close()
    archive_segments(data, "usage", "000001", names(data))
    rows = list(ids_since(data, date(1970, 1, 2)))
    assert sorted((row[0], row[2], row[-1]) for row in rows) == [("b,2", DAY_MS, 0), ("c1", DAY_MS + 5, 0), ("d1", 3 * DAY_MS, 0)]
    assert list(ids_since(data, date(2000, 1, 1))) == []
    assert list(ids_since(data / "elsewhere", FIRST_DAY)) == []


def test_many_rows_over_several_days_are_read_back_in_order_from_any_offset(tmp_path: Path) -> None:
    """More rows than one record batch; neighbours lie in files of different dates."""
    log = spool(tmp_path / "log")
    for part in range(2):
        numbers = range(part * 20_000, (part + 1) * 20_000)
        lines = [usage_line(f"r{n}", n % 3 * DAY_MS, model='"a,b"' if n % 7 == 0 else "m") for n in numbers]
        log.append("usage", LogBatch(lines, [b"" if n % 5 == 0 else f'{{"n":{n}}}'.encode() for n in numbers]))
        log.flush()
    log.close()
    before = list(read_log(tmp_path / "log", "usage", None, 50_000))
    archive_segments(tmp_path, "usage", "000001", names(tmp_path))
    assert list(read_log(tmp_path / "log", "usage", None, 50_000)) == before
    assert before[30_000].record is None
    for n in (0, 16_383, 19_999, 20_000, 39_000):
        assert list(read_log(tmp_path / "log", "usage", before[n].offset, 700)) == before[n + 1 : n + 701]


def test_entries_that_interleave_are_read_in_order_of_their_segments(data: Path) -> None:
    before, chosen = lines_of(data), names(data)
    archive_segments(data, "usage", "000001", [chosen[0], chosen[2]])
    archive_segments(data, "usage", "000001", [chosen[1], chosen[3]])
    assert lines_of(data) == before


def test_a_time_before_1970_belongs_to_the_day_it_lies_in(tmp_path: Path) -> None:
    log = spool(tmp_path / "log")
    log.append("usage", usage_batch("old", finished_ms=-1))
    log.close()
    [path] = archive_segments(tmp_path, "usage", "000001", names(tmp_path))
    assert path.parent.name == "date=1969-12-31"


@pytest.mark.parametrize(("old", "new"), [(b",10,", b",ten,"), (b",c,n,", b",c,"), (b",c,", b",\xff,")])
def test_a_line_that_is_not_one_of_its_topic_is_named_and_left_in_the_log(data: Path, old: bytes, new: bytes) -> None:
    file = segments(data / "log", "usage", "000001")[2]
    file.path.write_bytes(file.path.read_bytes().replace(old, new, 1))
    with pytest.raises(BadInput, match=file.path.name):
        archive_segments(data, "usage", "000001", names(data))
    assert file.path.exists()


def test_a_reader_in_the_middle_of_a_swept_day_reads_on(data: Path) -> None:
    before = lines_of(data)
    archive_segments(data, "usage", "000001", names(data))
    reading = read_log(data / "log", "usage", None, 1000)
    assert next(reading) == before[0]
    sweep_archive(data, "usage", date(2000, 1, 1))
    assert list(reading) == before[1:], "open files stay whole"


def test_a_file_lost_without_a_sweep_is_an_error(data: Path) -> None:
    [path, *_] = archive_segments(data, "usage", "000001", names(data))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        lines_of(data)

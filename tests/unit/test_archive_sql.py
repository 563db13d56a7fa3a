"""One rule in two forms: the archive's DuckDB query gives the rows ``core.usage.slices`` gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spool_samples import DAY_MS, spool, usage_line

from core.ports import LogBatch
from core.tokens import MAX_TOKENS, TokenCounts
from core.usage import Deployment, TenantPath, UsageRecord, encode_line, line_fields, slices
from core.windows import MINUTE_MS, Window, epoch_ms
from eventlog.archive import archive_segments, sweep_archive
from eventlog.archive_manifest import files_of
from eventlog.archive_sql import MINUTE_KEYS, MINUTE_MEASURES, query_archive, usage_minutes
from eventlog.manifest import segments
from models.tables_usage import USAGE_KEYS, USAGE_MEASURES

BASE = datetime(2026, 11, 29, 23, 58, tzinfo=UTC)
WHOLE = Window(datetime(2026, 11, 29, 0, tzinfo=UTC), datetime(2026, 12, 1, 0, tzinfo=UTC))
Minutes = dict[tuple[int, tuple[str | int, ...]], tuple[int, ...]]


def test_the_columns_are_those_of_the_rollup() -> None:
    assert MINUTE_KEYS == USAGE_KEYS
    assert MINUTE_MEASURES == USAGE_MEASURES


COUNT = st.integers(0, 5000) | st.sampled_from([0, 1, MAX_TOKENS])


@st.composite
def records(draw: st.DrawFn) -> UsageRecord:
    started = BASE + timedelta(milliseconds=draw(st.integers(0, 240_000)))
    wait_ms, span_ms = draw(st.integers(0, 60_000)), draw(st.sampled_from([0, 1, 59_999, 60_000]) | st.integers(0, 600_000))
    output = draw(COUNT)
    reasoning = draw(st.integers(0, output))
    name = draw(st.sampled_from(["m", "通义, 千问", "a b"]))
    return UsageRecord(
        request_id=f"r{draw(st.integers(0, 8))}",
        started_at=started,
        first_token_at=draw(st.sampled_from([None, started + timedelta(milliseconds=wait_ms)])),
        finished_at=started + timedelta(milliseconds=wait_ms + span_ms),
        deployment=Deployment("c", "n", name),
        tenant=TenantPath("o", draw(st.sampled_from(["", "t1"])), "p", "u", "k"),
        tokens=TokenCounts(draw(COUNT), draw(COUNT), draw(COUNT), draw(COUNT), output, reasoning),
        status=draw(st.sampled_from(["ok", "aborted", "error"])),
        ends_operation=draw(st.sampled_from([None, True, False])),
    )


def by_core(found: list[UsageRecord], window: Window) -> Minutes:
    """The rollup by the rule itself; of records with one id the first counts."""
    sums: dict[tuple[int, tuple[str | int, ...]], list[int]] = defaultdict(lambda: [0] * len(MINUTE_MEASURES))
    firsts: dict[str, UsageRecord] = {}
    for one in found:
        firsts.setdefault(one.request_id, one)
    for one in firsts.values():
        fields = line_fields(one)
        for cut in slices(int(fields[1]), int(fields[2]), one.tokens, *map(int, fields[21:24])):
            if not epoch_ms(window.start) <= cut.minute_ms < epoch_ms(window.end):
                continue
            t = cut.tokens
            more = (
                cut.requests, t.input_uncached, t.input_cache_read, t.input_cache_write_5m, t.input_cache_write_1h,
                t.output, t.output_reasoning, cut.prefill_context, cut.kv_work_x2, cut.duration_ms,
                cut.repeated_input, cut.operations, cut.end_unknown,
            )  # fmt: skip
            row = sums[cut.minute_ms, tuple(fields[3:15])]
            row[:] = [a + b for a, b in zip(row, more, strict=True)]
    return {key: tuple(row) for key, row in sums.items()}


def by_archive(data: Path, window: Window) -> Minutes:
    return {(epoch_ms(row.minute), row.keys): row.measures for row in usage_minutes(data, window)}


def archived(data: Path, batches: list[list[UsageRecord]]) -> None:
    log = spool(data / "log")
    for batch in batches:
        log.append("usage", LogBatch([encode_line(line_fields(one)) for one in batch], [b"{}"] * len(batch)))
        log.flush()
    log.close()
    names = [file.segment for file in segments(data / "log", "usage", "000001")]
    for start in range(0, len(names), 2):
        archive_segments(data, "usage", "000001", names[start : start + 2])


@settings(max_examples=25, deadline=None)
@given(batches=st.lists(st.lists(records(), min_size=1, max_size=6), min_size=1, max_size=4), cut_minutes=st.integers(1, 10))
def test_archive_and_core_give_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[UsageRecord]], cut_minutes: int
) -> None:
    data = tmp_path_factory.mktemp("data")
    archived(data, batches)
    found = [one for batch in batches for one in batch]
    assert by_archive(data, WHOLE) == by_core(found, WHOLE)
    middle = BASE + timedelta(minutes=cut_minutes)
    parts = [Window(WHOLE.start, middle), Window(middle, WHOLE.end)]
    for part in parts:
        assert by_archive(data, part) == by_core(found, part)
    assert by_archive(data, parts[0]) | by_archive(data, parts[1]) == by_archive(data, WHOLE)


def test_an_empty_archive_has_no_minutes(tmp_path: Path) -> None:
    assert usage_minutes(tmp_path, WHOLE) == []


def test_the_largest_request_does_not_overflow(tmp_path: Path) -> None:
    most = TokenCounts(MAX_TOKENS, MAX_TOKENS, MAX_TOKENS, MAX_TOKENS, MAX_TOKENS, MAX_TOKENS)
    one = UsageRecord(
        request_id="big",
        started_at=BASE,
        first_token_at=BASE,
        finished_at=BASE + timedelta(hours=1),
        deployment=Deployment("c", "n", "m"),
        tenant=TenantPath("o"),
        tokens=most,
    )
    archived(tmp_path, [[one]])
    found = by_archive(tmp_path, WHOLE)
    assert found == by_core([one], WHOLE)
    assert sum(row[5] for row in found.values()) == MAX_TOKENS
    assert len(found) == 3600_000 // MINUTE_MS + 1


class SweepsWhenAsked(Mapping[str, object]):
    """Parameters of a query which retention overtakes: after its files were listed, before they are read."""

    def __init__(self, sweep: Callable[[], object]) -> None:
        self._sweep = sweep

    def __getitem__(self, key: str) -> object:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        self._sweep()
        return iter(())

    def __len__(self) -> int:
        return 0


def two_days(data: Path) -> None:
    lines = [usage_line("first", 0), usage_line("second", DAY_MS)]
    log = spool(data / "log")
    log.append("usage", LogBatch(lines, [b'{"a":1}', b'{"a":2}']))
    log.close()
    archive_segments(data, "usage", "000001", [file.segment for file in segments(data / "log", "usage", "000001")])


IDS = "SELECT DISTINCT request_id FROM {read}"


def test_a_query_overtaken_by_retention_answers_from_what_is_left(tmp_path: Path) -> None:
    two_days(tmp_path)
    part = SweepsWhenAsked(lambda: sweep_archive(tmp_path, "usage", date(1970, 1, 2)))
    assert list(query_archive(tmp_path, "usage", IDS, part)) == [("second",)]


def test_a_query_overtaken_by_the_sweep_of_everything_has_no_rows(tmp_path: Path) -> None:
    two_days(tmp_path)
    part = SweepsWhenAsked(lambda: sweep_archive(tmp_path, "usage", date(2000, 1, 1)))
    assert list(query_archive(tmp_path, "usage", IDS, part)) == []


def test_a_file_lost_without_a_sweep_is_an_error_not_a_smaller_sum(tmp_path: Path) -> None:
    two_days(tmp_path)
    files_of(tmp_path, "usage")[0].unlink()
    with pytest.raises(duckdb.IOException):
        list(query_archive(tmp_path, "usage", IDS, {}))


def test_minutes_need_no_full_record(tmp_path: Path) -> None:
    two_days(tmp_path)
    window = Window(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 3, tzinfo=UTC))
    before = usage_minutes(tmp_path, window)
    for path in files_of(tmp_path, "usage"):
        pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["record"]), path)
    assert usage_minutes(tmp_path, window) == before
    assert [type(value) for row in before for value in row.measures] == [int] * 2 * len(MINUTE_MEASURES)

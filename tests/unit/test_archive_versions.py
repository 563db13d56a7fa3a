"""Lines and Parquet files of version 0.1.0, which had no ``ends_operation``, are archived, read back and summed by name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from spool_samples import spool, usage_line

from core.ports import LogBatch
from core.windows import Window
from eventlog.archive import archive_segments, ids_since
from eventlog.archive_manifest import files_of
from eventlog.archive_sql import MINUTE_MEASURES, usage_minutes
from eventlog.manifest import segments
from eventlog.spool import read_log

DAY = Window(datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 2, tzinfo=UTC))
NEW = [usage_line("ok"), usage_line("failed").replace(",ok,", ",error,").replace(",1,1", ",-1,1")]


def without_end(line: str) -> str:
    return ",".join(field for place, field in enumerate(line.split(",")) if place != 23)


@pytest.fixture(params=["line", "file", "both kinds in one pack"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    log = spool(tmp_path / "log")
    first = NEW if request.param == "file" else [without_end(line) for line in NEW]
    batches = [first] if request.param != "both kinds in one pack" else [first[:1], NEW[1:]]
    for lines in batches:
        log.append("usage", LogBatch(lines))
        log.flush()
    log.close()
    archive_segments(tmp_path, "usage", "000001", [file.segment for file in segments(tmp_path / "log", "usage", "000001")])
    if request.param == "file":
        for path in files_of(tmp_path, "usage"):
            pq.write_table(pq.read_table(path, partitioning=None).drop_columns(["ends_operation"]), path)
    return tmp_path


def test_minutes_count_operations(data: Path) -> None:
    found = usage_minutes(data, DAY)
    sums = {row.keys[9]: dict(zip(MINUTE_MEASURES, row.measures, strict=True)) for row in found}
    assert {status: (row["requests"], row["operations"], row["end_unknown"]) for status, row in sums.items()} == {
        "ok": (1, 1, 0),
        "error": (1, 0, 1),
    }


def test_rows_are_read_back_as_lines_of_now(data: Path) -> None:
    assert [line.line for line in read_log(data / "log", "usage", None, 10)] == NEW
    assert sorted(row[23] for row in ids_since(data, DAY.start.date())) == [-1, 1]

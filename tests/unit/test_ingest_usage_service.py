"""The boundary: what is accepted is in the log, what is not has a reason on file, and sending again adds nothing."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from usage_samples import NOW, MemoryLog, ingest_into, parsed, usage_item

from core.errors import DiskFull
from core.usage import LINE_COLUMNS
from core.usage_codec import decode_usage
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.usage.service import RecentIds, UsageIngest, Verdict


def body(*items: Any) -> bytes:
    return json.dumps(list(items)).encode()


def accept(ingest: UsageIngest, *items: Any) -> list[Verdict]:
    return ingest.accept(parsed("usage", body(*items)), source="api")


def test_one_verdict_per_row_in_order() -> None:
    log = MemoryLog()
    late = {"started_at": (NOW + timedelta(minutes=6)).isoformat(), "first_token_at": None}
    future = usage_item(5, **late, finished_at=late["started_at"])
    verdicts = accept(ingest_into(log), usage_item(1), usage_item(2, status="odd"), usage_item(1), 7, future, usage_item(3))
    assert [(v.position, v.verdict, v.field) for v in verdicts] == [
        (0, "accepted", ""),
        (1, "quarantined", "status"),
        (2, "duplicate", "request_id"),
        (3, "quarantined", "record"),
        (4, "quarantined", "finished_at"),
        (5, "accepted", ""),
    ]
    assert "5 minutes" in verdicts[4].reason
    assert verdicts[1].request_id == "chatcmpl-2:generation"
    assert [len(batch.lines) for batch in log.batches["usage"]] == [2]


def test_the_line_and_the_record_say_the_same() -> None:
    log = MemoryLog()
    accept(ingest_into(log), usage_item(1), usage_item(2, tenant={"org": "a, b"}, n=2))
    lines = [dict(zip(LINE_COLUMNS, row, strict=True)) for row in csv.reader(log.lines("usage"))]
    for line, record in zip(lines, log.records(), strict=True):
        found = decode_usage(record)
        assert line["request_id"] == found.request_id
        assert line["org"] == found.tenant.org
        assert int(line["input_uncached"]) == found.tokens.input_uncached
        assert int(line["finished_ms"]) == int(found.finished_at.timestamp() * 1000)
    assert lines[1]["org"] == "a, b"


@pytest.mark.parametrize(("minutes", "verdict"), [(5, "accepted"), (5.001, "quarantined"), (-60 * 24 * 365, "accepted")])
def test_the_future_ends_five_minutes_ahead(minutes: float, verdict: str) -> None:
    at = (NOW + timedelta(minutes=minutes)).isoformat()
    log = MemoryLog()
    (found,) = accept(ingest_into(log), usage_item(1, started_at=at, first_token_at=None, finished_at=at))
    assert found.verdict == verdict


def test_sending_again_is_a_duplicate_until_the_window_is_left() -> None:
    log = MemoryLog()
    ingest = ingest_into(log)
    assert [v.verdict for v in accept(ingest, usage_item(1)) + accept(ingest, usage_item(1))] == ["accepted", "duplicate"]
    assert len(log.lines("usage")) == 1


def test_old_records_are_looked_up_in_the_archive() -> None:
    old = (NOW - timedelta(days=8)).isoformat()
    asked: list[set[str]] = []

    def archive_has(ids: Any) -> set[str]:
        asked.append(set(ids))
        return {"chatcmpl-1:generation"}

    log = MemoryLog()
    ingest = UsageIngest(log, now=lambda: NOW, ensure_partitions=lambda _: None, archive_has=archive_has)
    times = {"started_at": old, "first_token_at": None, "finished_at": old}
    verdicts = accept(ingest, usage_item(1, **times), usage_item(2, **times), usage_item(3))
    assert [v.verdict for v in verdicts] == ["duplicate", "accepted", "accepted"]
    assert asked == [{"chatcmpl-1:generation", "chatcmpl-2:generation"}]
    assert [record["request_id"] for record in log.records()] == ["chatcmpl-2:generation", "chatcmpl-3:generation"]


def test_partitions_exist_before_the_batch_is_appended() -> None:
    log, days = MemoryLog(), []
    ingest = ingest_into(log, days=days)
    edge = {"started_at": "2026-10-31T23:59:58Z", "first_token_at": "2026-10-31T23:59:59Z", "finished_at": "2026-11-01T00:00:01Z"}
    accept(ingest, usage_item(1, **edge))
    assert days == [datetime(2026, 10, 31, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)]
    accept(ingest, usage_item(2, **edge))
    assert len(days) == 2


def test_a_full_disk_accepts_nothing_and_forgets_nothing() -> None:
    log = MemoryLog()
    ingest = ingest_into(log)
    log.full = True
    with pytest.raises(DiskFull):
        accept(ingest, usage_item(1))
    log.full = False
    assert accept(ingest, usage_item(1))[0].verdict == "accepted"


def test_quarantine_lines_are_stable_and_hold_no_text() -> None:
    bad = usage_item(1, status="odd", messages=[{"content": "SECRET"}], note="SECRET " * 40)
    logs = [MemoryLog(), MemoryLog()]
    for log in logs:
        accept(ingest_into(log), bad, "SECRET prose in a string")
    first, second = (log.quarantined() for log in logs)
    assert [line["id"] for line in first] == [line["id"] for line in second]
    assert len({line["id"] for line in first}) == 2
    line = first[0]
    assert set(line) == {"id", "received_at", "source", "place", "field", "reason", "body"}
    assert (line["source"], line["place"], line["field"]) == ("api", "api:0", "status")
    assert line["body"]["tokens"]["output"] == 7
    assert "SECRET" not in json.dumps(first)
    assert first[1]["body"] == {"type": "str", "size": 24}


def test_unmapped_fields_are_counted() -> None:
    ingest = ingest_into(MemoryLog())
    raw = {"prompt_tokens": 1, "completion_tokens": 1, "foo_tokens": 7}
    accept(ingest, usage_item(1, raw=raw), usage_item(2, raw=raw, region="eu"))
    assert ingest.unmapped == {"foo_tokens": 2, "region": 1}


def test_recent_ids_keep_at_least_their_size() -> None:
    recent = RecentIds(size=3)
    recent.add(["a", "b", "c"])
    recent.add(["d"])
    assert recent.among(list("abcdx")) == set("abcd")
    recent.add(["e", "f"])
    recent.add(["g", "h", "i"])
    assert "a" not in recent.among(["a", "g"])
    assert recent.among(list("ghi")) == set("ghi")


def test_the_spool_keeps_what_was_accepted(tmp_path: Path) -> None:
    log = SpoolLog(tmp_path / "log", SpoolSettings(reserve_bytes=0, reserve_percent=0), now=lambda: datetime.now(UTC))
    ingest = UsageIngest(log, now=lambda: NOW, ensure_partitions=lambda _: None, archive_has=lambda _: set())
    accept(ingest, usage_item(1), usage_item(2, status="odd"), usage_item(3))
    log.flush()
    kept = [json.loads(line.record or b"{}")["request_id"] for line in log.read("usage")]
    assert kept == ["chatcmpl-1:generation", "chatcmpl-3:generation"]
    assert [json.loads(line.line)["field"] for line in log.read("quarantine")] == ["status"]
    log.close()

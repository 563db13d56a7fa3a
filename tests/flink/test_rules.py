"""The pure parts of the stream: length buckets, order of engine lines, what counts as consumed, what the next start must be."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Conflict
from core.lengths import bucket, bucket_sql
from eventlog.layout import SegmentFile
from streaming import checkpoints
from streaming.backlog import FURTHER_CHECKPOINTS, Backlog, Consumption
from streaming.feed import Feed
from streaming.phases import next_phase, read_folder
from streaming.plan import Plan, current_plan
from streaming.process import only_run
from streaming.settings import StreamSettings

NOW = datetime(2026, 11, 30, tzinfo=UTC)
PLAN = current_plan(7)


@given(st.integers(1, 4 * 100_000_000))
def test_a_bucket_holds_its_lengths_exactly(length: int) -> None:
    b = bucket(length)
    assert 2**b <= length**4 < 2 ** (b + 1)


def test_python_and_sql_agree_at_every_edge() -> None:
    edges = {n for b in range(4 * 29) for n in (int(2 ** (b / 4)) + d for d in (-1, 0, 1, 2)) if n >= 0}
    with duckdb.connect() as connection:
        rows = connection.execute(
            f"SELECT n, {bucket_sql('n')} FROM (SELECT unnest(?::BIGINT[]) AS n)", [sorted(edges)]
        ).fetchall()
    assert rows == [(n, bucket(n)) for n in sorted(edges)]


def segment(folder: Path, number: int, lines: list[tuple[str, int]]) -> SegmentFile:
    name = f"aaaaaaaa-{number:012d}"
    path = folder / f"{name}.{len(lines)}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    payload = '"{""c"":{},""g"":{}}"'
    rows = [f'id,"t,1",{engine},c,ns,m,node,{at},{payload},{name}\n' for engine, at in lines]
    path.write_text("".join(rows), encoding="utf-8")
    return SegmentFile(name, len(lines), path, "000001")


def ats(path: Path) -> list[int]:
    return [int(line.split(",")[8]) for line in path.read_text().splitlines()]


def test_engine_lines_are_released_in_order_of_time_and_one_file_after_the_other(tmp_path: Path) -> None:
    first = [segment(tmp_path / "log", 2, [("a", 50), ("b", 20)]), segment(tmp_path / "log", 3, [("a", 10), ("b", 30)])]
    later = segment(tmp_path / "log", 4, [("a", 60)])
    feed = Feed(tmp_path / "feed")
    assert feed.release(Backlog("engine", tuple(first), {})) == 2
    assert ats(tmp_path / "feed/000000001.csv") == [10, 20, 30, 50]
    assert feed.release(Backlog("engine", (*first, later), {first[0].segment: 2, first[1].segment: 1})) == 0, "not yet applied"
    assert feed.release(Backlog("engine", (*first, later), {s.segment: 2 for s in first})) == 1
    assert ats(tmp_path / "feed/000000002.csv") == [60]


@pytest.mark.parametrize("torn", ["", '{"file": "0000'])
def test_a_feed_killed_before_the_rename_releases_no_line_twice(tmp_path: Path, torn: str) -> None:
    one = segment(tmp_path / "log", 1, [("a", 1)])
    Feed(tmp_path / "feed").release(Backlog("engine", (one,), {}))
    (tmp_path / "feed/000000001.csv").rename(tmp_path / "feed/.000000001.csv")
    with (tmp_path / "feed/.fed.jsonl").open("a") as notes:
        notes.write(torn)
    again = Feed(tmp_path / "feed")
    assert ats(tmp_path / "feed/000000001.csv") == [1]
    assert again.release(Backlog("engine", (one,), {one.segment: 1})) == 0


def test_a_segment_is_consumed_only_after_further_settled_checkpoints(tmp_path: Path) -> None:
    one = segment(tmp_path, 1, [("a", 1), ("a", 2)])
    consumption = Consumption()
    assert consumption.consumed(Backlog("usage", (one,), {one.segment: 1}), newest=9, settled=9) == []
    whole = Backlog("usage", (one,), {one.segment: 2})
    seen = 10
    found = [bool(consumption.consumed(whole, newest=n, settled=n)) for n in range(seen, seen + 6)]
    assert found == [n >= seen + 1 + FURTHER_CHECKPOINTS for n in range(seen, seen + 6)]


@pytest.fixture
def settings(tmp_path: Path) -> StreamSettings:
    return StreamSettings(tmp_path, "postgresql://unused")


def completed(settings: StreamSettings, plan: Plan, usage: str = "000001", engine: str = "000001") -> None:
    run = checkpoints.start_run(settings.checkpoints, plan, {"usage": usage, "engine": engine})
    (run.folder / "job/chk-7").mkdir(parents=True)
    (run.folder / "job/chk-7/_metadata").touch()


def seal(settings: StreamSettings, *epochs: str) -> None:
    for topic in ("usage", "engine"):
        for epoch in epochs:
            (settings.log / topic / epoch).mkdir(parents=True, exist_ok=True)
        (settings.log / topic / epochs[0] / "_SEALED").touch()


def test_the_first_start_has_no_state(settings: StreamSettings) -> None:
    phase = next_phase(settings, PLAN)
    assert (phase.epochs, phase.restore, phase.new_sources) == ({"usage": "000001", "engine": "000001"}, "", False)


def test_an_equal_plan_recovers_from_the_newest_run_that_completed_a_checkpoint(settings: StreamSettings) -> None:
    completed(settings, PLAN)
    checkpoints.start_run(settings.checkpoints, PLAN, {"usage": "000001", "engine": "000001"})
    phase = next_phase(settings, PLAN)
    assert phase.restore.endswith("checkpoints/000001/job/chk-7")
    assert not phase.new_sources


def test_a_done_epoch_is_followed_by_the_next_with_new_sources(settings: StreamSettings) -> None:
    completed(settings, PLAN)
    seal(settings, "000001", "000002")
    phase = next_phase(settings, PLAN)
    assert phase.epochs == {"usage": "000002", "engine": "000002"}
    assert phase.new_sources
    segment(settings.log / "usage/000001", 1, [("a", 1)])
    assert next_phase(settings, PLAN).epochs["usage"] == "000001", "a visible segment keeps the epoch"


def test_a_changed_plan_drains_the_old_one_and_then_warms_up(settings: StreamSettings) -> None:
    old = dataclasses.replace(PLAN, inserts=("INSERT INTO usage_delta SELECT 1",))
    completed(settings, old)
    draining = next_phase(settings, PLAN)
    assert (draining.plan, draining.drain) == (old, True)
    assert draining.restore
    seal(settings, "000001", "000002")
    warming = next_phase(settings, PLAN)
    assert (warming.plan, warming.epochs["usage"], warming.restore) == (PLAN, "warmup-000002", "")
    completed(settings, PLAN, "warmup-000002", "warmup-000002")
    file = read_folder(settings, "usage", "warmup-000002") / "warmup-000002.1.csv"
    file.parent.mkdir(parents=True)
    file.touch()
    assert next_phase(settings, PLAN).epochs == {"usage": "warmup-000002", "engine": "warmup-000002"}
    file.unlink()
    assert next_phase(settings, PLAN).epochs == {"usage": "000002", "engine": "000002"}


def test_a_damaged_run_description_is_refused_not_guessed(settings: StreamSettings) -> None:
    completed(settings, PLAN)
    (settings.checkpoints / "000001/run.json").write_text("{")
    with pytest.raises(Conflict, match=r"run\.json is damaged"):
        next_phase(settings, PLAN)


def test_a_plan_survives_being_stored() -> None:
    assert Plan.from_dict(json.loads(json.dumps(PLAN.to_dict()))) == PLAN


@pytest.mark.parametrize("change", [{"state_ttl_ms": 1}, {"flink": "2.3"}, {"views": ()}, {"engine_state": "engine.other"}])
def test_whatever_decides_the_state_changes_the_fingerprint(change: dict[str, object]) -> None:
    assert dataclasses.replace(PLAN, **change).fingerprint != PLAN.fingerprint  # type: ignore[arg-type]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with only_run(tmp_path), pytest.raises(Conflict, match="already runs"), only_run(tmp_path):
        pass


def test_settings_say_which_field_is_wrong(tmp_path: Path) -> None:
    assert StreamSettings.from_json(StreamSettings(tmp_path, "u", parallelism=3).to_json()).parallelism == 3
    with pytest.raises(Exception, match="parallelism"):
        StreamSettings(tmp_path, "u", parallelism=0)

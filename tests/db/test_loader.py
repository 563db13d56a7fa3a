"""Every delta file is added once: whole or not at all, in any order, however often it is seen."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from delta_rows import MINUTE, NOW, SUMS, file_name, put, total, usage_row
from sqlalchemy import Engine, text

from core.ports import LogBatch
from eventlog.spool import SpoolLog, SpoolSettings
from models.database import open_engine
from models.tables_usage import ENGINE_MEASURES
from streaming import delta_files, loader
from streaming.delta_columns import delta_folder
from streaming.load_sql import ROLLUPS
from streaming.loader import Loader, rebuild
from streaming.plan import DELTAS

pytestmark = pytest.mark.db


@pytest.fixture
def load(db: Engine, tmp_path: Path) -> Callable[[], int]:
    return Loader(db, tmp_path, lambda: NOW).run_once


def test_minute_hour_and_day_hold_the_same_sums(db: Engine, tmp_path: Path, load: Callable[[], int]) -> None:
    rows = [usage_row(MINUTE + i * 60_000, output=i) for i in range(2_000)]
    put(tmp_path, "usage", "a-0-0", *rows)
    assert load() == 1
    steps = {"minute": 2_000, "hour": 35, "day": 3, "month": 2}
    for rollup in ROLLUPS["usage"]:
        assert total(db, SUMS.format(rollup.table)) == [(2_000, 1_999_000)]
        assert total(db, f"SELECT count(DISTINCT {rollup.time}) FROM {rollup.table}") == [(steps[rollup.time],)]


def test_a_file_seen_again_does_nothing(db: Engine, tmp_path: Path, load: Callable[[], int]) -> None:
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))
    assert load() == 1
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))
    assert load() == 0
    assert total(db, SUMS.format("usage_minute")) == [(1, 10)]
    assert not delta_files.finished(tmp_path, "usage")


def test_a_late_record_is_a_delta_to_an_old_minute(db: Engine, tmp_path: Path, load: Callable[[], int]) -> None:
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))
    load()
    put(tmp_path, "usage", "a-0-1", usage_row(MINUTE, output=5), usage_row(MINUTE, output=7))
    load()
    assert total(db, "SELECT requests, output FROM usage_minute") == [(3, 22)]


def test_touched_quarter_hours_become_dirty(db: Engine, tmp_path: Path, load: Callable[[], int]) -> None:
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE), usage_row(MINUTE + 60_000))
    put(tmp_path, "engine", "a-0-0", ",".join([str(MINUTE - 3_600_000), "c,ns,m,t,0,node", *("1" for _ in ENGINE_MEASURES)]))
    load()
    assert total(db, "SELECT to_char(window_start, 'HH24:MI') FROM dirty_window ORDER BY 1") == [
        ("13:45",),
        ("14:45",),
        ("15:00",),
    ]


def test_names_keep_commas_accents_and_han(db: Engine, tmp_path: Path, load: Callable[[], int]) -> None:
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE, keys='"c,1",ns,m,组织,"équipe, nord",,u,k,P1,ok,exact,0'))
    load()
    assert total(db, "SELECT cluster, org, team, project FROM usage_minute") == [("c,1", "组织", "équipe, nord", "")]


def test_files_flink_still_writes_are_not_touched(tmp_path: Path, load: Callable[[], int]) -> None:
    path = put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))
    hidden = path.rename(path.with_name(".part-a-0-0.inprogress.77"))
    assert load() == 0
    assert hidden.exists()


@pytest.mark.parametrize(
    ("fault", "rows"),
    [
        ("cut short", [usage_row(MINUTE)[:-12]]),
        ("not a number", [usage_row(MINUTE).replace(str(MINUTE), "noon")]),
        ("another version's columns", ["1,2,3"]),
        ("bytes that are no text", ["\x00"]),
    ],
)
def test_a_damaged_file_is_set_aside_and_the_others_go_on(
    db: Engine, tmp_path: Path, load: Callable[[], int], fault: str, rows: list[str]
) -> None:
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))
    put(tmp_path, "usage", "a-0-1", *rows)
    put(tmp_path, "usage", "a-0-2", usage_row(MINUTE))
    assert load() == 2, fault
    assert total(db, SUMS.format("usage_day")) == [(2, 20)]
    assert (delta_folder(tmp_path / "damaged", "usage", DELTAS["usage"]) / "part-a-0-1").exists()
    names = total(db, "SELECT name FROM applied_file ORDER BY 1")
    assert names == [(file_name("usage", "a-0-0"),), (file_name("usage", "a-0-2"),)]


def test_a_kill_between_commit_and_move_counts_nothing_twice(
    db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[], int]
) -> None:
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(delta_files, "keep_applied", killed)
        with pytest.raises(KeyboardInterrupt):
            load()
    assert load() == 0
    assert total(db, SUMS.format("usage_minute")) == [(1, 10)]


def test_a_kill_within_the_transaction_leaves_nothing(
    db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[], int]
) -> None:
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loader, "_record", killed)
        with pytest.raises(KeyboardInterrupt):
            load()
    assert total(db, "SELECT count(*) FROM usage_minute") == [(0,)]
    assert load() == 1


def test_two_loaders_at_once_add_each_file_once(db: Engine, tmp_path: Path) -> None:
    for i in range(40):
        put(tmp_path, "usage", f"a-0-{i}", *(usage_row(MINUTE + j * 60_000) for j in range(50)))
    counts: list[int] = []
    loaders = [threading.Thread(target=lambda: counts.append(Loader(db, tmp_path, lambda: NOW).run_once())) for _ in range(2)]
    for thread in loaders:
        thread.start()
    for thread in loaders:
        thread.join()
    assert sum(counts) == 40
    assert total(db, SUMS.format("usage_hour")) == [(2_000, 20_000)]


def test_progress_and_lengths_add_up(db: Engine, tmp_path: Path, load: Callable[[], int]) -> None:
    put(tmp_path, "progress", "a-0-0", "usage,aaaaaaaa-000000000001,3", "engine,aaaaaaaa-000000000001,1")
    put(tmp_path, "progress", "a-1-0", "usage,aaaaaaaa-000000000001,4")
    put(
        tmp_path, "usage", "a-0-0",
        usage_row(MINUTE, length_input=8, length_output=0),
        usage_row(MINUTE + 60_000, requests=0),
        usage_row(MINUTE + 60_000, length_input=9, length_output=3),
        usage_row(MINUTE + 120_000, length_input=8),
    )  # fmt: skip
    load()
    assert total(db, "SELECT topic, lines FROM segment_progress ORDER BY 1") == [("engine", 1), ("usage", 7)]
    assert total(
        db,
        "SELECT extract(hour FROM hour)::int, kind, bucket, requests, tokens FROM usage_length_hour ORDER BY 1, 2, 3",
    ) == [
        (14, "input", 12, 1, 8),
        (14, "output", -1, 1, 0),
        (15, "input", 12, 2, 17),
        (15, "output", 6, 1, 3),
    ]


def test_each_commit_is_announced(db: Engine, tmp_path: Path, load: Callable[[], int]) -> None:
    with db.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("LISTEN tokenfuse_loaded"))
        put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))
        load()
        heard = next(connection.connection.driver_connection.notifies(timeout=10, stop_after=1))
    assert heard.payload == "usage"


def test_a_database_restored_from_an_older_copy_gets_the_kept_files_again(db: Engine, db_url: str, tmp_path: Path) -> None:
    clock = [NOW - timedelta(days=1)]
    load = Loader(db, tmp_path / "deltas", lambda: clock[0]).run_once
    put(tmp_path / "deltas", "usage", "a-0-0", usage_row(MINUTE))
    load()
    db.dispose()
    copy = db_url.split("?")[0].rsplit("/", 1)[1] + "_copy"
    admin = open_engine(db_url.replace("/" + copy.removesuffix("_copy") + "?", "/postgres?"))
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {copy} TEMPLATE {copy.removesuffix('_copy')}"))
        clock[0] = NOW
        put(tmp_path / "deltas", "usage", "a-0-1", usage_row(MINUTE, output=5))
        put(tmp_path / "deltas", "progress", "a-0-1", "usage,aaaaaaaa-000000000001,3")
        load()
        restored = open_engine(db_url.replace(copy.removesuffix("_copy"), copy))
        assert rebuild(restored, tmp_path, NOW - timedelta(days=2), NOW) == 2
        assert rebuild(restored, tmp_path, NOW - timedelta(days=2), NOW) == 0
        assert total(restored, SUMS.format("usage_day")) == total(db, SUMS.format("usage_day")) == [(2, 15)]
        restored.dispose()
        connection.execute(text(f"DROP DATABASE {copy}"))
    admin.dispose()


def test_a_torn_pack_loses_no_file(tmp_path: Path) -> None:
    path = put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))
    content = path.read_bytes()
    delta_files.keep_applied(tmp_path, delta_files.finished(tmp_path, "usage"), NOW)
    pack = next((tmp_path / "applied/usage").glob("*/*"))
    pack.write_bytes(pack.read_bytes() + b'{"name": "usage/part-a-0-1", "bytes": 900}\nhalf')
    put(tmp_path, "usage", "a-0-1", usage_row(MINUTE, output=3))
    delta_files.keep_applied(tmp_path, delta_files.finished(tmp_path, "usage"), NOW)
    kept = {file.name: file.read() for file in delta_files.kept_since(tmp_path, "usage", NOW)}
    assert kept[file_name("usage", "a-0-0")] == content
    assert list(kept) == [file_name("usage", "a-0-0"), file_name("usage", "a-0-1")]


def test_kept_files_are_swept_by_day(tmp_path: Path) -> None:
    for days in (0, 36):
        put(tmp_path, "usage", f"a-0-{days}", usage_row(MINUTE))
        delta_files.keep_applied(tmp_path, delta_files.finished(tmp_path, "usage"), NOW - timedelta(days=days))
    assert delta_files.sweep(tmp_path, (NOW - timedelta(days=35)).date()) == 1
    kept = delta_files.kept_since(tmp_path, "usage", NOW - timedelta(days=99))
    assert [file.name for file in kept] == [file_name("usage", "a-0-0")]


def test_a_folder_with_a_quote_and_a_space_loads(db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / 'it\'s a "folder"'
    odd.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(odd))
    put(odd, "usage", "a-0-0", usage_row(MINUTE))
    put(odd, "progress", "a-0-0", "usage,aaaaaaaa-000000000001,3")
    assert Loader(db, odd, lambda: NOW).run_once() == 2
    assert total(db, SUMS.format("usage_minute")) == [(1, 10)]


def test_quarantined_records_and_faults_arrive_once(db: Engine, tmp_path: Path) -> None:
    log = SpoolLog(tmp_path / "log", SpoolSettings(reserve_bytes=1, reserve_percent=0), lambda: NOW)
    bad = {
        "id": "q1",
        "received_at": NOW.isoformat(),
        "source": "s",
        "place": "f:1",
        "field": "tokens",
        "reason": "r",
        "body": {"a": 1},
    }
    gap = {"id": "f1", "kind": "gap", "source": "t", "window_start": NOW.isoformat(), "window_end": NOW.isoformat(), "detail": {}}
    log.append("quarantine", LogBatch([json.dumps(bad), json.dumps(bad), "not JSON", json.dumps(bad | {"id": "q2"})]))
    log.append("fault", LogBatch([json.dumps(gap | {"noticed_at": NOW.isoformat()})]))
    log.flush()
    loader = Loader(db, tmp_path / "deltas", lambda: NOW)
    assert loader.import_side_topics() == 5
    assert loader.import_side_topics() == 0
    assert total(db, "SELECT id, reason FROM quarantine ORDER BY 1") == [("q1", "r"), ("q2", "r")]
    assert total(db, "SELECT id, kind FROM data_fault") == [("f1", "gap")]
    log.close()

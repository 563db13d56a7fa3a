"""After an update lines have other columns; a job that drains the epoch of the version before must not meet them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread

import pytest

from core.ports import LogBatch, Topic
from eventlog import line_columns, manifest
from eventlog.layout import epoch_folder
from eventlog.line_columns import LINE_COLUMNS, UNNOTED
from eventlog.spool import SpoolLog, SpoolSettings


def log(folder: Path) -> SpoolLog:
    return SpoolLog(folder, SpoolSettings(reserve_bytes=1, reserve_percent=0), lambda: datetime.now(UTC))


def append(folder: Path, topic: Topic = "usage") -> str:
    """The epoch a line of this program goes into."""
    made = log(folder)
    made.append(topic, LogBatch(["r1,1"]))
    made.close()
    return manifest.current_epoch(folder, topic)


def older_program(patch: pytest.MonkeyPatch, columns: Mapping[str, tuple[str, ...]]) -> None:
    patch.setattr(line_columns, "LINE_COLUMNS", columns)


@pytest.mark.parametrize("topic", ["usage", "engine"])
def test_lines_of_other_columns_begin_an_epoch_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: Topic
) -> None:
    with monkeypatch.context() as patch:
        older_program(patch, {name: columns[1:] for name, columns in LINE_COLUMNS.items()})
        assert append(tmp_path, topic) == append(tmp_path, topic) == "000001"
    assert append(tmp_path, topic) == append(tmp_path, topic) == "000002"
    assert manifest.is_sealed(tmp_path, topic, "000001")
    assert [len(manifest.segments(tmp_path, topic, epoch)) for epoch in ("000001", "000002")] == [2, 2]


def test_an_epoch_of_version_0_1_0_has_no_note_and_its_columns_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        older_program(patch, UNNOTED)
        append(tmp_path)
        (epoch_folder(tmp_path, "usage", "000001") / line_columns.NOTE).unlink()
        assert append(tmp_path) == "000001"
    assert append(tmp_path) == ("000001" if LINE_COLUMNS["usage"] == UNNOTED["usage"] else "000002")


def test_an_emptied_epoch_keeps_its_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        older_program(patch, {"usage": ("other",)})
        append(tmp_path)
    for segment in manifest.segments(tmp_path, "usage", "000001"):
        segment.path.unlink()
    assert append(tmp_path) == "000002"


@pytest.mark.parametrize("topic", ["quarantine", "fault"])
def test_topics_without_columns_never_change_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: Topic) -> None:
    append(tmp_path, topic)
    older_program(monkeypatch, {"usage": ("other",)})
    assert append(tmp_path, topic) == "000001"


def test_many_writers_begin_one_first_epoch(tmp_path: Path) -> None:
    logs = [log(tmp_path) for _ in range(8)]
    threads = [Thread(target=made.append, args=("usage", LogBatch(["r1,1"]))) for made in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for made in logs:
        made.close()
    assert manifest.epochs(tmp_path, "usage") == ["000001"]
    assert len(manifest.segments(tmp_path, "usage", "000001")) == 8
    assert not list((tmp_path / "usage").glob(".new-*"))

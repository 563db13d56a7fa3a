"""What lies in the data folder is for the user who runs Tokenfuse alone, whatever umask he has."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.data_folder import OURS, close_to_others
from core.ports import LogBatch
from eventlog.spool import SpoolLog, SpoolSettings
from streaming import checkpoints
from streaming.delta_columns import note_columns
from streaming.plan import DELTAS, current_plan
from streaming.process import only_run


@pytest.fixture
def careless() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def readable_by_others(folder: Path) -> list[str]:
    """Files others can read: they must also be able to enter every folder on the way."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if stat.S_IMODE((Path(place) / name).stat().st_mode) & 0o077]
        found += [str(Path(place) / name) for name in files if stat.S_IMODE((Path(place) / name).stat().st_mode) & 0o077]
    return found


@pytest.mark.usefixtures("careless")
def test_every_writer_keeps_its_files_to_itself(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log = SpoolLog(data / "log", SpoolSettings(reserve_bytes=1, reserve_percent=0), lambda: datetime.now(UTC))
    log.append("fault", LogBatch(["{}"]))
    log.close()
    note_columns(data / "deltas", DELTAS)
    checkpoints.start_run(data / "checkpoints", current_plan(7), {})
    with only_run(data / "run"):
        assert readable_by_others(data) == []


@pytest.mark.usefixtures("careless")
def test_folders_an_earlier_version_left_open_are_closed(tmp_path: Path) -> None:
    for name in (*OURS, "pg"):
        (tmp_path / name / "deeper").mkdir(parents=True)
        (tmp_path / name / "deeper" / "file").touch()
    close_to_others(tmp_path)
    assert readable_by_others(tmp_path) == [str(tmp_path / "pg/deeper/file")], "the server's folder is the server's"

"""The embedded server: one a folder, started again by whoever finds it dead, the same process or another."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from models.database import open_engine, start_embedded, stop_embedded

pytestmark = pytest.mark.db


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own, which the server's user may not enter."""
    made = Path(tempfile.mkdtemp(prefix="tfpg"))
    made.chmod(0o755)
    yield made / "it's a % folder" / "pg"
    stop_embedded(made / "it's a % folder" / "pg")
    shutil.rmtree(made, ignore_errors=True)


def pid_of(folder: Path) -> int:
    return int((folder / "postmaster.pid").read_text().split()[0])


def kill(folder: Path) -> None:
    server = psutil.Process(pid_of(folder))
    family = [server, *server.children(recursive=True)]
    server.kill()
    psutil.wait_procs(family, timeout=60)


def answer(url: str) -> object:
    engine = open_engine(url)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT 1")).scalar_one()
    engine.dispose()
    return found


def test_a_server_killed_twice_is_started_twice_by_the_process_that_started_it(folder: Path) -> None:
    url = start_embedded(folder)
    first = pid_of(folder)
    assert start_embedded(folder) == url
    assert pid_of(folder) == first, "adopted"
    for _ in range(2):
        kill(folder)
        assert start_embedded(folder) == url
        assert answer(url) == 1
    assert pid_of(folder) != first


def test_a_dead_server_that_nobody_waited_for_does_not_stand_in_the_way(folder: Path) -> None:
    url = start_embedded(folder)
    kill(folder)
    with subprocess.Popen([sys.executable, "-c", ""]) as zombie:
        while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        note = (folder / "postmaster.pid").read_text().splitlines(keepends=True)
        (folder / "postmaster.pid").write_text("".join([f"{zombie.pid}\n", *note[1:]]))
        assert answer(start_embedded(folder)) == 1
    assert start_embedded(folder) == url

"""Shared fixtures: one embedded PostgreSQL per run, a fresh migrated database per test that asks for one."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from cli_command import Command, command_on
from sqlalchemy import Engine, text

from models.database import open_engine, start_embedded, stop_embedded, upgrade

# No test is judged by its time: on a busy machine an example may take a second.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# Started in the background of a shell, a run would ignore SIGINT, and so would every command the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def _template_url() -> Iterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="tfpg"))
    folder.chmod(0o755)
    url = start_embedded(folder / "pg")
    _run(url, "CREATE DATABASE template_tf")
    upgrade(url.replace("/postgres?", "/template_tf?"))
    yield url
    stop_embedded(folder / "pg")
    shutil.rmtree(folder, ignore_errors=True)


def _run(url: str, sql: str) -> None:
    engine = open_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(sql))
    engine.dispose()


@pytest.fixture
def db_url(_template_url: str) -> Iterator[str]:
    """The URL of a database of this test's own, with the whole schema."""
    name = f"t{uuid.uuid4().hex[:12]}"
    _run(_template_url, f"CREATE DATABASE {name} TEMPLATE template_tf")
    yield _template_url.replace("/postgres?", f"/{name}?")
    _run(_template_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def db(db_url: str) -> Iterator[Engine]:
    engine = open_engine(db_url)
    yield engine
    engine.dispose()


@pytest.fixture
def command(db_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The real command on ``db_url`` and DATA = ``tmp_path / "data"``, with no settings file."""
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))
    return command_on(db_url, tmp_path / "data", capsys)


@pytest.fixture(scope="session")
def realdata() -> Path:
    """The folder of real traces and recordings (``TOKENFUSE_DATA``); the test is skipped, saying so, where it is absent."""
    named = os.environ.get("TOKENFUSE_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("real data is absent: set TOKENFUSE_DATA to its folder")
    return folder

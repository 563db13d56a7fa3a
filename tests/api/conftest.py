"""The API over a database of the test's own and a real spool, called in-process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import KEY, NOW, Api, Clock, TokenMaker
from sqlalchemy import Engine

from api.app import create_app
from api.settings import ApiSettings
from core.ports import EventLog
from eventlog.spool import SpoolLog, SpoolSettings
from models.access_repo import create_token


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settings(tmp_path: Path) -> ApiSettings:
    return ApiSettings(data_dir=tmp_path, guard_keys={"gateway-1": [KEY]}, failed_auth_per_minute=1000, standings_cache_s=0)


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> Iterator[EventLog]:
    spool = SpoolLog(tmp_path / "log", SpoolSettings(), clock)
    yield spool
    spool.close()


@pytest.fixture
def api(settings: ApiSettings, db: Engine, log: EventLog, clock: Clock) -> Iterator[Api]:
    running = Api(create_app(settings, db, log, now=clock))
    yield running
    running.close()


@pytest.fixture
def token(db: Engine) -> TokenMaker:
    """``token("read", tenant="acme/search")`` -> the text of a new token."""
    made = 0

    def make(*scopes: str, tenant: str = "", name: str = "") -> str:
        nonlocal made
        made += 1
        with db.begin() as connection:
            _id, text = create_token(connection, name or f"token-{made}", scopes, tenant, NOW, None)
        return text

    return make

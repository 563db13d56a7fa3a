"""The real API on a real socket: uvicorn in a thread over a database of the test's own and a real spool."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from otlp_samples import NOW
from otlp_server import WAIT_S, Clock, Log, Server
from sqlalchemy import Engine

from api.app import create_app
from api.settings import ApiSettings
from eventlog.spool import SpoolLog, SpoolSettings
from models.access_repo import create_token


@pytest.fixture
def server(db: Engine, tmp_path: Path) -> Iterator[Server]:
    clock = Clock()
    log = Log(SpoolLog(tmp_path / "log", SpoolSettings(), clock))
    app = create_app(ApiSettings(data_dir=tmp_path, organisation="acme", failed_auth_per_minute=1000), db, log, now=clock)
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    until_s = time.monotonic() + WAIT_S
    while not running.started and time.monotonic() < until_s:
        time.sleep(0.01)
    made: dict[tuple[str, str], str] = {}

    def token(*scopes: str, tenant: str = "") -> str:
        key = (",".join(scopes), tenant)
        if key not in made:
            with db.begin() as connection:
                made[key] = create_token(connection, f"token-{len(made)}", scopes, tenant, NOW, None)[1]
        return made[key]

    yield Server(f"http://127.0.0.1:{bound.getsockname()[1]}", token, log, tmp_path, clock)
    running.should_exit = True
    thread.join(WAIT_S)
    log.close()

"""The API told to stop: a guard that waits on its long poll is answered, not cut off."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from api_client import NOW, Clock, TokenMaker
from sqlalchemy import Engine

from api.app import create_app
from api.server import Server
from api.settings import ApiSettings
from control.budgets import set_limit
from control.policy_publish import publish
from core.ports import EventLog

pytestmark = pytest.mark.db


@pytest.fixture
def server(settings: ApiSettings, db: Engine, log: EventLog, clock: Clock) -> Iterator[Server]:
    running = Server(create_app(settings, db, log, now=clock), host="127.0.0.1", port=0)
    thread = threading.Thread(target=running.serve_until_told, daemon=True)
    thread.start()
    while not running.started and thread.is_alive():
        time.sleep(0.01)
    yield running
    running.should_exit = True
    thread.join(10)


def test_a_waiting_guard_hears_that_nothing_is_newer_when_the_server_stops(db: Engine, server: Server, token: TokenMaker) -> None:
    with db.begin() as connection:
        set_limit(connection, "tenant:acme", "max_prompt_tokens", 8000, "enforce", "ann", NOW)
        publish(connection, NOW)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1/policy"
    bearer = {"authorization": f"Bearer {token('policy', name='gateway-1')}"}
    held = httpx.get(url, params={"wait": 20}, headers=bearer).headers["etag"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.get, url, params={"wait": 30}, headers={**bearer, "if-none-match": held}, timeout=40)
        while not server.server_state.tasks:
            time.sleep(0.01)
        server.handle_exit(signal.SIGTERM, None)
        assert waiting.result().status_code == 304

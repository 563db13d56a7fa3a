"""A caller of the API in this process: the app runs on an event loop in its own thread, calls are plain HTTP over ASGI."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from core.policy import SigningKey

T = TypeVar("T")
TokenMaker = Callable[..., str]
NOW = datetime(2026, 11, 30, 12, 7, 30, tzinfo=UTC)
KEY = SigningKey("k1", b"0123456789abcdef0123456789abcdef")
TIMEOUT_S = 60


class Clock:
    """The time the API believes it is; tests move it."""

    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> datetime:
        return self.at

    def pass_time(self, span: timedelta) -> None:
        self.at += span


class LoopThread:
    """An event loop that runs until it is closed."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.start(work).result(TIMEOUT_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(TIMEOUT_S)
        self.loop.close()


class Api:
    """``call`` waits for the answer, ``begin`` gives a future of it. ``token`` is sent when given."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._thread = LoopThread()
        self._lifespan = app.router.lifespan_context(app)
        self._thread.run(self._lifespan.__aenter__())
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://tokenfuse.test", timeout=TIMEOUT_S)

    def begin(self, method: str, path: str, token: str = "", **rest: Any) -> Future[httpx.Response]:
        headers = dict(rest.pop("headers", None) or {})
        if token:
            headers["authorization"] = f"Bearer {token}"
        return self._thread.start(self._client.request(method, path, headers=headers, **rest))

    def call(self, method: str, path: str, token: str = "", **rest: Any) -> httpx.Response:
        return self.begin(method, path, token, **rest).result(TIMEOUT_S)

    def get(self, path: str, token: str = "", **params: Any) -> httpx.Response:
        return self.call("GET", path, token, params=params)

    def post(self, path: str, token: str = "", json: Any = None) -> httpx.Response:
        return self.call("POST", path, token, json=json)

    def close(self) -> None:
        self._thread.run(self._client.aclose())
        self._thread.run(self._lifespan.__aexit__(None, None, None))
        self._thread.close()

"""The newest published policy, kept in memory: one LISTEN connection per process wakes every waiting guard at once."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from models.policy_repo import PublishedPolicy, latest_policy

LOG = logging.getLogger("tokenfuse.api.policy")
CHANNEL = "tokenfuse_policy"
POLL_S = 1.0
"""Also looked at this often, for a notification lost with its connection."""


class PolicyWatch:
    """``current`` is the newest policy seen. Waiters sleep on an event loop, the LISTEN connection lives in its own thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="policy-watch", daemon=True)
        self.current: PublishedPolicy | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread.start()

    def release(self) -> None:
        """Answer every waiting guard now: the process is about to leave, and a cancelled poll would be answered 500."""
        self._stop.set()
        self._wake()

    def stop(self) -> None:
        self.release()
        self._thread.join(timeout=2 * POLL_S + 1)

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    async def newer_than(self, version: int | None, wait_s: float) -> PublishedPolicy | None:
        """The current policy as soon as it is newer than ``version``; None when ``wait_s`` passed without."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            changed = self._changed
            current = self.current
            if current is not None and (version is None or current.version > version):
                return current
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or self.stopping:
                return None
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                return None

    def refresh(self) -> None:
        """Read the newest policy and wake the waiters when it changed."""
        with self._engine.connect() as connection:
            newest = latest_policy(connection)
        if newest is not None and (self.current is None or newest.version > self.current.version):
            self.current = newest
            self._wake()

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                self._listen_until_lost()
            except Exception as error:  # a lost server must not end the watch: the last good policy stays
                LOG.warning("policy watch lost the database (%s); trying again", type(error).__name__)
                self._stop.wait(POLL_S)

    def _listen_until_lost(self) -> None:
        connection = listening_connection(self._engine, CHANNEL)
        try:
            self.refresh()
            while not self._stop.is_set():
                for _ in connection.notifies(timeout=POLL_S, stop_after=1):
                    pass
                self.refresh()
        finally:
            connection.close()


def listening_connection(engine: Engine, channel: str) -> Any:
    """A psycopg connection of its own (outside the pool) that listens on ``channel``."""
    pooled = engine.raw_connection()
    connection = pooled.driver_connection
    pooled.detach()
    if connection is None:
        raise SQLAlchemyError("the pool gave no connection")
    connection.autocommit = True
    connection.execute(f"LISTEN {channel}")
    return connection

"""The HTTP server: guards that wait on a long poll are answered when it is told to stop, not cut off."""

from __future__ import annotations

from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

GRACE_S = 5
"""Requests under way get this long to end."""


class Server(uvicorn.Server):
    """Uvicorn's, and at the first signal to stop the policy watch lets its waiters go."""

    def __init__(self, app: FastAPI, **settings: Any) -> None:
        super().__init__(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=GRACE_S, **settings))
        self._watch = app.state.parts.watch

    def serve_until_told(self) -> bool:
        """Serve until a signal. False when it could not start (the reason is in the log)."""
        with suppress(KeyboardInterrupt):
            self.run()
        return self.started

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._watch.release()
        super().handle_exit(sig, frame)

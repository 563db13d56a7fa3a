"""Waiting for what another process does, with the name of what did not come."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(what: str, done: Callable[[], bool], timeout_s: float = 300) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
        time.sleep(0.1)

"""Locks between processes (flock: released by the kernel when the holder dies) and the register of living writers."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import Unavailable
from eventlog.layout import PRIVATE_FILE, make_folder

_POLL_S = 0.02


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)


def lock_shared(path: Path) -> int:
    """Wait for the shared lock; returns the handle whose closing releases it."""
    handle = _open(path)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


@contextmanager
def exclusive(path: Path, *, timeout_s: float | None = None, what: str = "the lock") -> Iterator[int]:
    """Hold the exclusive lock; yields its handle. Raises Unavailable, naming ``what``, after ``timeout_s``."""
    handle = _open(path)
    try:
        if timeout_s is None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        else:
            _poll_exclusive(handle, timeout_s, path, what)
        yield handle
    finally:
        os.close(handle)


def _poll_exclusive(handle: int, timeout_s: float, path: Path, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                hint = "A process still holds it: see which with `lsof`, then try again."
                raise Unavailable(f"{path}: {what} was not free within {timeout_s:g} s.", hint=hint) from None
        time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Writer:
    """One living writer of the log; its lock file says so to the others."""

    name: str
    path: Path
    handle: int


def register_writer(folder: Path) -> Writer:
    """A new writer id (8 hex digits) whose lock is held until ``release_writer`` or the death of the process."""
    with writers_lock(folder):
        while True:
            name = secrets.token_hex(4)
            path = folder / ".writers" / name
            with suppress(FileExistsError):
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
                fcntl.flock(handle, fcntl.LOCK_EX)
                return Writer(name, path, handle)


def release_writer(folder: Path, writer: Writer) -> None:
    with writers_lock(folder):
        writer.path.unlink(missing_ok=True)
        os.close(writer.handle)


@contextmanager
def writers_lock(folder: Path) -> Iterator[None]:
    """Held while the register changes or a dead writer's leftovers are repaired: both would race otherwise."""
    make_folder(folder / ".writers")
    with exclusive(folder / ".writers" / ".lock"):
        yield


def is_dead(folder: Path, name: str) -> bool:
    """Whether that writer has gone. Only true to the moment while ``writers_lock`` is held."""
    try:
        handle = os.open(folder / ".writers" / name, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True

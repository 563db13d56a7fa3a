"""Usage on disk from the moment it is known until it is sent: a process that is killed loses nothing of it.

One file a flush, one JSON line a payload, held under a lock as long as its process lives: a file whose lock can be had was left
behind by a process that is gone, and whoever finds it sends it. A line may be sent twice (killed between answer and unlink): the
centre counts a request id once. Not fsynced: it outlives the process, not the machine's power.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from typing import Any

try:
    import fcntl
except ImportError:  # no file locks on this system: what is not sent is kept in memory, as without a folder
    fcntl = None  # type: ignore[assignment]

PART = ".usage.part"


class Part:
    """One file of a journal. ``waiting`` of its lines are not off our hands; closed and none waiting, it is removed."""

    def __init__(self, folder: str, suffix: str = PART) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self.path = os.path.join(folder, name + suffix)
        self.waiting = 0
        self.closed = False
        hidden = os.path.join(folder, f".new-{name}")
        self.handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        os.rename(hidden, self.path)


class Journal:
    """Parts in ``folder``; "" keeps nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder if fcntl is not None else ""
        self._part: Part | None = None
        self._lock = threading.Lock()

    def keep(self, line: bytes) -> Part | None:
        """Write a payload's line; the part to be told by ``done``, None when nothing is kept. Raises OSError."""
        if not self._folder:
            return None
        with self._lock:
            if self._part is None:
                self._part = Part(self._folder)
            os.write(self._part.handle, line + b"\n")
            self._part.waiting += 1
            return self._part

    def cut(self) -> None:
        """Begin a new part with the next line."""
        with self._lock:
            part, self._part = self._part, None
            if part is not None:
                part.closed = True
                remove_when_done(part)

    def done(self, part: Part | None) -> None:
        """A line of this part is sent, kept elsewhere, or lost and counted."""
        if part is not None:
            with self._lock:
                part.waiting -= 1
                remove_when_done(part)

    def left_behind(self) -> tuple[list[Any], list[str], int]:
        """Payloads of processes that are gone, their files (to remove once those are safe), and the count of torn lines."""
        payloads: list[Any] = []
        paths: list[str] = []
        torn = 0
        for path in files_of(self._folder, PART):
            for line in orphan_lines(path, paths):
                try:
                    payloads.append(json.loads(line))
                except ValueError:
                    torn += 1
        return payloads, paths, torn


def remove_when_done(part: Part) -> None:
    """Unlink and close a part that is closed and of which nothing waits."""
    if part.closed and part.waiting <= 0 and part.handle >= 0:
        try:
            os.unlink(part.path)
        except FileNotFoundError:
            """Somebody cleared the folder."""
        os.close(part.handle)
        part.handle = -1


def files_of(folder: str, suffix: str) -> list[str]:
    """Paths of the folder's files of one kind, oldest first; none where there is no folder."""
    names = sorted(os.listdir(folder)) if folder and os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.endswith(suffix)]


def orphan_lines(path: str, paths: list[str]) -> list[bytes]:
    """The lines of a part whose process is gone, which is then in ``paths``; else none."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    with os.fdopen(handle, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return []
        paths.append(path)
        return file.read().splitlines()

"""Usage on its way to the centre: a bounded queue, one thread, batches, retries, files for what could not be sent.

Nothing here runs on the request path but ``offer``, which appends to the queue or counts a drop. A batch may arrive twice (an
answer lost, two workers resending one file): the centre counts a request id once.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import threading
import time
import uuid
from collections import deque
from typing import Any, Callable

from tokenfuse_guard.fetch import backoff_s
from tokenfuse_guard.store import write_atomic
from tokenfuse_guard.wire import call

BATCH = 200
FLUSH_S = 0.5
SEND_TIMEOUT_S = 15.0
MAX_QUEUE = 20_000
MAX_SPILL_BYTES = 256 * 1024 * 1024
HOPELESS = (400, 404, 405, 415, 422)
SUFFIX = ".usage.json"


class UsageSender:
    """Sends payloads to ``url``. ``folder`` "" keeps what cannot be sent in memory only. ``dropped(n)`` is told of every loss."""

    def __init__(
        self, url: str, token: str, folder: str, dropped: Callable[[int], None], *, max_queue: int = MAX_QUEUE,
        max_spill_bytes: int = MAX_SPILL_BYTES,
    ) -> None:  # fmt: skip
        self._url, self._token, self._folder, self._dropped = url, token, folder, dropped
        self._max_queue, self._max_spill_bytes = max_queue, max_spill_bytes
        self._queue: deque[dict[str, Any]] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._try_at_s = 0.0
        self.sent = 0
        self.spilled = 0
        self.fault = ""

    def start(self) -> None:
        """Start the thread, which first sends what an earlier process left behind; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tokenfuse-usage", daemon=True)
            self._thread.start()

    def offer(self, payload: dict[str, Any]) -> bool:
        """Take a payload to send; False (and counted as dropped) when the queue is full. Never blocks."""
        if len(self._queue) >= self._max_queue:
            self._dropped(1)
            return False
        self._queue.append(payload)
        if len(self._queue) >= BATCH:
            self._wake.set()
        return True

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread; what is left is sent once or written to a file."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def stats(self) -> dict[str, Any]:
        """Fields for the guard's report."""
        found = {"sent": self.sent, "spilled": self.spilled, "queued": len(self._queue), "files": len(self._files())}
        return {"usage": {**found, "fault": self.fault}}

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            self._drain()
            if not self._waiting():
                self._resend_one()
        self._drain()

    def _waiting(self) -> bool:
        return time.monotonic() < self._try_at_s

    def _drain(self) -> None:
        while self._queue:
            if self._waiting() and not self._folder and not self._stop.is_set():
                return
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            if self._waiting() or not self._send(batch):
                self._spill(batch)

    def _send(self, batch: list[dict[str, Any]]) -> bool:
        """True when the batch is off our hands: taken, or refused for good (then it is counted as dropped)."""
        raw = gzip.compress(json.dumps(batch, default=str).encode(), 1)
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        try:
            status = call("POST", self._url, self._token, body=raw, headers=headers, timeout_s=SEND_TIMEOUT_S).status
        except (OSError, http.client.HTTPException) as error:
            return self._failed(f"usage not sent: {error}")
        if status < 300:
            self._failures, self.fault = 0, ""
            self.sent += len(batch)
            return True
        if status == 413 and len(batch) > 1:
            half = len(batch) // 2
            return all([self._send_or_spill(batch[:half]), self._send_or_spill(batch[half:])])
        if status in HOPELESS or status == 413:
            self.fault = f"{len(batch)} usage records refused: the centre answered {status}"
            self._dropped(len(batch))
            return True
        return self._failed(f"usage not taken: the centre answered {status}")

    def _send_or_spill(self, batch: list[dict[str, Any]]) -> bool:
        if not self._send(batch):
            self._spill(batch)
        return True

    def _failed(self, message: str) -> bool:
        self._failures += 1
        self.fault = message
        self._try_at_s = time.monotonic() + backoff_s(self._failures)
        return False

    def _spill(self, batch: list[dict[str, Any]]) -> None:
        """To a file; without a folder back into the queue, as far as it has room."""
        if not self._folder:
            if self._stop.is_set() or len(self._queue) + len(batch) > self._max_queue:
                self._dropped(len(batch))
            else:
                self._queue.extendleft(reversed(batch))
            return
        raw = json.dumps(batch, default=str).encode()
        try:
            if self._spill_bytes() + len(raw) > self._max_spill_bytes:
                raise OSError(f"more than {self._max_spill_bytes} bytes are waiting")
            write_atomic(os.path.join(self._folder, f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}{SUFFIX}"), raw)
            self.spilled += len(batch)
        except OSError as error:
            self.fault = f"usage not kept on disk: {error}"
            self._dropped(len(batch))

    def _files(self) -> list[str]:
        """Waiting files, oldest first."""
        if not self._folder or not os.path.isdir(self._folder):
            return []
        return sorted(os.path.join(self._folder, name) for name in os.listdir(self._folder) if name.endswith(SUFFIX))

    def _spill_bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self._files() if os.path.exists(path))

    def _resend_one(self) -> None:
        for path in self._files()[:1]:
            batch = self._read(path)
            if batch is None or self._send(batch):
                _remove(path)
                self._wake.set()

    def _read(self, path: str) -> list[dict[str, Any]] | None:
        """A waiting batch, None when another worker has sent it or the file is not one (then its loss is counted)."""
        try:
            with open(path, "rb") as file:
                found = json.load(file)
        except FileNotFoundError:
            return None
        except ValueError as error:
            self.fault = f"{path} is not a batch of usage: {error}"
            self._dropped(1)
            return None
        return found if isinstance(found, list) else None


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        """Another worker has sent it."""

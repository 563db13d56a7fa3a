"""Usage on its way to the centre: a bounded queue, one thread, batches, retries, files for what could not be sent.

Called from LiteLLM's logging, after the answer, are ``keep`` and ``offer``: a line into the journal, a place in the queue or a
counted drop. A batch may arrive twice (an answer lost, two workers resending one file): the centre counts a request id once.
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
from tokenfuse_guard.journal import Journal, Part
from tokenfuse_guard.running_calls import RunningCalls
from tokenfuse_guard.store import write_atomic
from tokenfuse_guard.wire import call

BATCH = 200
FLUSH_S = 0.5
SEND_TIMEOUT_S = 15.0
MAX_QUEUE = 20_000
MAX_SPILL_BYTES = 256 * 1024 * 1024
HOPELESS = (400, 404, 405, 415, 422)
SUFFIX = ".usage.json"
ADOPT_EVERY_S = 10.0
"""How often files of processes that are gone are looked for."""


class Kept(dict):  # type: ignore[type-arg]
    """A payload whose line is in the journal, until it is offered."""

    line: bytes
    part: Part | None
    fields: int


class UsageSender:
    """Sends payloads to ``url``. ``folder`` "" keeps what cannot be sent in memory only. ``dropped(n)`` is told of every loss;
    ``before()`` runs in the sending thread ahead of each batch (what others still held may be offered there)."""

    def __init__(
        self, url: str, token: str, folder: str, dropped: Callable[[int], None], *, max_queue: int = MAX_QUEUE,
        max_spill_bytes: int = MAX_SPILL_BYTES, before: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._url, self._token, self._folder, self._dropped = url, token, folder, dropped
        self._max_queue, self._max_spill_bytes, self._before = max_queue, max_spill_bytes, before
        self._journal = Journal(folder)
        self._running = RunningCalls(folder)
        self._adopt_at_s = 0.0
        self._queue: deque[Kept] = deque()
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

    def began(self, call_id: str, payload: dict[str, Any]) -> None:
        """A call goes to its upstream: should this process be killed before it is logged, the next one reports ``payload``."""
        try:
            self._running.began(call_id, payload)
        except OSError as error:
            self.fault = f"a call not kept on disk: {error}"

    def ended(self, call_id: str, *, every: bool) -> None:
        """An attempt of a call is logged, or (``every``) the call is over."""
        try:
            self._running.ended(call_id, every=every)
        except OSError as error:
            self.fault = f"a call's end not kept on disk: {error}"

    def keep(self, payload: dict[str, Any]) -> Kept:
        """A copy that is safe from now on: should this process be killed, the next one sends it. To be offered when ready."""
        kept = Kept(payload)
        kept.line, kept.fields = json.dumps(payload, default=str).encode(), len(payload)
        try:
            kept.part = self._journal.keep(kept.line)
        except OSError as error:
            kept.part, self.fault = None, f"usage not kept on disk: {error}"
        return kept

    def offer(self, payload: dict[str, Any]) -> bool:
        """Take a payload to send; False (and counted as dropped) when the queue is full. Never waits for the network."""
        kept = payload if isinstance(payload, Kept) else self.keep(payload)
        if len(self._queue) >= self._max_queue:
            self._journal.done(kept.part)
            self._dropped(1)
            return False
        if len(kept) != kept.fields:
            kept.line = json.dumps(kept, default=str).encode()
        self._queue.append(kept)
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
            self._before()
            self._drain()
            if not self._waiting():
                self._adopt()
                self._resend_one()
        self._drain()

    def _waiting(self) -> bool:
        return time.monotonic() < self._try_at_s

    def _drain(self) -> None:
        self._journal.cut()
        while self._queue:
            if self._waiting() and not self._folder and not self._stop.is_set():
                return
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            lines = [kept.line for kept in batch]
            if self._waiting() or not self._send(lines):
                self._spill(lines, batch)
            for kept in batch:
                self._journal.done(kept.part)

    def _send(self, lines: list[bytes]) -> bool:
        """True when the batch is off our hands: taken, or refused for good (then it is counted as dropped)."""
        raw = gzip.compress(b"[" + b",".join(lines) + b"]", 1)
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        try:
            status = call("POST", self._url, self._token, body=raw, headers=headers, timeout_s=SEND_TIMEOUT_S).status
        except (OSError, http.client.HTTPException) as error:
            return self._failed(f"usage not sent: {error}")
        if status < 300:
            self._failures, self.fault = 0, ""
            self.sent += len(lines)
            return True
        if status == 413 and len(lines) > 1:
            half = len(lines) // 2
            return all([self._send_or_spill(lines[:half]), self._send_or_spill(lines[half:])])
        if status in HOPELESS or status == 413:
            self.fault = f"{len(lines)} usage records refused: the centre answered {status}"
            self._dropped(len(lines))
            return True
        return self._failed(f"usage not taken: the centre answered {status}")

    def _send_or_spill(self, lines: list[bytes]) -> bool:
        if not self._send(lines):
            self._spill(lines)
        return True

    def _failed(self, message: str) -> bool:
        self._failures += 1
        self.fault = message
        self._try_at_s = time.monotonic() + backoff_s(self._failures)
        return False

    def _spill(self, lines: list[bytes], batch: list[Kept] | None = None) -> None:
        """To a file; without a folder back into the queue, as far as it has room."""
        if not self._folder:
            again = batch or [_unkept(line) for line in lines]
            if self._stop.is_set() or len(self._queue) + len(again) > self._max_queue:
                self._dropped(len(again))
            else:
                self._queue.extendleft(reversed(again))
            return
        if self._write(lines):
            self.spilled += len(lines)
        else:
            self._dropped(len(lines))

    def _write(self, lines: list[bytes]) -> bool:
        """One waiting file of these lines; False, with the fault, when there is no room."""
        raw = b"[" + b",".join(lines) + b"]"
        try:
            if self._spill_bytes() + len(raw) > self._max_spill_bytes:
                raise OSError(f"more than {self._max_spill_bytes} bytes are waiting")
            write_atomic(os.path.join(self._folder, f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}{SUFFIX}"), raw)
        except OSError as error:
            self.fault = f"usage not kept on disk: {error}"
            return False
        return True

    def _adopt(self) -> None:
        """Take over what processes that are gone had not sent."""
        if time.monotonic() < self._adopt_at_s:
            return
        self._adopt_at_s = time.monotonic() + ADOPT_EVERY_S
        payloads, paths, torn = self._journal.left_behind()
        if torn:
            self.fault = f"{torn} lines of usage were torn when their process ended"
            self._dropped(torn)
        calls, call_paths = self._running.left_behind({str(payload.get("litellm_call_id")) for payload in payloads})
        lines = [json.dumps(payload).encode() for payload in [*payloads, *calls]]
        if all([self._write(lines[at : at + BATCH]) for at in range(0, len(lines), BATCH)]):
            for path in [*paths, *call_paths]:
                _remove(path)

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
            if batch is None or self._send([json.dumps(payload).encode() for payload in batch]):
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


def _unkept(line: bytes) -> Kept:
    kept = Kept()
    kept.line, kept.part, kept.fields = line, None, 0
    return kept


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        """Another worker has sent it."""

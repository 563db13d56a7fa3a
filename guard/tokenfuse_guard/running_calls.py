"""Calls that were sent to an upstream and are not logged yet, on disk: when the process is killed, the next one knows of them.

What such a call used is not known to anybody in the gateway; that it was made is. It arrives as a call without usage, so that
the books say "missing" where they would have been silent.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from tokenfuse_guard.journal import Part, fcntl, files_of, orphan_lines, remove_when_done

RUNNING = ".usage.running"
COMPACT_LINES = 10_000
STOPPED = {"error_class": "GatewayStopped", "error_message": "the gateway's process ended before it logged this call"}


class RunningCalls:
    """Attempts under way by LiteLLM's call id. ``folder`` "" keeps nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder if fcntl is not None else ""
        self._open: dict[str, list[bytes]] = {}
        self._part: Part | None = None
        self._lines = 0
        self._lock = threading.Lock()

    def began(self, call_id: str, payload: dict[str, Any]) -> None:
        """An attempt goes to its upstream; ``payload`` is what to report should nothing more be heard of it. Raises OSError."""
        if not self._folder or not call_id:
            return
        line = json.dumps({"began": call_id, "payload": payload}, default=str).encode()
        with self._lock:
            self._open.setdefault(call_id, []).append(line)
            self._write(line)

    def ended(self, call_id: str, *, every: bool) -> None:
        """An attempt of this call is logged; ``every``: the call is over, whatever LiteLLM never logged of it. Raises OSError."""
        with self._lock:
            attempts = self._open.get(call_id)
            if not attempts:
                return
            attempts.pop(0)
            if every or not attempts:
                del self._open[call_id]
            self._write(json.dumps({"ended": call_id, "every": every}).encode())

    def _write(self, line: bytes) -> None:
        if self._part is None or self._lines >= COMPACT_LINES + 2 * len(self._open):
            self._begin_file()
        else:
            os.write(self._part.handle, line + b"\n")
            self._lines += 1

    def _begin_file(self) -> None:
        """A new file of what is open now; the old one goes."""
        former, self._part = self._part, Part(self._folder, RUNNING)
        held = [line for attempts in self._open.values() for line in attempts]
        os.write(self._part.handle, b"".join(line + b"\n" for line in held))
        self._lines = len(held)
        if former is not None:
            former.closed = True
            remove_when_done(former)

    def left_behind(self, logged: set[str]) -> tuple[list[dict[str, Any]], list[str]]:
        """Payloads of calls that were under way in processes that are gone, but for those ``logged``; and the files."""
        found: list[dict[str, Any]] = []
        paths: list[str] = []
        for path in files_of(self._folder, RUNNING):
            lines = orphan_lines(path, paths)
            found.extend(_stopped(payload, path) for call, payload in _still_open(lines) if call not in logged)
        return found, paths


def _stopped(payload: dict[str, Any], path: str) -> dict[str, Any]:
    """Ended when its process was last heard of; a file's time is coarser than ours and may lie before the call's own."""
    return {**payload, "endTime": max(os.path.getmtime(path), payload["startTime"])}


def _still_open(lines: list[bytes]) -> list[tuple[str, dict[str, Any]]]:
    calls: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue  # torn: its call was begun as the process ended, and never reached an upstream
        if "began" in said:
            calls.setdefault(said["began"], []).append(said["payload"])
        elif said["every"]:
            calls.pop(said["ended"], None)
        else:
            calls.get(said["ended"], [{}]).pop(0)
    return [(call, attempts[-1]) for call, attempts in calls.items() if attempts]


def unheard_of(call_id: str, kind: str, kwargs: Mapping[str, Any], known: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """A call in the shape of LiteLLM's logging payload, from what is known as it is sent. ``known``: LiteLLM's metadata."""
    model = str(kwargs.get("model") or "")
    owner = {name: value for name, value in known.items() if name.startswith("user_api_key_") and isinstance(value, str)}
    return {
        "id": call_id,
        "litellm_call_id": call_id,
        "call_type": kind,
        "status": "failure",
        "startTime": now_s,
        "model": model,
        "custom_llm_provider": model.partition("/")[0] if "/" in model else "",
        "model_group": known.get("model_group"),
        "api_base": kwargs.get("api_base"),
        "stream": kwargs.get("stream") is True,
        "request_tags": known.get("tags") if isinstance(known.get("tags"), list) else [],
        "metadata": owner,
        "error_information": STOPPED,
    }

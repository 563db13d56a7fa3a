"""The guard's folder: the last good policy document (so a restart obeys it at once) and the break-glass file."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any, NamedTuple

from tokenfuse_guard.policy import PolicyError, unix_seconds

POLICY_FILE = "policy.json"
RULES_FILE = "identity.json"
"""The last document whose identity rules this guard understood, kept once one came that it does not."""
BREAK_GLASS_FILE = "break-glass.json"
USAGE_FOLDER = "usage"


class BreakGlass(NamedTuple):
    """While ``until_s`` (unix seconds) is ahead the guard passes everything; who broke the glass says why."""

    until_s: float
    until: str
    reason: str


def write_atomic(path: str, data: bytes) -> None:
    """Write, fsync and rename: a reader sees the old file or the new one, whole. Raises OSError."""
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def save_document(folder: str, document: Any, name: str = POLICY_FILE) -> None:
    """Keep the document as received, signatures and all. Raises OSError."""
    write_atomic(os.path.join(folder, name), json.dumps(document).encode())


def load_document(folder: str, name: str = POLICY_FILE) -> Any | None:
    """The kept document, None when there is none. Raises PolicyError when the file is not JSON, OSError when unreadable."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PolicyError("shape", f"{name} in {folder} is not JSON: {error}") from error


def read_break_glass(path: str) -> BreakGlass | None:
    """The break-glass file {until, reason}, None when absent. Raises ValueError when it lacks an end or a reason."""
    try:
        with open(path, "rb") as file:
            raw = json.load(file)
    except FileNotFoundError:
        return None
    if not isinstance(raw, dict) or not raw.get("until") or not raw.get("reason"):
        raise ValueError(f'{path} must hold {{"until": "2026-12-01T08:00:00Z", "reason": "…"}}')
    return BreakGlass(unix_seconds(str(raw["until"])), str(raw["until"]), str(raw["reason"]))

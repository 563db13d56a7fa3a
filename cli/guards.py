"""Registered guards' signing keys, kept in ``DATA/guards.json`` (readable by its owner only)."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from core.errors import Conflict, NotFound


def read_keys(file: Path) -> dict[str, list[dict[str, str]]]:
    """Guard name → its keys, newest first."""
    if not file.exists():
        return {}
    found: dict[str, list[dict[str, str]]] = json.loads(file.read_text())
    return found


def add_guard(file: Path, name: str) -> dict[str, str]:
    """A first key for a new guard. Raises Conflict when it has one."""
    keys = read_keys(file)
    if name in keys:
        raise Conflict(f"guard {name} is registered already", hint=f"change its key with `tokenfuse guard rotate {name}`")
    keys[name] = [_new_key(1)]
    _write(file, keys)
    return keys[name][0]


def rotate_key(file: Path, name: str) -> dict[str, str]:
    """A new key in front; the one before stays valid until the next rotation. Raises NotFound."""
    keys = read_keys(file)
    if name not in keys:
        raise NotFound(f"no guard {name}", hint=f"register it with `tokenfuse guard add {name}`")
    newest = int(keys[name][0]["key_id"].removeprefix("k"))
    keys[name] = [_new_key(newest + 1), keys[name][0]]
    _write(file, keys)
    return keys[name][0]


def _new_key(number: int) -> dict[str, str]:
    return {"key_id": f"k{number}", "secret": secrets.token_hex(32)}


def _write(file: Path, keys: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        json.dump(keys, out)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)

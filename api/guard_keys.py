"""The guards' signing keys, from settings or ``guards.json``; a changed file is read again: a rotation needs no restart."""

from __future__ import annotations

import threading
from pathlib import Path

import orjson

from api.settings import GuardKeys
from core.errors import BadInput
from core.policy import SigningKey


class KeyRing:
    """``keys_of(name)``: the keys a guard's policy is signed with; empty when the guard is not registered."""

    def __init__(self, given: GuardKeys, file: Path | None) -> None:
        self._given, self._file = given, file
        self._read: GuardKeys = {}
        self._stamp: tuple[int, int] | None = None
        self._lock = threading.Lock()

    def keys_of(self, guard: str) -> tuple[SigningKey, ...]:
        if self._file is not None:
            self._refresh(self._file)
        return tuple(self._read.get(guard) or self._given.get(guard) or ())

    def _refresh(self, file: Path) -> None:
        try:
            stat = file.stat()
        except FileNotFoundError:
            return
        stamp = (stat.st_mtime_ns, stat.st_size)
        with self._lock:
            if stamp != self._stamp:
                self._read = parse_guard_keys(file.read_bytes(), file.name)
                self._stamp = stamp


def parse_guard_keys(data: bytes, where: str = "guards.json") -> GuardKeys:
    """``{"GUARD": [{"key_id": "k1", "secret": "…"}, …], …}`` (1 or 2 keys a guard). Raises BadInput; never shows a secret."""
    try:
        document = orjson.loads(data)
        found = {
            str(guard): tuple(SigningKey(str(key["key_id"]), str(key["secret"]).encode()) for key in keys)
            for guard, keys in document.items()
        }
    except (orjson.JSONDecodeError, AttributeError, TypeError, KeyError) as error:
        raise BadInput(
            "is not the guards' key file", where=where, hint='expected {"GUARD": [{"key_id": "k1", "secret": "…"}]}'
        ) from error
    for guard, pairs in found.items():
        if not 1 <= len(pairs) <= 2:
            raise BadInput("must hold one or two keys", where=where, field=guard, hint="two are valid at a time, for rotation")
    return found

"""What the guard did since its last report. Counted in memory; a report that could not be sent is counted again in the next."""

from __future__ import annotations

import threading
from datetime import datetime, timezone
from typing import Any

from tokenfuse_guard.entries import Entry

TOTALS = ("passed", "refused", "shadow_refused", "dropped")
_Row = tuple[int, float, float]
_Key = tuple[str, int, int, str, str]


def rfc3339(at_s: float) -> str:
    """``2026-11-30T12:00:00.000Z``."""
    return datetime.fromtimestamp(at_s, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Counts:
    """Totals by name, and rows by (entry, breaker, epoch, scope, what) with the first and last time."""

    def __init__(self, now_s: float) -> None:
        self._lock = threading.Lock()
        self._since_s = now_s
        self._totals: dict[str, int] = dict.fromkeys(TOTALS, 0)
        self._rows: dict[_Key, _Row] = {}

    def add(self, total: str, number: int = 1) -> None:
        with self._lock:
            self._totals[total] += number

    def note(self, notes: tuple[tuple[Entry, str], ...], refused: bool, now_s: float) -> None:
        """Count one request and what its entries did."""
        with self._lock:
            if refused:
                self._totals["refused"] += 1
            else:
                self._totals["passed"] += 1
                if any(what == "would_refuse" for _, what in notes):
                    self._totals["shadow_refused"] += 1
            for entry, what in notes:
                key = (entry.id, entry.breaker, entry.epoch, entry.scope, what)
                number, first_s, _ = self._rows.get(key, (0, now_s, now_s))
                self._rows[key] = (number + 1, first_s, now_s)

    def drain(self, now_s: float) -> dict[str, Any]:
        """Everything since the last drain, as fields of the report."""
        with self._lock:
            totals, rows, since_s = self._totals, self._rows, self._since_s
            self._totals, self._rows, self._since_s = dict.fromkeys(TOTALS, 0), {}, now_s
        return {"since": rfc3339(since_s), **totals, "entries": [_row_json(key, row) for key, row in rows.items()]}

    def restore(self, report: dict[str, Any]) -> None:
        """Take a drained report back: it did not arrive."""
        with self._lock:
            self._since_s = min(self._since_s, _at(report["since"]))
            for name in TOTALS:
                self._totals[name] += report[name]
            entries: list[dict[str, Any]] = report["entries"]
            for row in entries:
                key = (row["entry"], row["breaker"], row["epoch"], row["scope"], row["what"])
                first_s, last_s = _at(row["first_at"]), _at(row["last_at"])
                number, held_first_s, held_last_s = self._rows.get(key, (0, first_s, last_s))
                self._rows[key] = (number + row["requests"], min(first_s, held_first_s), max(last_s, held_last_s))


def _row_json(key: _Key, row: _Row) -> dict[str, Any]:
    entry, breaker, epoch, scope, what = key
    number, first_s, last_s = row
    found: dict[str, Any] = {"entry": entry, "breaker": breaker, "epoch": epoch, "scope": scope, "what": what}
    return {**found, "requests": number, "first_at": rfc3339(first_s), "last_at": rfc3339(last_s)}


def _at(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()

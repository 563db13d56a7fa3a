"""Failed attempts, held until it is known whether another one followed.

LiteLLM logs a failed attempt before it tries again and never says whether it did. The caller's answer tells: a later success of
the same call, or the failure given to the caller. Held payloads also arrive together with what followed them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

ENDS = "tokenfuse_ends_operation"
SETTLE_S = 2.0
"""LiteLLM logs from a queue: after the caller has its failure, so long is waited for what is still to be logged."""
HOLD_S = 60.0
MAX_HELD = 10_000


class _Operation:
    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.given_up_s: float | None = None
        self.failures: list[dict[str, Any]] = []


class Operations:
    """Calls of which an attempt failed, by LiteLLM's call id. Every method gives the payloads that need not wait any longer."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Operation] = OrderedDict()
        self._lock = threading.Lock()

    def failed(self, call_id: str, payload: dict[str, Any], now_s: float) -> list[dict[str, Any]]:
        """An attempt failed."""
        if not call_id:
            return [payload]
        with self._lock:
            self._of(call_id, now_s).failures.append(payload)
            return self._settled(self._open.popitem(last=False)[1]) if len(self._open) > MAX_HELD else []

    def answered(self, call_id: str) -> list[dict[str, Any]]:
        """The call was answered: every failed attempt of it was followed by another."""
        with self._lock:
            operation = self._open.pop(call_id, None)
        failures = operation.failures if operation else []
        for payload in failures:
            payload[ENDS] = False
        return failures

    def given_up(self, call_id: str, now_s: float) -> None:
        """The caller was given the failure."""
        if call_id:
            with self._lock:
                self._of(call_id, now_s).given_up_s = now_s

    def due(self, now_s: float, everything: bool = False) -> list[dict[str, Any]]:
        """What was waited for long enough: settled where the caller had the failure, else without a word of it."""
        found: list[dict[str, Any]] = []
        with self._lock:
            for call_id, operation in list(self._open.items()):
                settled = operation.given_up_s is not None and now_s - operation.given_up_s >= SETTLE_S
                if everything or settled or now_s - operation.since_s >= HOLD_S:
                    del self._open[call_id]
                    found.extend(self._settled(operation))
        return found

    def _of(self, call_id: str, now_s: float) -> _Operation:
        return self._open.setdefault(call_id, _Operation(now_s))

    @staticmethod
    def _settled(operation: _Operation) -> list[dict[str, Any]]:
        failures = sorted(operation.failures, key=lambda payload: float(payload.get("endTime") or 0))
        if operation.given_up_s is not None:
            for payload in failures:
                payload[ENDS] = payload is failures[-1]
        return failures

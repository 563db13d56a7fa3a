"""The usage an upstream sent with a stream, taken from LiteLLM's own list of the stream's chunks.

LiteLLM counts a stream's tokens itself where the upstream sent none (or broke off), books them as if they were the upstream's
and says nothing. Its chunks tell. The list is looked through once, when the call is logged: nothing is done while it runs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

MAX_STREAMS = 10_000
"""Streams that LiteLLM never logged are forgotten, oldest first, beyond so many."""


class StreamUsage:
    """Chunks of running streams by LiteLLM's call id."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[str, list[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def watch(self, call_id: str, response: Any) -> None:
        """A response was given to its caller; one that is no stream of chunks is not watched."""
        chunks = getattr(response, "chunks", None)
        if isinstance(chunks, list) and call_id:
            with self._lock:
                self._chunks[call_id] = chunks
                if len(self._chunks) > MAX_STREAMS:
                    self._chunks.popitem(last=False)

    def seen(self, call_id: str, answer_id: str) -> dict[str, Any] | None:
        """What the upstream said of its usage, {} when it said nothing; None when this answer's chunks were not watched."""
        with self._lock:
            chunks = self._chunks.pop(call_id, None)
        if not chunks or (answer_id and all(getattr(chunk, "id", "") != answer_id for chunk in chunks)):
            return None
        found: dict[str, Any] = {}
        for chunk in chunks:
            usage = _plain(getattr(chunk, "usage", None))
            found.update(usage if isinstance(usage, dict) else {})
        return found


def _plain(value: Any) -> Any:
    """As JSON, without what is null: usage on several chunks is cumulative, so of each field the last that is given counts."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {name: plain for name, inner in value.items() if (plain := _plain(inner)) is not None} or None
    return value

"""Calls that spans of earlier batches told: a gateway and an SDK export the spans of one call apart, often without a shared id.

The rule of one batch (``ingest.otlp.genai_spans``) over batches, as far as it is safe with what is counted already:

- A span whose child was counted with its counts is a wrapper: it is left out.
- A child whose parent was counted before, with the same counts, tells that call again: the first such child is left out. Others
  (further attempts, other counts) count: nothing is taken for a copy that may be work.

Kept in memory alone, of the newest calls: a pair that a restart cuts apart counts twice, as does one whose spans are further
apart than parent and child.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from ingest.otlp.conventions import Conventions
from ingest.otlp.items import Span

Key = tuple[str, str]
"""Trace id and span id."""
Counts = tuple[object, object]
"""Input and output as they were told."""


class SpansBefore:
    """At least ``size`` and at most twice as many of the newest calls. Several threads may share one."""

    def __init__(self, size: int = 100_000) -> None:
        self._size, self._lock = size, threading.Lock()
        self._young: dict[Key, Counts] = {}
        self._old: dict[Key, Counts] = {}
        self._parents: set[Key] = set()
        self._old_parents: set[Key] = set()
        self._copies: dict[Key, str] = {}
        """Counted call -> the child that told it again: sent once more, it is left out once more."""

    def told(self, spans: Sequence[Span], indexes: Iterable[int], table: Conventions) -> set[int]:
        """Those of the calls of a batch (``indexes``) that earlier batches told."""
        with self._lock:
            return {index for index in indexes if self._is_told(spans[index], table)}

    def add(self, spans: Sequence[Span], indexes: Iterable[int], table: Conventions) -> None:
        """Remember calls once they are in the log."""
        with self._lock:
            for index in indexes:
                span = spans[index]
                if table.has_usage(span.attributes):
                    self._young[span.trace_id, span.span_id] = counts_told(span, table)
                    if span.parent_id:
                        self._parents.add((span.trace_id, span.parent_id))
            if len(self._young) >= self._size:
                self._old, self._old_parents, self._young, self._parents = self._young, self._parents, {}, set()
                self._copies = {key: child for key, child in self._copies.items() if key in self._old}

    def _is_told(self, span: Span, table: Conventions) -> bool:
        own, above = (span.trace_id, span.span_id), (span.trace_id, span.parent_id)
        if own in self._parents or own in self._old_parents:
            return True
        counted = self._young.get(above) or self._old.get(above)
        if counted is None or counted != counts_told(span, table):
            return False
        return self._copies.setdefault(above, span.span_id) == span.span_id


def counts_told(span: Span, table: Conventions) -> Counts:
    """Input and output by the best attribute that is there; None where none is."""
    names = table.shape(span.attributes).usage
    found = [next((span.attributes[name] for name in names[kind]), None) for kind in ("input", "output")]
    return found[0], found[1]

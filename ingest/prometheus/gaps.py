"""Holes in what a server stored, each with a name. Nothing is ever put into one."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise

from core.windows import from_epoch_ms
from ingest.engine.faults import Fault

VANISHED_MS = 60_000
"""A target unseen for this long, and three times its schedule, is gone."""


def usual_step_ms(times: Sequence[int]) -> int | None:
    """The usual distance of two scrapes, None for fewer than three."""
    steps = [b - a for a, b in pairwise(times)]
    return round(statistics.median(steps)) if len(steps) >= 2 else None


def holes(times: Iterable[int], last_ms: int, interval_ms: int | None) -> list[tuple[int, int]]:
    """Silences of more than three intervals between scrapes, from ``last_ms`` on (0: never scraped before)."""
    if not interval_ms:
        return []
    known = ([last_ms] if last_ms else []) + sorted(at for at in times if at > last_ms)
    return [(a, b) for a, b in pairwise(known) if b - a > 3 * interval_ms]


def is_gone(last_ms: int, interval_ms: int | None, now_ms: int) -> bool:
    return now_ms - last_ms > max(VANISHED_MS, 3 * (interval_ms or 0))


def hole_fault(target: str, hole: tuple[int, int], source: str) -> Fault:
    since, until = map(from_epoch_ms, hole)
    seconds = (until - since) / timedelta(seconds=1)
    return Fault("source_gap", target, since, source, {"from": since, "to": until, "seconds": seconds, "source": source})


def down_fault(target: str, at_ms: int, source: str) -> Fault:
    return Fault(
        "target_down", target, from_epoch_ms(at_ms), detail={"source": source, "reason": "the server's scrape failed (up 0)"}
    )


def gone_fault(target: str, last_ms: int, source: str) -> Fault:
    since = from_epoch_ms(last_ms)
    return Fault("target_vanished", target, since, source, {"last_scrape": since, "source": source})

"""Limits that look at more than one request: tokens a minute, and long prompts running at once. Counted in this process."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from tokenfuse_guard.entries import Entry, Match, Refusal, RequestFacts, refusal

BYTES_PER_TOKEN = 4
"""Only to tell long prompts from short ones where nobody tokenised: a bound in bytes over-counts about this much."""


class Hold(NamedTuple):
    """What a running request occupies until ``Meters.settle``."""

    rates: tuple[Entry, ...] = ()
    longs: tuple[Entry, ...] = ()


NO_HOLD = Hold()


class Admission(NamedTuple):
    """The first refusal of an acting entry, what is held, and (entry, what) to be counted."""

    refusal: Refusal | None
    hold: Hold
    notes: tuple[tuple[Entry, str], ...]


class Overshoot(NamedTuple):
    """How far a bucket was overdrawn since it last had credit. Tokens are known when an answer ends, so at most every request in
    flight passes beside the one that crosses the limit: ``tokens`` <= ``most_in_flight`` x ``largest_request``."""

    tokens: int
    largest_request: int
    most_in_flight: int


class Meters:
    """Token buckets and running counts by entry. A bucket refills evenly over a minute and may be overdrawn: the request that
    crosses it has passed, the next one waits until it is refilled."""

    def __init__(self, long_prompt_tokens: int) -> None:
        self._long_prompt_tokens = long_prompt_tokens
        self._levels: dict[str, tuple[float, float]] = {}
        self._running: dict[str, int] = {}
        self._in_flight: dict[str, int] = {}
        self._most_in_flight: dict[str, int] = {}
        self._largest: dict[str, int] = {}
        self._overshoots: dict[str, tuple[Entry, Overshoot]] = {}
        self._lock = threading.Lock()

    def admit(self, match: Match, facts: RequestFacts, now_s: float) -> Admission:
        """Try to let a request in."""
        rates: list[Entry] = []
        longs: list[Entry] = []
        notes: list[tuple[Entry, str]] = []
        first: Refusal | None = None
        long = self._is_long(facts)
        with self._lock:
            for entry in match.entries:
                wrong = self._wrong(entry, long, now_s)
                if wrong is not None:
                    notes.append((entry, "refused" if entry.acts else "would_refuse"))
                    first = first or (wrong if entry.acts else None)
                if "tokens_per_min" in entry.limits:
                    rates.append(entry)
                if long and "max_concurrent_long" in entry.limits:
                    longs.append(entry)
            if first is not None:
                return Admission(first, NO_HOLD, tuple(notes))
            for entry in longs:
                self._running[entry.id] = self._running.get(entry.id, 0) + 1
            for entry in rates:
                now_running = self._in_flight.get(entry.id, 0) + 1
                self._in_flight[entry.id] = now_running
                self._most_in_flight[entry.id] = max(now_running, self._most_in_flight.get(entry.id, 0))
        return Admission(None, Hold(tuple(rates), tuple(longs)), tuple(notes))

    def settle(self, hold: Hold, tokens: int, now_s: float) -> None:
        """A request has ended: charge its tokens and free its place."""
        with self._lock:
            for entry in hold.rates:
                self._levels[entry.id] = (self._level(entry, now_s) - tokens, now_s)
                self._charged(entry, tokens)
            for entry in hold.longs:
                left = self._running.get(entry.id, 0) - 1
                if left > 0:
                    self._running[entry.id] = left
                else:
                    self._running.pop(entry.id, None)

    def overshoots(self, now_s: float) -> dict[str, Any]:
        """Fields for the guard's report: by entry, what passed beyond a limit that can act only after the fact. Told until the
        bucket is filled up again."""
        with self._lock:
            told = list(self._overshoots.values())
            for entry, _ in told:
                if self._level(entry, now_s) > 0 and self._in_flight.get(entry.id, 0) <= 0:
                    self._forget(entry.id)
        return {"overshoots": [{"entry": entry.id, "scope": entry.scope, **found._asdict()} for entry, found in told]}

    def _forget(self, name: str) -> None:
        self._overshoots.pop(name, None)
        self._largest.pop(name, None)
        self._most_in_flight.pop(name, None)

    def _charged(self, entry: Entry, tokens: int) -> None:
        name = entry.id
        self._in_flight[name] = self._in_flight.get(name, 1) - 1
        self._largest[name] = max(tokens, self._largest.get(name, 0))
        beyond = -int(self._levels[name][0])
        if beyond > 0:
            before = self._overshoots.get(name)
            worst = max(beyond, before[1].tokens if before else 0)
            self._overshoots[name] = entry, Overshoot(worst, self._largest[name], self._most_in_flight.get(name, 1))
        elif self._in_flight[name] <= 0 and name not in self._overshoots:
            self._forget(name)

    def _is_long(self, facts: RequestFacts) -> bool:
        if facts.prompt_tokens is not None:
            return facts.prompt_tokens > self._long_prompt_tokens
        at_most = facts.prompt_tokens_at_most
        return at_most is None or at_most // BYTES_PER_TOKEN > self._long_prompt_tokens

    def _level(self, entry: Entry, now_s: float) -> float:
        cap = float(entry.limits["tokens_per_min"])
        level, at_s = self._levels.get(entry.id, (cap, now_s))
        return min(cap, level + cap * max(0.0, now_s - at_s) / 60.0)

    def _wrong(self, entry: Entry, long: bool, now_s: float) -> Refusal | None:
        rate = entry.limits.get("tokens_per_min")
        if rate is not None:
            level = self._level(entry, now_s)
            if level <= 0:
                wait_s = int(60 * (1 - level) / rate) + 1 if rate else 60
                said = f"over the limit tokens_per_min={rate}"
                return refusal("tokens_per_min", entry, said)._replace(retry_after_s=min(wait_s, 3600))
        most = entry.limits.get("max_concurrent_long")
        if most is not None and long and self._running.get(entry.id, 0) >= most:
            return refusal("too_many_long_prompts", entry, f"over the limit max_concurrent_long={most}", param="messages")
        return None

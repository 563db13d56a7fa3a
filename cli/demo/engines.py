"""The engines that would have served the generated month: one sample a minute whose counters agree with the requests,
plus 2 % of work that no request explains (so that the demo has an unattributed line, as real fleets do)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from core.engine import EngineKey, EngineSample
from core.usage import Deployment, UsageRecord, slices
from core.windows import MINUTE_MS, epoch_ms, from_epoch_ms

BYPASS_EVERY = 50
KV_CAPACITY_TOKENS = 160_000


@dataclass(slots=True)
class _Minute:
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    finished: int = 0
    prefill_us: int = 0
    decode_us: int = 0
    busy_ms: int = 0
    context: int = 0


@dataclass(slots=True)
class Engine:
    """One engine's cumulative counters. ``feed`` records, then take ``samples`` up to a minute."""

    deployment: Deployment
    node: str
    born: datetime
    _minutes: dict[int, _Minute] = field(default_factory=lambda: defaultdict(_Minute))
    _counters: dict[str, int] = field(default_factory=dict)
    _next_minute: int | None = None

    def feed(self, records: Iterable[UsageRecord]) -> None:
        """Add what the records made this engine do, minute by minute."""
        for record in records:
            if record.status == "ok":
                self._add(record, 1 + (hash_number(record.request_id) % BYPASS_EVERY == 0))

    def samples(self, until: datetime) -> Iterator[EngineSample]:
        """One sample at each minute's end, up to ``until`` (whose minute must be complete)."""
        minute = epoch_ms(self.born) // MINUTE_MS * MINUTE_MS if self._next_minute is None else self._next_minute
        while minute + MINUTE_MS <= epoch_ms(until):
            yield self._sample(minute)
            minute += MINUTE_MS
        self._next_minute = minute

    def _add(self, record: UsageRecord, times: int) -> None:
        started, finished = epoch_ms(record.started_at), epoch_ms(record.finished_at)
        first = epoch_ms(record.first_token_at or record.finished_at)
        tokens = record.tokens
        for part in slices(first, finished, tokens, finished - started):
            minute = self._minutes[part.minute_ms]
            minute.prompt += times * part.tokens.input_total
            minute.cached += times * part.tokens.input_cache_read
            minute.generated += times * part.tokens.output
            minute.finished += times * part.requests
        head = self._minutes[first // MINUTE_MS * MINUTE_MS]
        head.prefill_us += times * 1000 * (first - started)
        self._minutes[finished // MINUTE_MS * MINUTE_MS].decode_us += times * 1000 * (finished - first)
        self._occupy(started, finished, tokens.input_total)

    def _occupy(self, started: int, finished: int, context: int) -> None:
        for minute in range(started // MINUTE_MS * MINUTE_MS, finished + 1, MINUTE_MS):
            inside = min(finished, minute + MINUTE_MS) - max(started, minute)
            self._minutes[minute].busy_ms += max(0, inside)
            self._minutes[minute].context = max(self._minutes[minute].context, context)

    def _sample(self, minute: int) -> EngineSample:
        done = self._minutes.pop(minute, _Minute())
        computed = done.prompt - done.cached
        increase = {
            "prompt_tokens": done.prompt,
            "generation_tokens": done.generated,
            "prompt_tokens_cached": done.cached,
            "prompt_tokens_computed": computed,
            "requests_finished": done.finished,
            "steps": done.generated // 2 + done.finished,
            "iteration_tokens": computed + done.generated,
            "preemptions": 0,
            "queue_us": 0,
            "prefill_us": done.prefill_us,
            "decode_us": done.decode_us,
            "inference_us": done.prefill_us + done.decode_us,
        }
        for name, value in increase.items():
            self._counters[name] = self._counters.get(name, 0) + value
        at = from_epoch_ms(minute + MINUTE_MS)
        running = -(-done.busy_ms // MINUTE_MS)
        return EngineSample(
            key=EngineKey(f"http://{self.node}:8000/metrics", "0", self.deployment.model_id),
            at=at,
            deployment=self.deployment,
            node=self.node,
            process_started_at=self.born,
            watched_since=self.born - timedelta(minutes=1),
            interval_ms=MINUTE_MS,
            counters=dict(self._counters),
            gauges={
                "running": running,
                "waiting": max(0, running - 8),
                "kv_usage_ppm": min(990_000, done.context * 1_000_000 // KV_CAPACITY_TOKENS),
                "kv_capacity_tokens": KV_CAPACITY_TOKENS,
            },
        )


def hash_number(text: str) -> int:
    """A small stable number of a text (Python's own hash changes with each process)."""
    return sum(ord(letter) * (i + 7) for i, letter in enumerate(text))

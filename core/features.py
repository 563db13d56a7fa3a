"""Features of requests, without their texts: what one request tells, and the sums of an hour.

Only requests that were answered count (status ok or aborted: a failure that was tried again is no turn of its session). What a
source does not say is unknown and stands in no sum: each sum has beside it of how many requests it is. The archive's query
(``eventlog.feature_sql``) and ``hour_features`` give the same rows for the same records (a test says so).

Order within an hour is (finished_ms, request id), so neither the order nor the repetition of records changes anything. A session
(of one organisation) is followed from ``SESSION_MS`` before the hour; a prompt is compared with those of its deployment from
``SIMILAR_MS`` before the hour.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby

from core.lengths import bucket
from core.minhash import PERMUTATIONS, bands, matches, places_needed, shared_tokens
from core.tool_graph import tool_steps
from core.usage import UsageRecord
from core.windows import epoch_ms

HOUR_MS = 3_600_000
SESSION_MS = 6 * HOUR_MS
SIMILAR_MS = HOUR_MS
SIMILAR_PERCENT = 70
CANDIDATES = 32
"""Of the prompts that share a band with one, so many of the latest different ones are compared."""
MOST_SKETCHES = 20_000
"""Different prompts of a deployment that are remembered at once (about 80 MB)."""
ANSWERED = frozenset({"ok", "aborted"})
TURNS: tuple[tuple[str, int], ...] = (
    ("turn_1", 1), ("turn_2", 2), ("turn_3_4", 4), ("turn_5_8", 8), ("turn_9_16", 16), ("turn_17_up", 1 << 62),
)  # fmt: skip
"""Histogram of the turn a request is in its session: column and highest turn."""
MEASURES: tuple[str, ...] = (
    "requests", "counted_requests", "input_tokens", "cached_tokens", "output_tokens", "ratio_requests", "ratio_quarters",
    "session_requests", *(name for name, _ in TURNS), "tool_known_requests", "tool_requests", "tool_calls",
    "repeat_requests", "repeat_e4", "sketched_requests", "sketched_input_tokens", "similar_requests", "shareable_tokens",
)  # fmt: skip
FeatureKey = tuple[str, str, str, str, str]
"""cluster, namespace, model id, organisation, team."""
EdgeKey = tuple[str, str, str, str, str, str]
"""cluster, namespace, model id, organisation, from tool, to tool."""


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """What the features of a request rest on. Token counts are None where usage is missing; ``tools`` is None where nobody
    looked; ``repeat_e4`` is the repetition ratio in ten-thousandths."""

    request_id: str
    finished_ms: int
    key: FeatureKey
    status: str = "ok"
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    session_id: str = ""
    tools: tuple[str, ...] | None = None
    repeat_e4: int | None = None
    sketch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HourFeatures:
    """Sums by ``FeatureKey`` in the order of MEASURES, and steps from tool to tool."""

    rows: dict[FeatureKey, tuple[int, ...]] = field(default_factory=dict)
    edges: dict[EdgeKey, int] = field(default_factory=dict)


def facts_of(record: UsageRecord) -> FeatureFacts:
    """The facts of a usage record."""
    d, t, tokens = record.deployment, record.tenant, record.tokens
    known = record.usage_source != "missing"
    looked = bool(record.tools or record.prefix_sketch) or record.repeat_ratio is not None
    return FeatureFacts(
        request_id=record.request_id,
        finished_ms=epoch_ms(record.finished_at),
        key=(d.cluster, d.namespace, d.model_id, t.org, t.team),
        status=record.status,
        input_tokens=tokens.input_total if known else None,
        cached_tokens=tokens.input_cache_read if known else None,
        output_tokens=tokens.output if known else None,
        session_id=record.session_id,
        tools=record.tools if looked else None,
        repeat_e4=None if record.repeat_ratio is None else ten_thousandths(record.repeat_ratio),
        sketch=record.prefix_sketch if len(record.prefix_sketch) == PERMUTATIONS else (),
    )


def ten_thousandths(ratio: Decimal) -> int:
    return int((ratio * 10_000).to_integral_value(ROUND_HALF_UP))


def log_ratio_quarters(input_tokens: int | None, output_tokens: int | None) -> int | None:
    """log2(input / output) in quarter doublings, by length buckets; None where one of them is unknown or 0."""
    if not input_tokens or not output_tokens:
        return None
    return bucket(input_tokens) - bucket(output_tokens)


def hour_features(facts: Iterable[FeatureFacts], hour_ms: int, percent: int = SIMILAR_PERCENT) -> HourFeatures:
    """The features of requests that finished in the hour that starts at ``hour_ms``.

    ``facts`` in log order (of copies the first counts), from ``SESSION_MS`` before the hour to an hour after it (a copy may bear
    another time); others are ignored.
    """
    end_ms = hour_ms + HOUR_MS
    first = {fact.request_id: fact for fact in reversed(list(facts))}
    ordered = sorted(
        (f for f in first.values() if f.status in ANSWERED and hour_ms - SESSION_MS <= f.finished_ms < end_ms),
        key=lambda f: (f.finished_ms, f.request_id),
    )
    sums: defaultdict[FeatureKey, Counter[str]] = defaultdict(Counter)
    for fact in ordered:
        if fact.finished_ms >= hour_ms:
            sums[fact.key].update(_own(fact))
    edges = _sessions(ordered, hour_ms, sums)
    sketched = sorted((f for f in ordered if _is_sketched(f, hour_ms)), key=lambda f: f.key[:3])
    for fact, saved in similar_prompts(sketched, hour_ms, percent):
        sums[fact.key].update({"similar_requests": 1, "shareable_tokens": saved})
    return HourFeatures({key: tuple(found[name] for name in MEASURES) for key, found in sums.items()}, edges)


def _own(fact: FeatureFacts) -> dict[str, int]:
    """What a request adds by itself."""
    found = {"requests": 1}
    if fact.input_tokens is not None:
        found |= {
            "counted_requests": 1, "input_tokens": fact.input_tokens, "cached_tokens": fact.cached_tokens or 0,
            "output_tokens": fact.output_tokens or 0,
        }  # fmt: skip
    quarters = log_ratio_quarters(fact.input_tokens, fact.output_tokens)
    if quarters is not None:
        found |= {"ratio_requests": 1, "ratio_quarters": quarters}
    if fact.tools is not None:
        found |= {"tool_known_requests": 1, "tool_requests": int(bool(fact.tools)), "tool_calls": len(fact.tools)}
    if fact.repeat_e4 is not None:
        found |= {"repeat_requests": 1, "repeat_e4": fact.repeat_e4}
    if fact.sketch and fact.input_tokens is not None:
        found |= {"sketched_requests": 1, "sketched_input_tokens": fact.input_tokens}
    return found


def _sessions(ordered: Iterable[FeatureFacts], hour_ms: int, sums: Mapping[FeatureKey, Counter[str]]) -> dict[EdgeKey, int]:
    """Adds turns to ``sums``; returns the steps between tools."""
    sessions: defaultdict[tuple[str, str], list[FeatureFacts]] = defaultdict(list)
    for fact in ordered:
        if fact.session_id:
            sessions[fact.key[3], fact.session_id].append(fact)
    edges: Counter[EdgeKey] = Counter()
    for facts in sessions.values():
        steps = tool_steps(fact.tools or () for fact in facts)
        for turn, (fact, taken) in enumerate(zip(facts, steps, strict=True), 1):
            if fact.finished_ms >= hour_ms:
                sums[fact.key].update({"session_requests": 1, turn_column(turn): 1})
                edges.update((*fact.key[:4], *step) for step in taken)
    return dict(edges)


def turn_column(turn: int) -> str:
    return next(name for name, highest in TURNS if turn <= highest)


def similar_prompts(sketched: Iterable[FeatureFacts], hour_ms: int, percent: int) -> Iterator[tuple[FeatureFacts, int]]:
    """Requests of the hour whose prompt is at least ``percent`` similar to an earlier one of their deployment, and the tokens
    that sharing its head would save beyond those that came from the cache.

    ``sketched``: answered requests with sketch and known counts since ``SIMILAR_MS`` before the hour, by (deployment,
    finished_ms, request id). Held in memory: the index of one deployment.
    """
    for _, facts in groupby(sketched, key=lambda f: f.key[:3]):
        index = _Index(places_needed(percent))
        for fact in facts:
            shared = index.most_shared(fact.sketch, fact.input_tokens or 0)
            index.add(fact.sketch, fact.input_tokens or 0)
            if fact.finished_ms >= hour_ms and shared is not None:
                yield fact, max(0, shared - (fact.cached_tokens or 0))


def _is_sketched(fact: FeatureFacts, hour_ms: int) -> bool:
    return bool(fact.sketch) and fact.input_tokens is not None and fact.finished_ms >= hour_ms - SIMILAR_MS


Sketch = tuple[int, ...]


class _Index:
    """The latest ``MOST_SKETCHES`` different sketches with the tokens of the latest prompt of each, and those of each band."""

    def __init__(self, needed: int) -> None:
        self._needed, self._cuts = needed, bands(needed)
        self._tokens: OrderedDict[Sketch, int] = OrderedDict()
        self._bands: list[defaultdict[Sketch, OrderedDict[Sketch, None]]] = [defaultdict(OrderedDict) for _ in self._cuts]

    def most_shared(self, sketch: Sketch, tokens: int) -> int | None:
        """The most tokens shared with one similar prompt; None without one."""
        near: set[Sketch] = set()
        for place, cut in zip(self._bands, self._cuts, strict=True):
            near.update(place.get(sketch[cut], ()))
        found = [(matches(sketch, other), self._tokens[other]) for other in near]
        return max((shared_tokens(n, tokens, size) for n, size in found if n >= self._needed), default=None)

    def add(self, sketch: Sketch, tokens: int) -> None:
        self._tokens[sketch] = tokens
        self._tokens.move_to_end(sketch)
        for place, cut in zip(self._bands, self._cuts, strict=True):
            latest = place[sketch[cut]]
            latest[sketch] = None
            latest.move_to_end(sketch)
            if len(latest) > CANDIDATES:
                latest.popitem(last=False)
        if len(self._tokens) > MOST_SKETCHES:
            self._forget(self._tokens.popitem(last=False)[0])

    def _forget(self, sketch: Sketch) -> None:
        for place, cut in zip(self._bands, self._cuts, strict=True):
            place[sketch[cut]].pop(sketch, None)
            if not place[sketch[cut]]:
                del place[sketch[cut]]

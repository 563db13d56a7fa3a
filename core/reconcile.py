"""What engines counted against what gateways booked, and why the two differ: named parts whose sum is the difference exactly.

Signs: a part is positive where the engines did more than the gateway says, negative the other way round. Parts are taken in
order of how surely they are known, each only as far as its evidence goes; what is left keeps the name ``unattributed`` or
``over_explained`` and is never pressed into a reason. Everything the engines counted falls into work of requests that finished
(their per-request histograms) and the rest, so with finished counts known::

    engine - gateway = repeated + (unfinished - failed rows) + (finished - ok rows)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

KNOWN: Mapping[str, str] = {
    "parallel_answers": "exact: an engine counts the prompt once per answer asked for (n), a gateway once",
    "prefill_decode_split": "at most: prompts fetched from another engine's KV cache are counted by both engines",
    "timing_edge": "inferred from the minutes around the window's ends: booked by the gateway on the other side",
    "unfinished": "measured: engine counters beyond the histograms of finished requests, less what failed rows book",
    "engine_unseen": "measured: booked in minutes in which no page of the deployment's engines was read",
    "engine_reset": "at most: booked in the minutes of an engine restart; counts after the last page before it are lost",
    "estimated_stream": "by elimination: no request is a stranger to the gateway, and these rows hold the gateway's estimates",
    "missing_usage": "by elimination: no request is a stranger to the gateway, and these rows came without counts",
    "estimated_or_missing": "by elimination: rows with estimates and rows without counts; which of them cannot be told",
    "unattributed": "not known: the gateway was bypassed, or something else",
    "over_explained": "not known: the gateway books more than the engines counted",
    "scrape_gap": "measured: engine time between two pages too far apart; its tokens are counted, their minutes are not known",
    "no_engine_samples": "not known: no engine page was read",
}
"""How each reason is known."""
SLACK = 200
"""One request in so many may finish on the other side of a window's end by clock skew; more are strangers to the gateway."""


@dataclass(frozen=True, slots=True)
class EngineView:
    """Counter increases of a deployment's engines. ``finished_…`` and ``requests`` None: the pages do not tell.

    ``external``: prompt tokens fetched from another engine; ``prefill_answers``: requests finished by engines that fetched
    none while others did (each such prefill emits one token nobody is sold).
    """

    prompt: int
    generation: int
    finished_prompt: int | None = None
    finished_generation: int | None = None
    requests: int | None = None
    external: int = 0
    prefill_answers: int = 0
    resets: int = 0
    gap_us: int = 0


@dataclass(frozen=True, slots=True)
class GatewayView:
    """What usage records book. ``failed`` rows are aborted or error; ``estimated`` and ``missing`` count rows of any status,
    with ``ok_`` those of answered requests. ``repeated`` is (n - 1) x input, ``failed_repeated`` that of failed rows."""

    tokens_in: int = 0
    tokens_out: int = 0
    ok_requests: int = 0
    failed_requests: int = 0
    failed_in: int = 0
    failed_out: int = 0
    repeated: int = 0
    failed_repeated: int = 0
    estimated_requests: int = 0
    estimated_in: int = 0
    estimated_out: int = 0
    ok_estimated: int = 0
    missing_requests: int = 0
    ok_missing: int = 0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What neighbouring minutes say. ``edge``: tokens by which engine work lies here and its booking outside (negative: the
    other way round); ``unseen``, ``reset``: gateway tokens of minutes without an engine page, with an engine restart."""

    edge_in: int = 0
    edge_out: int = 0
    unseen_in: int = 0
    unseen_out: int = 0
    reset_in: int = 0
    reset_out: int = 0


@dataclass(frozen=True, slots=True)
class Reason:
    """One part. ``tokens_…`` None: how much of the difference it is cannot be told. ``rests_…``: gateway tokens that
    rest on it."""

    name: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    requests: int | None = None
    count: int | None = None
    seconds: Decimal | None = None
    rests_in: int | None = None
    rests_out: int | None = None

    @property
    def known(self) -> str:
        return KNOWN[self.name]


@dataclass(frozen=True, slots=True)
class Reconciled:
    """``difference_…`` = engine - gateway, None without engine; the known tokens of ``reasons`` add up to it exactly."""

    difference_in: int | None
    difference_out: int | None
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class _Side:
    """One token type."""

    engine: int
    finished: int | None
    gateway: int
    failed: int
    repeated: int
    failed_repeated: int
    external: int
    edge: int
    unseen: int
    reset: int
    estimated: int


def reconcile(engine: EngineView | None, gateway: GatewayView, evidence: Evidence = Evidence()) -> Reconciled:
    """Name the difference, prompt and generated tokens apart."""
    if engine is None:
        return Reconciled(None, None, (*_facts(gateway, set()), Reason("no_engine_samples")))
    rest = _rest_name(engine, gateway)
    prompt, generation = _sides(engine, gateway, evidence)
    parts_in, parts_out = _split(prompt, rest), _split(generation, rest)
    names = [name for name in KNOWN if parts_in[name] or parts_out[name]]
    reasons = [_reason(name, parts_in[name], parts_out[name], engine, gateway) for name in names]
    reasons += _facts(gateway, set(names))
    if engine.resets and "engine_reset" not in names:
        reasons.append(Reason("engine_reset", count=engine.resets))
    if engine.gap_us:
        reasons.append(Reason("scrape_gap", seconds=Decimal(engine.gap_us) / 1_000_000))
    return Reconciled(engine.prompt - gateway.tokens_in, engine.generation - gateway.tokens_out, tuple(reasons))


def strangers(engine: EngineView, gateway: GatewayView) -> int | None:
    """Requests the engines finished beyond those the gateway knows to be answered (it may know them as failed)."""
    return None if engine.requests is None else max(0, engine.requests - gateway.ok_requests)


def _rest_name(engine: EngineView, gateway: GatewayView) -> str:
    """What a rest of finished work is called when only requests known to the gateway can have done it."""
    unknown = strangers(engine, gateway)
    if unknown is None or unknown > gateway.ok_requests // SLACK:
        return "unattributed"
    if engine.finished_prompt is None and gateway.failed_requests:
        return "unattributed"
    if gateway.ok_estimated and gateway.ok_missing:
        return "estimated_or_missing"
    return "estimated_stream" if gateway.ok_estimated else "missing_usage" if gateway.ok_missing else "unattributed"


def _sides(engine: EngineView, gateway: GatewayView, evidence: Evidence) -> tuple[_Side, _Side]:
    prompt = _Side(
        engine.prompt, engine.finished_prompt, gateway.tokens_in, gateway.failed_in, gateway.repeated, gateway.failed_repeated,
        engine.external, evidence.edge_in, evidence.unseen_in, evidence.reset_in, gateway.estimated_in,
    )  # fmt: skip
    generation = _Side(
        engine.generation, engine.finished_generation, gateway.tokens_out, gateway.failed_out, 0, 0,
        engine.prefill_answers, evidence.edge_out, evidence.unseen_out, evidence.reset_out, gateway.estimated_out,
    )  # fmt: skip
    return prompt, generation


def _split(side: _Side, rest_name: str) -> Counter[str]:
    """The parts of ``engine - gateway``; they add up to it."""
    found: Counter[str] = Counter(parallel_answers=side.repeated)
    rest = side.engine - side.gateway - side.repeated
    edge = _towards(rest, side.edge)
    found["timing_edge"] = edge
    unfinished = 0
    if side.finished is not None:
        unfinished = side.engine - side.finished - side.failed - side.failed_repeated - edge
    finished = rest - edge - unfinished
    if unfinished < 0:  # failed at the gateway, finished on the engine
        finished, unfinished = finished + unfinished, 0
    split = min(max(finished, 0), side.external)
    unseen = min(max(-finished, 0), side.unseen)
    found["prefill_decode_split"], found["engine_unseen"] = split, -unseen
    finished += unseen - split
    if finished < 0 < unfinished:  # answered later: its work is here, its end is not
        later = min(-finished, unfinished)
        finished, unfinished = finished + later, unfinished - later
    found["unfinished"] = unfinished
    if finished > 0:
        found[rest_name] += finished
    else:
        _name_excess(found, side, -finished)
    return found


def _name_excess(found: Counter[str], side: _Side, excess: int) -> None:
    lost = min(excess, side.reset)
    guessed = min(excess - lost, side.estimated)
    found["engine_reset"], found["estimated_stream"] = -lost, -guessed
    found["over_explained"] = lost + guessed - excess


def _towards(rest: int, evidence: int) -> int:
    """As much of ``evidence`` as lies between nothing and ``rest``."""
    return max(rest, min(0, evidence)) if rest < 0 else min(rest, max(0, evidence))


def _reason(name: str, tokens_in: int, tokens_out: int, engine: EngineView, gateway: GatewayView) -> Reason:
    reason = Reason(name, tokens_in, tokens_out)
    if name == "engine_reset":
        return Reason(name, tokens_in, tokens_out, count=engine.resets)
    if name == "unfinished":
        return Reason(
            name, tokens_in, tokens_out, gateway.failed_requests, rests_in=gateway.failed_in, rests_out=gateway.failed_out
        )
    if name == "unattributed":
        return Reason(name, tokens_in, tokens_out, strangers(engine, gateway))
    for fact in _facts(gateway, set()):
        if fact.name == name:
            return Reason(name, tokens_in, tokens_out, fact.requests, rests_in=fact.rests_in, rests_out=fact.rests_out)
    if name == "estimated_or_missing":
        return Reason(name, tokens_in, tokens_out, gateway.ok_estimated + gateway.ok_missing)
    return reason


def _facts(gateway: GatewayView, named: set[str]) -> list[Reason]:
    """Rows that are not exact, whether or not they explain anything; without counts is not zero tokens."""
    found = []
    if gateway.estimated_requests and "estimated_stream" not in named:
        found.append(
            Reason(
                "estimated_stream", requests=gateway.estimated_requests,
                rests_in=gateway.estimated_in, rests_out=gateway.estimated_out,
            )
        )  # fmt: skip
    if gateway.missing_requests and "missing_usage" not in named:
        found.append(Reason("missing_usage", requests=gateway.missing_requests))
    return found


def minute_edge(before: int, after: int) -> int:
    """Tokens that cross a border: ``before`` and ``after`` are engine - gateway in the minutes on its two sides.

    Positive: done before it and booked after it. Where both sides err the same way nothing crossed.
    """
    if before > 0 > after:
        return min(before, -after)
    if before < 0 < after:
        return -min(-before, after)
    return 0

"""How much of what the engines did the usage records explain, and why not all of it (``core.reconcile``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import Connection

from core.money import CONTEXT
from core.reconcile import KNOWN, Evidence, Reason, reconcile
from core.windows import Window
from models.reconcile_evidence import read_evidence
from models.reconcile_repo import Key, Question, Views, read_view_sums, read_views
from models.usage_keys import DEPLOYMENT, DEPLOYMENT_COLUMNS, TIME_KEYS, Row, check_keys

COVERAGE_KEYS: tuple[str, ...] = (*TIME_KEYS, DEPLOYMENT, *DEPLOYMENT_COLUMNS)
RATIO = Decimal("0.000001")
_AMOUNTS = ("tokens_in", "tokens_out", "requests", "count", "seconds", "rests_in", "rests_out")


def coverage_rows(
    connection: Connection,
    by: Sequence[str],
    window: Window,
    filters: Mapping[str, str] | None = None,
    *,
    zone_name: str = "UTC",
    with_reasons: bool = True,
) -> list[Row]:
    """Per key: engine and gateway tokens, ``coverage`` = Σ min(engine, gateway) / Σ engine over prompt and generated tokens
    (six decimals; None when the engines did or said nothing), ``difference_in`` / ``difference_out`` = engine - gateway of the
    deployments whose engines were seen, and ``reasons``: {name, tokens_in, tokens_out, known, and requests, count, seconds,
    rests_in, rests_out where they apply}. The reasons' known tokens add up to the difference exactly; None is an amount that
    cannot be told. Every deployment and step of time is reconciled by itself and then summed. Usage bought from vendors has no
    engine here and is left out. ``with_reasons`` False: no reason is looked for (``reasons`` None), which reads less.
    """
    time_key = check_keys(by, filters or {}, COVERAGE_KEYS)
    question = Question(window, filters or {}, time_key, zone_name)
    merged = _explained(connection, question, by) if with_reasons else _summed(connection, question, by)
    return [_row(by, key, merged[key]) for key in sorted(merged, key=lambda key: tuple(map(str, key)))]


def _summed(connection: Connection, question: Question, by: Sequence[str]) -> dict[tuple[Any, ...], _Sum]:
    found = read_view_sums(connection, question, by)
    return {
        tuple(_shown_key(part) for part in key): _Sum(sums.engine, sums.gateway, sums.difference, None)
        for key, sums in found.items()
    }


def _explained(connection: Connection, question: Question, by: Sequence[str]) -> dict[tuple[Any, ...], _Sum]:
    views = read_views(connection, question)
    evidence = read_evidence(connection, question, views)
    merged: dict[tuple[Any, ...], _Sum] = {}
    for key, found in views.items():
        group = merged.setdefault(tuple(_key(name, key) for name in by), _Sum())
        group.add(found)
        group.explain(found, evidence.get(key, Evidence()))
    return merged


def _key(name: str, key: Key) -> Any:
    if name == DEPLOYMENT:
        return str(key.deployment)
    if name not in TIME_KEYS:
        return getattr(key.deployment, name)
    return _shown_key(key.step)


def _shown_key(part: Any) -> Any:
    return part.astimezone(UTC) if isinstance(part, datetime) else part


@dataclass(slots=True)
class _Sum:
    """Deployments of one row together."""

    engine: tuple[int, int] | None = None
    gateway: tuple[int, int] = (0, 0)
    difference: tuple[int, int] | None = None
    reasons: dict[str, dict[str, Any]] | None = None

    def add(self, views: Views) -> None:
        booked = views.gateway
        self.gateway = (self.gateway[0] + booked.tokens_in, self.gateway[1] + booked.tokens_out)
        if views.engine is None:
            return
        did = views.engine.prompt, views.engine.generation
        self.engine = _plus(self.engine, did)
        self.difference = _plus(self.difference, (did[0] - booked.tokens_in, did[1] - booked.tokens_out))

    def explain(self, views: Views, evidence: Evidence) -> None:
        reasons = self.reasons = {} if self.reasons is None else self.reasons
        for reason in reconcile(views.engine, views.gateway, evidence).reasons:
            _merge(reasons.setdefault(reason.name, dict.fromkeys(_AMOUNTS)), reason)


def _merge(into: dict[str, Any], reason: Reason) -> None:
    for name in _AMOUNTS:
        value = getattr(reason, name)
        if value is not None:
            into[name] = value if into[name] is None else into[name] + value


def _plus(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    return other if one is None else (one[0] + other[0], one[1] + other[1])


def _row(by: Sequence[str], key: tuple[Any, ...], whole: _Sum) -> Row:
    shown = {name: value.isoformat() if type(value) is date else value for name, value in zip(by, key, strict=True)}
    engine, difference = whole.engine or (None, None), whole.difference or (None, None)
    return shown | {
        "engine_prompt_tokens": engine[0],
        "engine_generation_tokens": engine[1],
        "gateway_input_tokens": whole.gateway[0],
        "gateway_output_tokens": whole.gateway[1],
        "coverage": _ratio(engine, whole.gateway),
        "difference_in": difference[0],
        "difference_out": difference[1],
        "reasons": None if whole.reasons is None else list(_shown(whole.reasons)),
    }


def _shown(reasons: Mapping[str, Mapping[str, Any]]) -> Iterable[Row]:
    """In the order of how surely they are known; what does not apply to a reason is left out."""
    for name in KNOWN:
        if name in reasons:
            amounts = {what: amount for what, amount in reasons[name].items() if amount is not None or what in _ALWAYS}
            yield {"name": name, **amounts, "known": KNOWN[name]}


_ALWAYS = ("tokens_in", "tokens_out", "requests")


def _ratio(engine: tuple[int | None, int | None], gateway: tuple[int, int]) -> Decimal | None:
    worked = sum(tokens or 0 for tokens in engine)
    if not worked:
        return None
    explained = sum(min(did or 0, said) for did, said in zip(engine, gateway, strict=True))
    with localcontext(CONTEXT):
        return (Decimal(explained) / worked).quantize(RATIO)

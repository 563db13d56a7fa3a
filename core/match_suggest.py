"""Which machine an unmatched charge is likely to be of, and why. A suggestion is for a person: it never enters the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from difflib import SequenceMatcher

from core.charge_join import Node
from core.rates import sku_key

LEAST = Decimal("0.30")
"""A weaker one is not worth a person's time."""
ONE_THAT_FITS = Decimal("0.50")
SAME_TYPE = Decimal("0.40")
SAME_GPUS = Decimal("0.30")
LIKE_NAME = Decimal("0.30")
SAME_TIME = Decimal("0.20")
NEEDS_CHARGE = Decimal("0.10")
LIKE = 0.8
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Billed:
    """An unmatched resource. ``gpu``, ``gpus``: what its instance type has ('' and 0: not known)."""

    resource_id: str
    instance_type: str
    gpu: str
    gpus: int
    names: tuple[str, ...]
    candidates: tuple[Node, ...]
    first: datetime | None
    last: datetime | None
    reserved: bool = False
    """Capacity reserved and not used: machines of its type have their own charges beside it."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A node of the inventory. ``gpus``: (type, count); ``uncharged``: some hours that a bill covers have no charge of it."""

    node: Node
    since: datetime
    until: datetime | None
    gpus: tuple[tuple[str, int], ...] = ()
    instance_types: tuple[str, ...] = ()
    uncharged: bool = False


@dataclass(frozen=True, slots=True)
class Suggestion:
    """``score`` from 0 to 1; ``reason`` names each thing that speaks for it."""

    node: Node
    resource_id: str
    score: Decimal
    reason: str


def suggest(billed: Billed, nodes: Iterable[Serving]) -> Suggestion | None:
    """The likeliest node, the first by name of equals; None when nothing but the time speaks for any. A node that has its charges
    already is not asked for another machine's."""
    open_nodes = (node for node in nodes if node.uncharged or billed.reserved or node.node in billed.candidates)
    scored = sorted((-(found := score(billed, node)).score, node.node, found) for node in open_nodes)
    return scored[0][2] if scored and scored[0][2].score >= LEAST else None


def score(billed: Billed, node: Serving) -> Suggestion:
    """How much speaks for it. What is said of time counts only beside something that names the machine."""
    signs: list[tuple[Decimal, str]] = []
    if node.node in billed.candidates:
        signs.append((ONE_THAT_FITS, "one of several that fit"))
    if billed.instance_type and billed.instance_type in node.instance_types:
        signs.append((SAME_TYPE, f"both are {billed.instance_type}"))
    elif billed.gpus and (billed.gpus, True) in [(count, _same_gpu(billed.gpu, kind)) for kind, count in node.gpus]:
        signs.append((SAME_GPUS, f"both have {billed.gpus} {billed.gpu}"))
    if alike := _alike((*billed.names, billed.resource_id), node.node.node):
        signs.append((LIKE_NAME, f"its name {alike} is like the node's"))
    if signs:
        signs += _of_time(billed, node)
    total = min(sum((weight for weight, _ in signs), Decimal(0)), Decimal(1)).quantize(_CENT)
    return Suggestion(node.node, billed.resource_id, total, "; ".join(words for _, words in signs))


def _of_time(billed: Billed, node: Serving) -> list[tuple[Decimal, str]]:
    found = []
    if billed.first is not None and billed.last is not None and billed.first < billed.last:
        start, end = max(billed.first, node.since), min(billed.last, node.until or billed.last)
        share = max((end - start) / (billed.last - billed.first), 0.0)
        if share:
            found.append(
                ((SAME_TIME * Decimal(share)).quantize(_CENT), f"it serves in {round(share * 100)} % of the billed time")
            )
    if node.uncharged:
        found.append((NEEDS_CHARGE, "it has no charge of its own"))
    return found


def _same_gpu(one: str, other: str) -> bool:
    """``A100`` and ``A100-40GB`` may be the same, ``L4`` and ``L40S`` are not."""
    a, b = sku_key(one), sku_key(other)
    return a == b or a.startswith(f"{b}-") or b.startswith(f"{a}-")


def _alike(names: Collection[str], node: str) -> str:
    wanted = node.casefold()
    for name in names:
        last = name.rstrip("/").rpartition("/")[2]
        match = SequenceMatcher(None, last.casefold(), wanted)
        if last and match.real_quick_ratio() >= LIKE and match.quick_ratio() >= LIKE and match.ratio() >= LIKE:
            return last
    return ""


def suggest_all(billed: Sequence[Billed], nodes: Sequence[Serving]) -> dict[str, Suggestion]:
    """By resource id; those of nothing are left out."""
    return {one.resource_id: found for one in billed if (found := suggest(one, nodes)) is not None}

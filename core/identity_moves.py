"""What a change of identity rules would move from tenant to tenant: requests, tokens and cost, in parts that add up exactly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from core.identity import Resolved
from core.money import ZERO, split
from core.usage import Deployment, TenantPath

TOKEN_KINDS = ("input", "input_cached", "output")


class Charged(NamedTuple):
    """To whom work is charged."""

    tenant: TenantPath
    service_tier: str

    def shown(self) -> tuple[str, ...]:
        """What a preview tells apart: the path without its key, and the tier."""
        t = self.tenant
        return (t.org, t.team, t.project, t.user, self.service_tier)


class LineOf(NamedTuple):
    """The ledger line that holds the cost of some work: kind served or wasted, token kind '' for what has no tokens."""

    deployment: Deployment
    charged: Charged
    kind: str
    token_kind: str


@dataclass(slots=True)
class Sum:
    """``cost`` by currency; empty where nothing of it is priced."""

    requests: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    cost: dict[str, Decimal] = field(default_factory=dict)

    def add(self, other: Sum) -> None:
        self.requests += other.requests
        self.tokens.update(other.tokens)
        for currency, amount in other.cost.items():
            self.cost[currency] = self.cost.get(currency, ZERO) + amount


@dataclass(slots=True)
class Moves:
    """Collects work under its old and its new charge; ``unmatched`` is what no rule applied to."""

    work: dict[tuple[Deployment, Charged, Charged, str], Sum] = field(default_factory=lambda: defaultdict(Sum))
    unmatched: Sum = field(default_factory=Sum)
    by_rule: Counter[str] = field(default_factory=Counter)

    def add(self, deployment: Deployment, old: Charged, found: Resolved, status: str, work: Sum) -> None:
        """Count work that is charged to ``old`` and that the new rules judge as ``found``."""
        kind = "served" if status == "ok" else "refused" if status == "refused" else "wasted"
        self.work[deployment, old, Charged(found.tenant, found.service_tier), kind].add(work)
        for rule in found.matched:
            self.by_rule[rule] += work.requests
        if not found.matched:
            self.unmatched.add(work)

    def price(self, lines: Mapping[LineOf, Mapping[str, Decimal]]) -> dict[str, Decimal]:
        """Share each line's cost over the new charges of its work by tokens (requests, where it has none).

        The shares add up to the line exactly. Returns the cost, by currency, of lines none of whose work was counted here.
        """
        parts: dict[LineOf, dict[Charged, Sum]] = defaultdict(dict)
        for (deployment, old, new, kind), work in self.work.items():
            for token_kind in (*TOKEN_KINDS, ""):
                parts[LineOf(deployment, old, kind, token_kind)][new] = work
        left: dict[str, Decimal] = defaultdict(lambda: ZERO)
        for line, costs in lines.items():
            found = parts.get(line, {})
            weights = {new: work.tokens[line.token_kind] if line.token_kind else work.requests for new, work in found.items()}
            if not sum(weights.values()):
                weights = {new: work.requests for new, work in found.items()}
            for currency, cost in costs.items():
                if not sum(weights.values()):
                    left[currency] += cost
                    continue
                for new, share in split(cost, weights).items():
                    found[new].add(Sum(cost={currency: share}))
        return dict(left)

    def pairs(self) -> dict[tuple[tuple[str, ...], tuple[str, ...]], Sum]:
        """Sums by what is shown of the old and the new charge."""
        found: dict[tuple[tuple[str, ...], tuple[str, ...]], Sum] = defaultdict(Sum)
        for (_, old, new, _), work in self.work.items():
            found[old.shown(), new.shown()].add(work)
        return dict(found)

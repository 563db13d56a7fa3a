"""Why a scope costs more: the change in cost by cause, and which tenants are causes rather than victims.

Under load one tenant's long prompts make everybody's tokens dearer. So nobody is named by their own unit cost: a tenant is a
cause only by more work of its own, weighed at the coefficients and the price of before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext

from core.explain import Change
from core.money import CONTEXT, ZERO, total

CAUSES: Mapping[str, tuple[str, ...]] = {
    "price": ("currency", "bought_rate", "rate"),
    "volume": ("bought", "days", "volume"),
    "mix": ("mix",),
    "cache": ("cache",),
    "utilisation": ("speed", "idle", "starting"),
    "waste": ("waste", "unattributed"),
    "deployments": ("new", "retired", "unsplit"),
}
"""The effects of ``core.explain`` by cause; each stands in one."""
CULPRIT_SHARE = Decimal("0.5")


@dataclass(frozen=True, slots=True)
class Own:
    """A tenant's own part in an excess: its cost before and after at the coefficients of before, and the share of the excess that
    its increase explains (more than 1 where others' fell)."""

    tenant: str
    before: Decimal
    after: Decimal
    share: Decimal


def by_cause(change: Change) -> dict[str, Decimal]:
    """A change's effects summed by cause; they add up to the change exactly."""
    return {cause: total(change.effects[name] for name in names) for cause, names in CAUSES.items()}


def own_parts(before: Mapping[str, Decimal], after: Mapping[str, Decimal], excess: Decimal) -> list[Own]:
    """Tenants whose own cost rose, by how much of ``excess`` that explains, the most first. Nobody without an excess.

    ``before`` and ``after``: each tenant's work in spans of equal length, weighed at the coefficients and price of before;
    ``excess``: what the deployment as a whole cost more than usual, measured, at the price of before. A tenant of one side alone
    had 0.
    """
    if excess <= 0:
        return []
    found = []
    with localcontext(CONTEXT):
        for tenant in sorted(before.keys() | after.keys()):
            first, second = before.get(tenant, ZERO), after.get(tenant, ZERO)
            if second > first:
                found.append(Own(tenant, first, second, (second - first) / excess))
    return sorted(found, key=lambda own: (-own.share, own.tenant))


def culprits(before: Mapping[str, Decimal], after: Mapping[str, Decimal], excess: Decimal) -> tuple[str, ...]:
    """The tenants that caused ``excess``: each explains at least half of it by its own increase (``own_parts``).

    A dearer or slower engine has an excess and no tenant with more work: nobody is named.
    """
    return tuple(own.tenant for own in own_parts(before, after, excess) if own.share >= CULPRIT_SHARE)

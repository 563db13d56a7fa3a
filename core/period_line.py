"""Money of a month that lies in no quarter hour of a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, get_args

PeriodKind = Literal["shared", "not_shared", "unassigned", "rounding"]
PERIOD_KINDS: tuple[PeriodKind, ...] = get_args(PeriodKind)
"""Shared by a rule; charges no rule takes; billed GPU time that no deployment held; what is finer than the ledger's quantum."""


@dataclass(frozen=True, slots=True, order=True)
class PeriodLine:
    """``name``: the rule's; bucket and service of what no rule takes; CLUSTER/NODE of unassigned money and rounding. A shared
    line names a deployment or a tenant (organisation, or organisation and team); absent is ''."""

    kind: PeriodKind
    name: str
    currency: str
    amount: Decimal
    cluster: str = ""
    namespace: str = ""
    model_id: str = ""
    org: str = ""
    team: str = ""

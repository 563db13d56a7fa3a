"""What is known of one period's bills before it is reconciled: sums of charges, of machines' hours and of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from core.money import ZERO, total

View = Literal["invoice", "usage"]
"""What an issuer billed in a period, or what was used in it: a correction is in each view once."""


@dataclass(frozen=True, slots=True)
class Costs:
    """A sum on both bases."""

    billed: Decimal = ZERO
    effective: Decimal = ZERO

    def __add__(self, other: Costs) -> Costs:
        return Costs(total((self.billed, other.billed)), total((self.effective, other.effective)))

    def __sub__(self, other: Costs) -> Costs:
        return Costs(total((self.billed, -other.billed)), total((self.effective, -other.effective)))

    def __bool__(self) -> bool:
        return bool(self.billed or self.effective)


@dataclass(frozen=True, slots=True)
class MachineMoney:
    """The effective cost of the machines' hours: given to deployments that held their GPUs, and what is left."""

    held: Decimal = ZERO
    unassigned: Decimal = ZERO
    not_running: Decimal = ZERO
    """Of hours in which only credits, discounts or corrections name the machine."""
    rounding: Decimal = ZERO


@dataclass(frozen=True, slots=True)
class LedgerMoney:
    """The closed quarter hours in which deployments held machines of these bills.

    ``capacity`` is theirs whole: ``other_bills`` and ``by_rates`` are the parts that these bills do not pay. ``open`` is held
    money not in them, by the name of why. ``lines`` by kind add up to the capacity, so do ``tenants`` (idle borne by work)."""

    capacity: Decimal = ZERO
    other_bills: Decimal = ZERO
    by_rates: Decimal = ZERO
    open: Mapping[str, Decimal] = field(default_factory=dict)
    lines: Mapping[str, Decimal] = field(default_factory=dict)
    tenants: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BillFacts:
    """What is known of one period's bills in one currency.

    ``stated``: what the deliveries say they are, None in the usage view. ``months``: by month of use ("2026-07"), in the usage
    view by billing period, of which ``own`` is the one asked for and ``runs_into`` the one in which a billing period that
    does not begin on the 1st ends; '' are charges that tell no day of use. ``joined``: on machines, by bucket; ``unmatched``: by
    (bucket, reason of ``core.charge_join``), None where only the rest is known; ``is_joined``: every delivery went through the
    join. ``shared``: money of no machine that rules spread, by rule and bucket."""

    view: View
    own: str
    buckets: Mapping[str, Costs]
    months: Mapping[str, Costs]
    stated: Costs | None = None
    joined: Mapping[str, Costs] = field(default_factory=dict)
    unmatched: Mapping[tuple[str, str], Costs] | None = None
    is_joined: bool = True
    machines: MachineMoney = MachineMoney()
    ledger: LedgerMoney = LedgerMoney()
    shared: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)
    runs_into: str = ""

"""Why the bill of one period differs from another's: by bucket on both bases, and the machine time of it by cause; formulas in
docs/explain.md.

Per instance type: effective cost = days x machine hours a day x ((1 - coverage) x on-demand price + coverage x price under a
commitment).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from core.bill_facts import Costs
from core.billing import BUCKETS
from core.money import ZERO, total
from core.shapley import known_pair, round_parts, shapley

MACHINE_BUCKETS = ("gpu", "other_compute")
"""Buckets whose lines are machine time: their change is explained further."""
MACHINE_EFFECTS = ("days", "scale", "new", "retired", "coverage", "rate", "covered_rate", "unsplit")
"""Every effect on machine time; they add up to the change of its effective cost."""


@dataclass(frozen=True, slots=True)
class MachineTime:
    """Charges of one resource and instance type in one period. ``commitment_id`` '' is on demand; ``hours`` None: the lines name
    no running time."""

    instance_type: str
    resource_id: str
    commitment_id: str
    hours: Decimal | None
    effective: Decimal


@dataclass(frozen=True, slots=True)
class BillPeriod:
    """One period's charges in one currency. ``joined``: of ``buckets``, what was matched to machines of the inventory; ``held``:
    of that, what closed quarter hours hold (effective)."""

    days: int
    buckets: Mapping[str, Costs] = field(default_factory=dict)
    joined: Mapping[str, Costs] = field(default_factory=dict)
    machines: tuple[MachineTime, ...] = ()
    held: Decimal = ZERO

    @property
    def whole(self) -> Costs:
        return sum(self.buckets.values(), Costs())

    def bill_only(self, bucket: str) -> Costs:
        """Charges of the bucket that belong to no machine of the inventory."""
        return self.buckets.get(bucket, Costs()) - self.joined.get(bucket, Costs())

    @property
    def not_held(self) -> Decimal:
        """Machines' money that no closed quarter hour holds: unassigned, not closed yet, or used in another month."""
        return total([sum(self.joined.values(), Costs()).effective, -self.held])


@dataclass(frozen=True, slots=True)
class BucketChange:
    bucket: str
    before: Costs
    after: Costs

    @property
    def change(self) -> Costs:
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class MachineChange:
    """Effective cost of one instance type's machine time; ``effects`` holds every name of MACHINE_EFFECTS."""

    instance_type: str
    before: Decimal
    after: Decimal
    effects: Mapping[str, Decimal]

    @property
    def change(self) -> Decimal:
        return total([self.after, -self.before])


def bucket_changes(first: BillPeriod, second: BillPeriod) -> list[BucketChange]:
    """Every bucket with money in either period, in the order of BUCKETS; their changes add up to the bill's."""
    return _changes(first, second, lambda period, bucket: period.buckets.get(bucket, Costs()))


def bill_only_changes(first: BillPeriod, second: BillPeriod) -> list[BucketChange]:
    """The same of what belongs to no machine of the inventory: no usage explains it."""
    return _changes(first, second, lambda period, bucket: period.bill_only(bucket))


def machine_changes(first: BillPeriod, second: BillPeriod) -> list[MachineChange]:
    """By instance type, most moved first; they add up to the effective change of MACHINE_BUCKETS exactly."""
    types = sorted({line.instance_type for line in (*first.machines, *second.machines)})
    changes = [_machine_change(name, first, second) for name in types]
    return sorted(changes, key=lambda change: (-abs(change.change), change.instance_type))


def covered_hours(first: BillPeriod, second: BillPeriod) -> dict[str, tuple[Decimal, Decimal]]:
    """Commitment -> machine hours it covered in each period, where they differ: what began, ended or changed."""
    sums = [_sum_hours(period.machines) for period in (first, second)]
    both = {name: (sums[0].get(name, ZERO), sums[1].get(name, ZERO)) for name in sorted({*sums[0], *sums[1]})}
    return {name: hours for name, hours in both.items() if hours[0] != hours[1]}


def _changes(first: BillPeriod, second: BillPeriod, read: Callable[[BillPeriod, str], Costs]) -> list[BucketChange]:
    named = {*first.buckets, *second.buckets, *first.joined, *second.joined}
    order = [*BUCKETS, *sorted(named - set(BUCKETS))]
    found = [BucketChange(name, read(first, name), read(second, name)) for name in order if name in named]
    return [change for change in found if change.before or change.after]


def _sum_hours(lines: Iterable[MachineTime]) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for line in lines:
        if line.commitment_id and line.hours:
            sums[line.commitment_id] = total([sums.get(line.commitment_id, ZERO), line.hours])
    return sums


@dataclass(frozen=True, slots=True)
class _Time:
    """An instance type's running time in one period: hours a day by resource, and prices where there were such hours."""

    cost: Decimal
    by_resource: Mapping[str, Fraction]
    coverage: Fraction | None
    rate: Fraction | None
    covered_rate: Fraction | None
    untimed: Decimal

    @property
    def hours(self) -> Fraction:
        return sum(self.by_resource.values(), Fraction(0))


def _time(lines: Iterable[MachineTime], days: int) -> _Time:
    timed, untimed = [], ZERO
    for line in lines:
        if line.hours:
            timed.append(line)
        else:
            untimed = total([untimed, line.effective])
    by_resource: dict[str, Fraction] = {}
    for line in timed:
        by_resource[line.resource_id] = by_resource.get(line.resource_id, Fraction(0)) + Fraction(line.hours or 0) / days
    covered = [line for line in timed if line.commitment_id]
    demand = [line for line in timed if not line.commitment_id]
    hours, covered_hours_ = _hours(timed), _hours(covered)
    cost = total(line.effective for line in timed)
    coverage = covered_hours_ / hours if hours else None
    return _Time(cost, by_resource, coverage, _price(demand), _price(covered), untimed)


def _hours(lines: Iterable[MachineTime]) -> Fraction:
    return sum((Fraction(line.hours or 0) for line in lines), Fraction(0))


def _price(lines: list[MachineTime]) -> Fraction | None:
    hours = _hours(lines)
    return Fraction(total(line.effective for line in lines)) / hours if hours else None


def _machine_change(name: str, first: BillPeriod, second: BillPeriod) -> MachineChange:
    sides = [_time((line for line in p.machines if line.instance_type == name), p.days) for p in (first, second)]
    one, two = sides
    before, after = (total([side.cost, side.untimed]) for side in sides)
    unsplit = total([two.untimed, -one.untimed])
    change = total([two.cost, -one.cost])
    effects = dict.fromkeys(MACHINE_EFFECTS, ZERO) | {"unsplit": unsplit}
    if not one.hours or not two.hours:
        effects["new" if not one.hours else "retired"] = change
        return MachineChange(name, before, after, effects)
    return MachineChange(name, before, after, effects | round_parts(change, _effects(one, two, (first.days, second.days))))


def _effects(one: _Time, two: _Time, days: tuple[int, int]) -> dict[str, Fraction]:
    named = _shapley(one, two, days, (one.hours, two.hours))
    # The cost is linear in the hours: an hour a day more has one effect, whichever machine it ran on.
    of_hours = named.pop("hours")
    per_hour = _shapley(one, two, days, (Fraction(0), Fraction(1)))["hours"]
    common = one.by_resource.keys() & two.by_resource.keys()
    new = sum((h for name, h in two.by_resource.items() if name not in common), Fraction(0)) * per_hour
    retired = -sum((h for name, h in one.by_resource.items() if name not in common), Fraction(0)) * per_hour
    return {**named, "new": new, "retired": retired, "scale": of_hours - new - retired}


def _shapley(one: _Time, two: _Time, days: tuple[int, int], hours: tuple[Fraction, Fraction]) -> dict[str, Fraction]:
    coverage, rate = known_pair(one.coverage, two.coverage), known_pair(one.rate, two.rate)
    covered = known_pair(one.covered_rate, two.covered_rate)

    def cost(changed: frozenset[str]) -> Fraction:
        share = coverage["coverage" in changed]
        price = (1 - share) * rate["rate" in changed] + share * covered["covered_rate" in changed]
        return days["days" in changed] * hours["hours" in changed] * price

    return shapley(("days", "hours", "coverage", "rate", "covered_rate"), cost)

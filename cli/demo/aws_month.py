"""Deliveries of a generated AWS account: which lines each holds, and what they are by whoever made them.

July is delivered three times (its first third, the whole month, and final with its invoice's number); then August begins, and
brings a correction of July. Everything follows from the fleet, the delivery and a seed; costs are exact decimals.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from cli.demo.aws_commitments import (
    NO_UPFRONT,
    PART_UPFRONT,
    Plan,
    bucket_of_type,
    covered_hour,
    plan_fees,
    plan_for,
    reservation_hours,
    reserved_fee,
    reserved_hour,
    split_rows,
)
from cli.demo.aws_lines import HOUR, PARTITION, REGION, CurLine, Says
from cli.demo.aws_machines import JULY, Machine, Pays
from core.money import ZERO
from core.windows import Window, month_on

DAY = timedelta(days=1)
CENT = Decimal("0.01")
TAX_RATE, SUPPORT_RATE = Decimal("0.0825"), Decimal("0.03")
EDP_RATE = Decimal("0.0512345678901")
"""Many digits on purpose: such a discount is finer than the ledger's quantum."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A later correction of a machine's hour (or of storage, without ``node``) by ``amount``."""

    at: datetime
    amount: Decimal
    node: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one billing period. ``until``: usage it knows of. ``moved``: a machine that the plan covers instead of
    the one it was bought for. ``settled``: support, tax, credit and refund are in."""

    number: int
    period: date
    until: datetime
    edp: Decimal = ZERO
    moved: str = ""
    settled: bool = False
    refund: Decimal = ZERO
    invoice: str = ""
    fixes: tuple[Fix, ...] = ()

    @property
    def span(self) -> Window:
        """The part of the billing period it knows of."""
        return Window(midnight(self.period), min(self.until, midnight(month_on(self.period, 1))))

    @property
    def month(self) -> Window:
        return Window(midnight(self.period), midnight(month_on(self.period, 1)))


@dataclass(frozen=True, slots=True)
class Account:
    """A fleet and the day its plan with part upfront was bought."""

    machines: tuple[Machine, ...] = JULY
    plan_bought: date = date(2026, 7, 1)
    seed: int = 20260701

    def lines(self, delivery: Delivery) -> list[CurLine]:
        """Every line of a delivery, in a fixed order."""
        span, plans = delivery.span, self._plans()
        found: list[CurLine] = []
        used: dict[str, Counter[datetime]] = {arn: Counter() for arn in plans}
        for machine in self.machines:
            pays = _pays(machine, delivery, self.machines)
            for at in (hour for hour in machine.hours() if span.contains(hour)):
                found += self._hour(machine, pays, at, plans, delivery.edp)
                if pays in _PLANS:
                    used[_PLANS[pays]][at] += 1
        for machine in self.machines:
            found += _standing(machine, delivery)
        for arn, plan in plans.items():
            found += plan_fees(plan, span, used[arn], self._price(arn))
        found += self._everyday(span)
        found += [_fixed(fix, self.machines) for fix in delivery.fixes]
        return [*found, *_settling(found, delivery)] if delivery.settled else found

    def _plans(self) -> dict[str, Plan]:
        return {
            arn: plan_for(arn, [m for m in self.machines if _PLANS.get(m.pays) == arn], self.plan_bought)
            for arn in (NO_UPFRONT, PART_UPFRONT)
        }

    def _price(self, arn: str) -> Decimal:
        """What an hour of the plan's machines costs under it: they are of one type."""
        return next((m.type.plan for m in self.machines if _PLANS.get(m.pays) == arn), ZERO)

    def _hour(self, machine: Machine, pays: Pays, at: datetime, plans: dict[str, Plan], edp: Decimal) -> Iterator[CurLine]:
        if pays in _PLANS:
            yield from covered_hour(machine, at, plans[_PLANS[pays]])
        elif pays == "reserved":
            yield reserved_hour(machine, at)
        else:
            yield from _on_demand(machine, at, edp)
        if machine.pods:
            rng = random.Random(f"{self.seed} {machine.node} {at.isoformat()}")
            shares = [rng.randrange(40, 160) for _ in range(3 * len(machine.pods) - 1)]
            yield from split_rows(machine, at, reserved_hour(machine, at).says[0].effective, shares)

    def _everyday(self, span: Window) -> Iterator[CurLine]:
        """Storage, network, requests without a resource, tokens of a vendor's API: the same in every delivery of a day."""
        day = span.start
        while day < span.end:
            rng = random.Random(f"{self.seed} {day.date()}")
            for product, usage_type, resource, bucket, price in _EVERYDAY:
                usage = Decimal(rng.randrange(10_000, 99_999)) / 1000
                cost = usage * price
                yield CurLine(
                    "Usage", day, day + DAY, product, (Says(bucket, cost, cost),), cost, cost, usage, usage_type,
                    resource=resource, unit="GB",
                )  # fmt: skip
            day += DAY


_PLANS: dict[Pays, str] = {"plan": NO_UPFRONT, "part_upfront_plan": PART_UPFRONT}
_EVERYDAY = (
    ("AmazonEC2", "EBS:VolumeUsage.gp3", f"{PARTITION}:volume/vol-0generated00000001", "non_gpu", Decimal("0.08")),
    ("AmazonEC2", "DataTransfer-Out-Bytes", "i-0650000000000007", "non_gpu", Decimal("0.09")),
    ("AmazonS3", "TimedStorage-ByteHrs", "generated-models", "non_gpu", Decimal("0.023")),
    ("AmazonCloudWatch", "CW:Requests", "", "non_gpu", Decimal("0.001")),
    ("AmazonBedrock", f"{REGION}-Claude-input-tokens", "", "vendor_api", Decimal("0.003")),
)  # fmt: skip


def july_deliveries() -> tuple[Delivery, ...]:
    """July in three versions, each restating the one before, and August's first with the correction of July.

    The second finds that the plan had covered the other p4d and that on-demand hours get a discount; the third refunds, sets a
    higher discount and names the invoice.
    """
    july, august = date(2026, 7, 1), date(2026, 8, 1)
    first = Delivery(1, july, datetime(2026, 7, 11, tzinfo=UTC))
    second = replace(first, number=2, until=midnight(august), edp=Decimal("0.05"), moved="p4d-b", settled=True)
    third = replace(second, number=3, edp=EDP_RATE, moved="", refund=Decimal("-18.40"), invoice="GENERATED-2026-07")
    fixes = (
        Fix(datetime(2026, 7, 20, 7, tzinfo=UTC), Decimal("-12.34"), JULY[0].node),
        Fix(datetime(2026, 7, 31, tzinfo=UTC), Decimal("1.23")),
    )
    return first, second, third, Delivery(4, august, datetime(2026, 8, 3, tzinfo=UTC), fixes=fixes)


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(0), tzinfo=UTC)


def _pays(machine: Machine, delivery: Delivery, machines: Sequence[Machine]) -> Pays:
    """The plan covers ``moved`` instead of the first machine it was bought for."""
    if not delivery.moved:
        return machine.pays
    first = next(m for m in machines if m.pays == "plan")
    if machine.node == first.node:
        return "on_demand"
    return "plan" if machine.node == delivery.moved else machine.pays


def _on_demand(machine: Machine, at: datetime, edp: Decimal) -> Iterator[CurLine]:
    price = machine.type.on_demand
    line = CurLine(
        "Usage", at, at + HOUR, "AmazonEC2", (Says(bucket_of_type(machine), price, price),), price, price, Decimal(1),
        f"BoxUsage:{machine.instance_type}", "RunInstances", machine.resource, machine.instance_type, "Hrs",
        tags={"user:Name": machine.node}, node=machine.node,
    )  # fmt: skip
    yield line
    if edp:
        discount = -price * edp
        yield replace(
            line, line_type="EdpDiscount", says=(Says("discount", discount, discount),), unblended=discount, public=None,
            description="Enterprise discount program",
        )  # fmt: skip


def _standing(machine: Machine, delivery: Delivery) -> Iterator[CurLine]:
    """What a commitment on the machine adds beside its hours."""
    hours = [at for at in machine.hours() if delivery.span.contains(at)]
    if machine.pays == "reserved":
        yield reserved_fee(machine, delivery.month, delivery.span.end, len(hours))
    if machine.in_reservation:
        yield from reservation_hours(machine, hours)


def _fixed(fix: Fix, machines: Sequence[Machine]) -> CurLine:
    """A line of a later month whose time of use is the corrected one."""
    machine = next((m for m in machines if m.node == fix.node), None)
    if machine is None:
        return CurLine(
            "Usage", fix.at, fix.at + DAY, "AmazonS3", (Says("non_gpu", fix.amount, fix.amount),), fix.amount, fix.amount,
            Decimal(1), "TimedStorage-ByteHrs", resource="generated-models", unit="GB", description="Late usage",
        )  # fmt: skip
    return CurLine(
        "Usage", fix.at, fix.at + HOUR, "AmazonEC2", (Says(bucket_of_type(machine), fix.amount, fix.amount),), fix.amount, None,
        ZERO, f"BoxUsage:{machine.instance_type}", "RunInstances", machine.resource, machine.instance_type, "Hrs",
        description="Price correction", tags={"user:Name": machine.node}, node=machine.node,
    )  # fmt: skip


def _settling(lines: Sequence[CurLine], delivery: Delivery) -> Iterator[CurLine]:
    """Support, a discount on it, a credit, a refund, a line type nobody knows, and tax on all of it."""
    start = delivery.month.start
    end = delivery.month.end
    used = sum((says.billed for line in lines for says in line.says if line.line_type == "Usage"), ZERO)
    support = (used * SUPPORT_RATE).quantize(CENT)
    settled = [
        ("Fee", "AWSSupportBusiness", "non_gpu", support),
        ("EdpDiscount", "AWSSupportBusiness", "discount", -support * delivery.edp),
        ("Credit", "AmazonEC2", "credit", Decimal("-250.00")),
        ("Refund", "AmazonS3", "refund", delivery.refund),
        ("GeneratedAdjustment", "AmazonEC2", "unknown", Decimal("0.37")),
    ]
    whole = sum((says.billed for line in lines for says in line.says), ZERO) + sum((amount for *_, amount in settled), ZERO)
    settled.append(("Tax", "AmazonEC2", "tax", (whole * TAX_RATE).quantize(CENT)))
    for line_type, product, bucket, amount in settled:
        if amount:
            yield CurLine(line_type, start, end, product, (Says(bucket, amount, amount),), amount)

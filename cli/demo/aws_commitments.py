"""Savings Plans, a reserved instance and a capacity reservation of a generated AWS account, as lines of its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal

from cli.demo.aws_lines import ACCOUNT, HOUR, PARTITION, REGION, CurLine, Says
from cli.demo.aws_machines import Machine
from core.money import ZERO
from core.windows import Window

NO_UPFRONT = f"arn:aws:savingsplans::{ACCOUNT}:savingsplan/generated-no-upfront"
PART_UPFRONT = f"arn:aws:savingsplans::{ACCOUNT}:savingsplan/generated-part-upfront"
RESERVED = f"{PARTITION}:reserved-instances/generated-ri"
CAPACITY = f"{PARTITION}:capacity-reservation/cr-0generated0000001"
SPARE = Decimal("1.1")
"""A plan is bought for a tenth more than its machines use at most: a part stays unused even while they run."""
UPFRONT_SHARE = Decimal("0.5")
TERM_HOURS = 8760
RESERVED_FEE, RESERVED_UPFRONT = Decimal("1.2000"), Decimal("0.8000")
"""An hour of the reserved instance: what each month is billed, and its part of what was paid in the year before."""
SLOTS = 2
"""Machines of one kind that the capacity reservation holds while they run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A Savings Plan: ``hourly`` is committed, ``upfront`` of each hour is paid at ``bought`` for the whole term."""

    arn: str
    hourly: Decimal
    upfront: Decimal
    bought: date


def plan_for(arn: str, machines: Sequence[Machine], bought: date) -> Plan:
    """A plan sized for machines that run at once; without machines it is bought for nothing and costs nothing."""
    hourly = sum((m.type.plan for m in machines), ZERO) * SPARE
    return Plan(arn, hourly, hourly * UPFRONT_SHARE if arn == PART_UPFRONT else ZERO, bought)


def covered_hour(machine: Machine, at: datetime, plan: Plan) -> Iterator[CurLine]:
    """An hour under a plan: the covered usage at its on-demand price, and the negation that cancels it."""
    kind, usage_type = machine.type, f"BoxUsage:{machine.instance_type}"
    yield CurLine(
        "SavingsPlanCoveredUsage", at, at + HOUR, "AmazonEC2",
        (Says(bucket_of_type(machine), kind.on_demand, kind.plan),),
        kind.on_demand, kind.on_demand, Decimal(1), usage_type, "RunInstances", machine.resource, machine.instance_type, "Hrs",
        tags={"user:Name": machine.node}, node=machine.node,
        more={"savingsPlan/SavingsPlanARN": plan.arn, "savingsPlan/SavingsPlanEffectiveCost": kind.plan},
    )  # fmt: skip
    yield CurLine(
        "SavingsPlanNegation", at, at + HOUR, "ComputeSavingsPlans", (Says("commitment_negation", -kind.on_demand),),
        -kind.on_demand, None, Decimal(1), usage_type, "RunInstances", "", machine.instance_type, "Hrs",
        more={"savingsPlan/SavingsPlanARN": plan.arn},
    )  # fmt: skip


def plan_fees(plan: Plan, span: Window, used: Counter[datetime], price: Decimal) -> Iterator[CurLine]:
    """What the plan costs from the day it was bought, used or not: each hour's fee with what nobody used of it, and the upfront.

    ``used``: machines of price ``price`` (under the plan) by hour.
    """
    if not plan.hourly:
        return
    bought = datetime.combine(plan.bought, time(0), tzinfo=UTC)
    if plan.upfront and span.contains(bought):
        upfront = plan.upfront * TERM_HOURS
        yield CurLine(
            "SavingsPlanUpfrontFee", bought, bought + HOUR, "ComputeSavingsPlans", (Says("commitment_fee", upfront),),
            upfront, more={"savingsPlan/SavingsPlanARN": plan.arn}, description="One-time fee of a Savings Plan",
        )  # fmt: skip
    at = max(span.start, bought)
    while at < span.end:
        spent, fee = price * used[at], plan.hourly - plan.upfront
        unused = plan.hourly - spent
        more: dict[str, str | Decimal] = {
            "savingsPlan/SavingsPlanARN": plan.arn,
            "savingsPlan/TotalCommitmentToDate": plan.hourly,
            "savingsPlan/UsedCommitment": spent,
        }
        says = [Says("commitment_fee", fee), *([Says("unused_commitment", ZERO, unused)] if unused else [])]
        yield CurLine(
            "SavingsPlanRecurringFee", at, at + HOUR, "ComputeSavingsPlans", tuple(says), fee, usage=Decimal(1), more=more
        )
        at += HOUR


def reserved_hour(machine: Machine, at: datetime) -> CurLine:
    """An hour under the reserved instance: nothing on this invoice, its share of fee and upfront on the effective basis."""
    effective = RESERVED_FEE + RESERVED_UPFRONT
    return CurLine(
        "DiscountedUsage", at, at + HOUR, "AmazonEC2", (Says(bucket_of_type(machine), ZERO, effective),),
        ZERO, machine.type.on_demand, Decimal(1), f"BoxUsage:{machine.instance_type}", "RunInstances", machine.resource,
        machine.instance_type, "Hrs", tags={"user:Name": machine.node}, node=machine.node,
        more={"reservation/ReservationARN": RESERVED, "reservation/EffectiveCost": effective},
    )  # fmt: skip


def reserved_fee(machine: Machine, month: Window, until: datetime, used_hours: int) -> CurLine:
    """The month's fee, billed on its first day; what was not used of it until ``until`` is told anew by each delivery."""
    hours, past = (month.end - month.start) // HOUR, (until - month.start) // HOUR
    unused = past - used_hours
    fee, upfront = RESERVED_FEE * unused, RESERVED_UPFRONT * unused
    says = [Says("commitment_fee", RESERVED_FEE * hours), *([Says("unused_commitment", ZERO, fee + upfront)] if unused else [])]
    return CurLine(
        "RIFee", month.start, month.end, "AmazonEC2", tuple(says), RESERVED_FEE * hours, usage=Decimal(hours),
        usage_type=f"HeavyUsage:{machine.instance_type}", instance_type=machine.instance_type, unit="Hrs",
        more={
            "reservation/ReservationARN": RESERVED,
            "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod": upfront,
            "reservation/UnusedRecurringFee": fee,
        },
    )  # fmt: skip


def reservation_hours(machine: Machine, hours: Iterable[datetime]) -> Iterator[CurLine]:
    """The capacity reservation itself (rate 0, its hours stand again in the other rows) and the slots nobody ran on."""
    kind = machine.type
    for at in hours:
        yield CurLine(
            "Usage", at, at + HOUR, "AmazonEC2", (Says("gpu"),), ZERO, ZERO, Decimal(SLOTS),
            f"Reservation:{machine.instance_type}", "RunInstances", CAPACITY, machine.instance_type, "Hrs",
        )  # fmt: skip
        price = kind.on_demand * (SLOTS - 1)
        yield CurLine(
            "Usage", at, at + HOUR, "AmazonEC2", (Says("unused_reservation", price, price),), price, price, Decimal(SLOTS - 1),
            f"UnusedBox:{machine.instance_type}", "RunInstances", CAPACITY, machine.instance_type, "Hrs",
        )  # fmt: skip


def bucket_of_type(machine: Machine) -> str:
    return "gpu" if machine.type.gpus else "other_compute"


def split_rows(machine: Machine, at: datetime, effective: Decimal, shares: Sequence[int]) -> Iterator[CurLine]:
    """EKS split rows of one machine's hour: per pod CPU, memory and accelerator, used and unused; in sum its effective cost.

    ``shares``: parts in thousandths, one for every pod and meter but the last, which takes the rest.
    """
    meters = ("vCPU-Hours", "GB-Hours", "Accelerator-Hours")
    places = [(pod, meter) for pod in machine.pods for meter in meters]
    left = effective
    for (pod, meter), share in zip(places, [*shares, -1], strict=True):
        cost = left if share < 0 else (effective * share / 1000).quantize(Decimal("1e-10"))
        left -= cost
        unused = (cost / 4).quantize(Decimal("1e-10"))
        yield CurLine(
            "Usage", at, at + HOUR, "AmazonEKS", (Says("split_memo", memo=cost),), usage=Decimal(1),
            usage_type=f"USE1-EKS-EC2-{meter}", operation="EKSPod-EC2", unit=meter,
            resource=f"arn:aws:eks:{REGION}:{ACCOUNT}:pod/prod/inference/{pod}/generated",
            tags={"aws:eks:cluster-name": "prod", "aws:eks:node": machine.node, "aws:eks:namespace": "inference"},
            more={
                "splitLineItem/ParentResourceId": machine.resource,
                "splitLineItem/SplitCost": cost - unused,
                "splitLineItem/UnusedCost": unused,
            },
        )  # fmt: skip

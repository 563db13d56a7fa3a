"""From a bill's total to the tenants: steps whose parts add up to their whole exactly, and a name for every difference.

Each step measures its whole in one place and its parts in another, so that what does not agree shows as a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from core.bill_facts import BillFacts, Costs, MachineMoney
from core.billing import BUCKETS
from core.charge_join import ADJUSTING, JOINED, REASON_WORDS
from core.money import ZERO, total

StepName = Literal["invoice", "months", "basis", "machines", "holders", "ledger", "lines", "tenants", "shared"]
WHOLES: Mapping[StepName, str] = {
    "invoice": "invoice total",
    "months": "invoice total",
    "basis": "effective total",
    "machines": "effective total",
    "holders": "machines' money",
    "ledger": "held by deployments",
    "lines": "closed quarter hours",
    "tenants": "closed quarter hours",
    "shared": "not machines' money",
}
"""The row that each step takes apart."""
UNNAMED = "difference without a name"
UNNAMED_HINT = "this is a fault of Tokenfuse: please report it with the output of --json"


@dataclass(frozen=True, slots=True)
class Part:
    """One named amount. ``billed`` None: it is on the effective basis alone. ``is_open``: it waits for what ``hint`` says."""

    name: str
    effective: Decimal | None
    billed: Decimal | None = None
    hint: str = ""
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """``parts`` and the difference add up to the whole; a whole or part that a basis does not have is None there."""

    name: StepName
    effective: Decimal | None
    parts: tuple[Part, ...]
    billed: Decimal | None = None

    @property
    def whole(self) -> str:
        return WHOLES[self.name]

    @property
    def difference(self) -> Costs:
        """What no part names: nothing, or something is wrong."""
        return Costs(
            ZERO if self.billed is None else total((self.billed, *(-(part.billed or ZERO) for part in self.parts))),
            ZERO if self.effective is None else total((self.effective, *(-(part.effective or ZERO) for part in self.parts))),
        )


NO_DAY = "counted in the month of the billing period: `tokenfuse show charges --by day,service`"
OPEN_HINTS: Mapping[str, str] = {
    "not closed yet": "run `tokenfuse ledger close`",
    "closed before this bill": "run `tokenfuse ledger close`: the bill makes a new version of these quarter hours",
    "to be closed again": "run `tokenfuse ledger close`: something changed since they were closed",
    "closed without a price": "`tokenfuse ledger show` says why; import the missing rate or exchange rate",
    "closed in another currency": "the bill is in another currency than the quarter hour: import an exchange rate",
}
"""Why held money is not in a closed quarter hour, and what to do."""
_TOTALS = {
    "commitment_fee": "fees of commitments are spread over what they cover",
    "commitment_negation": "the on-demand price of covered usage was cancelled; it is not paid",
    "unused_commitment": "nobody used this part of the commitments",
}
_BUCKET_HINTS = {
    "unknown": "line types no rule knows: `tokenfuse show charges --by meter,service --where bucket=unknown`",
}
_REST_HINTS = {
    "gpu": "run `tokenfuse match run`",
    "other_compute": "machines' lines without instance hours, or of no known machine: `tokenfuse show unmatched`",
    "unused_reservation": "reserved and unused: `tokenfuse match confirm RESOURCE NODE` gives it to a machine",
    "unused_commitment": "bought and unused: fewer commitments, or more use",
}


def waterfall(facts: BillFacts) -> tuple[Step, ...]:
    """Every step from the invoice's total to the tenants, each with its parts."""
    whole = sum(facts.buckets.values(), Costs())
    on_machines = sum(facts.joined.values(), Costs())
    return (
        _invoice(facts, whole),
        _months(facts, whole),
        _basis(facts, whole),
        _machines(facts, whole),
        _holders(facts.machines, on_machines),
        _ledger(facts),
        _taken_apart("lines", facts.ledger.capacity, facts.ledger.lines),
        _taken_apart("tenants", facts.ledger.capacity, facts.ledger.tenants),
        _shared(facts, whole - on_machines),
    )


def _ordered(names: Iterable[str]) -> list[str]:
    return sorted(set(names), key=lambda name: (BUCKETS.index(name) if name in BUCKETS else len(BUCKETS), name))


def _invoice(facts: BillFacts, whole: Costs) -> Step:
    """The whole is what the deliveries say of themselves where they do, the parts are the charges by bucket."""
    stated = whole if facts.stated is None else facts.stated
    parts = [
        Part(name, costs.effective, costs.billed, _BUCKET_HINTS.get(name, ""), name == "unknown")
        for name in _ordered(facts.buckets)
        if (costs := facts.buckets[name])
    ]
    return Step("invoice", stated.effective, tuple(parts), stated.billed)


def _months(facts: BillFacts, whole: Costs) -> Step:
    """When what the invoice charges was used, or which invoice charges what was used: other months are corrections or late."""
    word, about = ("used", "a correction or late usage of another month") if facts.view == "invoice" else (
        "billed", "a correction or late usage, billed in another month"
    )  # fmt: skip
    own = (facts.own, facts.runs_into)
    parts = [
        Part(f"{word} in {month}", costs.effective, costs.billed, "" if month in own else about)
        if month
        else Part("no day of use told", costs.effective, costs.billed, NO_DAY)
        for month, costs in sorted(facts.months.items())
        if costs
    ]
    return Step("months", whole.effective, tuple(parts), whole.billed)


def _basis(facts: BillFacts, whole: Costs) -> Step:
    """From billed to effective: commitments paid and not yet used leave, what they cover comes in at its effective price."""
    parts = [Part("billed total", whole.billed)]
    for name in _ordered(facts.buckets):
        moved = total((facts.buckets[name].effective, -facts.buckets[name].billed))
        if moved:
            parts.append(Part(f"effective less billed: {name}", moved, hint=_TOTALS.get(name, "covered by a commitment")))
    return Step("basis", whole.effective, tuple(parts))


def _machines(facts: BillFacts, whole: Costs) -> Step:
    """Which money is a machine's, which should be and is not, and which is no machine's, by bucket."""
    parts: list[Part] = []
    for name in _ordered([*facts.buckets, *facts.joined]):
        own, rest = facts.joined.get(name, Costs()), facts.buckets.get(name, Costs()) - facts.joined.get(name, Costs())
        if own:
            parts.append(Part(f"machines: {name}", own.effective, own.billed))
        for (bucket, reason), costs in sorted((facts.unmatched or {}).items()):
            if bucket == name and costs:
                parts.append(_unmatched_part(name, reason, costs))
                rest = rest - costs
        if rest and not _must_be_named(facts, name):
            parts.append(_rest_part(facts, name, rest))
    return Step("machines", whole.effective, tuple(parts), whole.billed)


def _must_be_named(facts: BillFacts, bucket: str) -> bool:
    """Charges of machines are on a machine or unmatched with a reason: another rest of them is a fault."""
    named = ("gpu", "unused_reservation")
    return bucket in named and facts.is_joined and facts.unmatched is not None


def _unmatched_part(bucket: str, reason: str, costs: Costs) -> Part:
    words = REASON_WORDS.get(reason, reason)  # type: ignore[call-overload]
    hint = "left apart by a person: `tokenfuse match list`" if reason == "ignored" else f"{words}: `tokenfuse show unmatched`"
    return Part(f"unmatched ({reason}): {bucket}", costs.effective, costs.billed, hint, is_open=reason != "ignored")


def _rest_part(facts: BillFacts, bucket: str, rest: Costs) -> Part:
    if bucket in JOINED and not facts.is_joined:
        return Part(f"not joined yet: {bucket}", rest.effective, rest.billed, "run `tokenfuse match run`", is_open=True)
    if bucket in ("gpu", "unused_reservation"):
        return Part(f"unmatched: {bucket}", rest.effective, rest.billed, "see `tokenfuse show unmatched`", is_open=True)
    name = f"of the account: {bucket}" if bucket in ADJUSTING else f"no machine's: {bucket}"
    return Part(name, rest.effective, rest.billed, _REST_HINTS.get(bucket, ""))


def _holders(money: MachineMoney, on_machines: Costs) -> Step:
    parts = (
        Part("held by deployments", money.held),
        Part(
            "unassigned", money.unassigned, hint="billed, and no deployment held these GPUs: `tokenfuse show nodes`", is_open=True
        ),
        Part(
            "hours without running", money.not_running, is_open=True,
            hint="credits, discounts or corrections name the machine in hours in which it did not run",
        ),
        Part("rounding", money.rounding, hint="finer than the ledger's quantum of 1e-12"),
    )  # fmt: skip
    return Step("holders", on_machines.effective, tuple(part for part in parts if part.effective or part.name.startswith("held")))


def _ledger(facts: BillFacts) -> Step:
    """held = closed quarter hours - what other bills and rates pay of them + what is not in a closed quarter hour."""
    ledger = facts.ledger
    parts = [Part("closed quarter hours", ledger.capacity)]
    if ledger.other_bills:
        hint = "other billing periods charge the same hours: a correction, or this is one"
        parts.append(Part("of it, paid by other bills", -ledger.other_bills, hint=hint))
    if ledger.by_rates:
        hint = "machines without a bill in the same quarter hours: `tokenfuse show unmatched`"
        parts.append(Part("of it, priced by rates", -ledger.by_rates, hint=hint, is_open=True))
    parts += [
        Part(name, amount, hint=OPEN_HINTS.get(name, ""), is_open=True) for name, amount in sorted(ledger.open.items()) if amount
    ]
    return Step("ledger", facts.machines.held, tuple(parts))


def _taken_apart(name: StepName, whole: Decimal, amounts: Mapping[str, Decimal]) -> Step:
    return Step(name, whole, tuple(Part(key, amounts[key]) for key in amounts if amounts[key]))


def _shared(facts: BillFacts, rest: Costs) -> Step:
    """Money of no machine, unmatched machines' among it: spread by rules, or not shared."""
    parts: list[Part] = []
    for name in _ordered([*facts.buckets, *facts.joined]):
        left = total((facts.buckets.get(name, Costs()).effective, -facts.joined.get(name, Costs()).effective))
        for (rule, bucket), amount in sorted(facts.shared.items()):
            if bucket == name and amount:
                parts.append(Part(f"shared by {rule}: {bucket}", amount))
                left = total((left, -amount))
        if left:
            parts.append(_apart(name, left))
    return Step("shared", rest.effective, tuple(parts))


def _apart(bucket: str, amount: Decimal) -> Part:
    if bucket in JOINED:
        return Part(f"unmatched: {bucket}", amount, hint="see the machines' money above; a rule may share it")
    if bucket == "tax" or bucket in ADJUSTING:
        return Part(f"apart: {bucket}", amount, hint="of the account; in no tenant's cost unless a rule shares it")
    return Part(f"not shared: {bucket}", amount, hint="no rule takes it: `tokenfuse shared add`")


@dataclass(frozen=True, slots=True)
class Row:
    """A step's whole, part or difference. ``bucket`` names it, ``parent`` the whole it is a part of ('' for the invoice)."""

    step: StepName
    bucket: str
    parent: str
    billed: Decimal | None
    effective: Decimal | None
    hint: str = ""
    is_open: bool = False
    is_difference: bool = False


def rows(steps: Sequence[Step]) -> tuple[Row, ...]:
    """The waterfall as rows: the invoice's total, then each step's parts, and differences that have no name."""
    first = steps[0]
    found = [Row(first.name, first.whole, "", first.billed, first.effective)]
    for step in steps:
        found += [Row(step.name, p.name, step.whole, p.billed, p.effective, p.hint, p.is_open) for p in step.parts]
        if step.difference:
            gap = step.difference
            found.append(
                Row(step.name, UNNAMED, step.whole, gap.billed, gap.effective, UNNAMED_HINT, is_open=True, is_difference=True)
            )
    return tuple(found)


def unnamed(steps: Iterable[Step]) -> list[Step]:
    """Steps whose parts do not add up to their whole."""
    return [step for step in steps if step.difference]

"""From an AWS cost and usage line to charges: cash, and the amortised recipe of AWS's own dashboards (CID ``summary_view``).

The recipe is data: per line type a kind and signed sums of the line's own columns. ``parts_of`` reads it here,
``ingest.billing.aws_cur`` writes it as SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from core.billing import Bucket, Kind, bucket_of
from core.errors import BadInput
from core.money import ZERO

Term = tuple[int, str]
"""A sign and one of AMOUNTS."""

AMOUNTS = (
    "unblended", "sp_effective", "sp_total", "sp_used", "ri_effective", "ri_unused_upfront", "ri_unused_recurring",
    "public", "split_cost", "split_unused",
)  # fmt: skip
"""The line's money columns by our names. In the net variant ``unblended``, ``sp_effective`` and ``ri_*`` are the net ones."""
OPTIONAL = frozenset({"ri_unused_upfront", "ri_unused_recurring", "public", "split_cost", "split_unused"})
"""Amounts that may be absent on a row that uses them: nothing of the kind was due. Any other is an error, never zero."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one line type becomes. ``unused`` makes a second charge (commitment_unused) with that effective cost."""

    kind: Kind
    billed: tuple[Term, ...] = ((1, "unblended"),)
    effective: tuple[Term, ...] = ((1, "unblended"),)
    unused: tuple[Term, ...] = ()
    list: tuple[Term, ...] | None = ((1, "public"),)
    contracted: tuple[Term, ...] | None = ((1, "unblended"),)
    memo: tuple[Term, ...] = ()
    category: str = "Usage"
    counts_usage: bool = True
    """Whether its usage amount is usage: a negation repeats that of the rows it cancels."""


_AS_IS: tuple[Term, ...] = ((1, "unblended"),)


def _fee(unused: tuple[Term, ...] = ()) -> Recipe:
    return Recipe(
        "commitment_fee", effective=(), unused=unused, list=None, contracted=None, category="Purchase", counts_usage=False
    )


def _own(kind: Kind, category: str) -> Recipe:
    return Recipe(kind, list=_AS_IS, category=category, counts_usage=False)


RECIPES: Mapping[str, Recipe] = {
    "Usage": Recipe("usage"),
    "DiscountedUsage": Recipe("usage", effective=((1, "ri_effective"),), contracted=None),
    "SavingsPlanCoveredUsage": Recipe("usage", effective=((1, "sp_effective"),)),
    "SavingsPlanNegation": Recipe("commitment_negation", effective=(), list=(), contracted=(), counts_usage=False),
    "SavingsPlanRecurringFee": _fee(unused=((1, "sp_total"), (-1, "sp_used"))),
    "SavingsPlanUpfrontFee": _fee(),
    "RIFee": _fee(unused=((1, "ri_unused_upfront"), (1, "ri_unused_recurring"))),
    "Fee": Recipe("purchase", category="Purchase", list=_AS_IS),
    "Fee:reservation": _fee(),
    "FlatRateSubscription": Recipe("purchase", category="Purchase", list=_AS_IS),
    "Refund": _own("refund", "Credit"),
    "Refund:savings_plan": Recipe("refund", effective=(), list=(), contracted=(), category="Credit", counts_usage=False),
    "Credit": _own("credit", "Credit"),
    "Tax": _own("tax", "Tax"),
    "EdpDiscount": _own("discount", "Credit"),
    "PrivateRateDiscount": _own("discount", "Credit"),
    "BundledDiscount": _own("discount", "Credit"),
    "Discount": _own("discount", "Credit"),
    "split": Recipe(
        "split",
        billed=(),
        effective=(),
        list=(),
        contracted=(),
        memo=((1, "split_cost"), (1, "split_unused")),
        counts_usage=False,
    ),
    "other": Recipe("unknown", list=None, contracted=None),
}
IN_NET_PRICES = ("EdpDiscount", "PrivateRateDiscount")
"""Discount rows that net columns already hold: nothing of their own in the net variant."""
SPLIT_OPERATIONS = ("EKSPod-EC2", "ECSTask-EC2")
SP_REFUND_PRODUCTS = ("ComputeSavingsPlans", "SavingsPlans")
SP_REFUND_TEXT = "Refund for one-time fee for Savings Plan ID"
UNUSED_RESERVATION = r"(^|-)Unused(Box|Ded)(:|$)"
"""Usage types of reserved capacity nobody ran on: full rate, a ``cr-…`` resource, no instance."""
RESERVATION_ITSELF = r"(^|-)(Reservation|DedicatedRes|ReservedHostUsage)(:|$)"
"""Usage types of the reservation's own rows: rate 0, and their hours are those of the used and unused rows again."""


def recipe_name(line_type: str, *, operation: str = "", product: str = "", description: str = "", reservation: str = "") -> str:
    """The key of RECIPES for a line, from its own texts."""
    if operation in SPLIT_OPERATIONS:
        return "split"
    if line_type == "Fee" and reservation:
        return "Fee:reservation"
    if line_type == "Refund" and product in SP_REFUND_PRODUCTS and description.startswith(SP_REFUND_TEXT):
        return "Refund:savings_plan"
    return line_type if line_type in RECIPES and ":" not in line_type and line_type not in ("split", "other") else "other"


def recipes(*, net: bool) -> Mapping[str, Recipe]:
    """The table in force: in the net variant discounts stand in the other rows' prices already."""
    if not net:
        return RECIPES
    nothing = Recipe("discount", billed=(), effective=(), list=(), contracted=(), category="Credit", counts_usage=False)
    return {**RECIPES, **dict.fromkeys(IN_NET_PRICES, nothing)}


@dataclass(frozen=True, slots=True)
class AwsPart:
    """One charge of a line: its bucket needs the family as well."""

    kind: Kind
    billed: Decimal
    effective: Decimal
    list: Decimal | None
    contracted: Decimal | None
    memo: Decimal = ZERO

    def bucket(self, family: str) -> Bucket:
        return bucket_of(self.kind, "", family)


def parts_of(
    name: str, amounts: Mapping[str, Decimal | None], *, net: bool = False, unused_capacity: bool = False
) -> tuple[AwsPart, ...]:
    """The charges of a line of recipe ``name``. ``unused_capacity``: its usage type is an unused capacity reservation's.

    Raises BadInput naming the amount a row of this type must have and has not.
    """
    recipe = recipes(net=net)[name]
    kind: Kind = "reservation_unused" if unused_capacity and recipe.kind == "usage" else recipe.kind
    first = AwsPart(
        kind,
        billed=_sum(recipe.billed, amounts, name),
        effective=_sum(recipe.effective, amounts, name),
        list=_known(recipe.list, amounts, name),
        contracted=_known(recipe.contracted, amounts, name),
        memo=_sum(recipe.memo, amounts, name),
    )
    if not recipe.unused:
        return (first,)
    return first, AwsPart("commitment_unused", ZERO, _sum(recipe.unused, amounts, name), ZERO, ZERO)


def _sum(terms: tuple[Term, ...], amounts: Mapping[str, Decimal | None], name: str) -> Decimal:
    whole = ZERO
    for sign, column in terms:
        amount = amounts.get(column)
        if amount is None and column not in OPTIONAL:
            raise BadInput(f"a row of type {name} must have it", field=column, hint="export the column, or import without it")
        whole += sign * (amount or ZERO)
    return whole


def _known(terms: tuple[Term, ...] | None, amounts: Mapping[str, Decimal | None], name: str) -> Decimal | None:
    if terms is None or any(amounts.get(column) is None for _, column in terms):
        return None
    return _sum(terms, amounts, name)

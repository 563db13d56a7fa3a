"""The field's two cost formulas with their units mended, always labelled "field estimate, not ledger" and never mixed with it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext

from core.errors import BadInput
from core.money import CONTEXT, Money, quantize

LABEL = "field estimate, not ledger"


@dataclass(frozen=True, slots=True)
class FieldEstimate:
    """Cost per million tokens by a field formula, or None with the reason."""

    per_mtok: Money | None
    reason: str = ""
    label: str = LABEL


def power_cost(kwh: Decimal, tariff_per_kwh: Money, pue: Decimal = Decimal(1)) -> Money:
    """Energy at the meter × tariff × power usage effectiveness (≥ 1)."""
    if kwh < 0 or pue < 1:
        raise BadInput("energy must not be negative and PUE not below 1", field="kwh", value=f"{kwh} x {pue}")
    with localcontext(CONTEXT):
        return Money(quantize(tariff_per_kwh.amount * kwh * pue), tariff_per_kwh.currency)


def utilisation_formula(
    utilisation: Decimal, node_hour: Money, hours: Decimal, power: Money, egress: Money, tokens: int
) -> FieldEstimate:
    """(utilisation × node rate × hours + power + egress) / tokens. ``utilisation`` is a share 0..1, not a percentage."""
    if not 0 <= utilisation <= 1:
        raise BadInput("must be a share between 0 and 1", field="utilisation", value=utilisation)
    return _per_mtok(node_hour.times(utilisation * hours) + power + egress, tokens)


def instance_second_formula(
    instance_hour: Money, busy_seconds: Decimal, instances: int, per_token_billing: Money, tokens: int
) -> FieldEstimate:
    """(instance hourly / 3600 × seconds × instances running at once + per-token billing) / tokens."""
    with localcontext(CONTEXT):
        held = Money(quantize(instance_hour.amount * busy_seconds * instances / 3600), instance_hour.currency)
    return _per_mtok(held + per_token_billing, tokens)


def _per_mtok(cost: Money, tokens: int) -> FieldEstimate:
    if tokens <= 0:
        return FieldEstimate(None, "no tokens in the period")
    with localcontext(CONTEXT):
        return FieldEstimate(Money(quantize(cost.amount * 1_000_000 / tokens), cost.currency))

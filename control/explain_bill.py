"""The level above the ledger: what changed in the bills of two periods, by bucket and, of machine time, by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from core.bill_facts import View
from core.explain_bill import (
    MACHINE_BUCKETS,
    MACHINE_EFFECTS,
    BillPeriod,
    BucketChange,
    MachineChange,
    bill_only_changes,
    bucket_changes,
    covered_hours,
    machine_changes,
)
from core.money import ZERO, total
from core.windows import Window
from models.explain_bill_repo import bill_periods
from models.explain_repo import has_bills

NO_BILL = "no bill imported"
NO_CHARGES = "no bill charges anything in either period"
TOO_SHORT = "bills are read by whole UTC days: compare days or longer"
SEVERAL = "the bills are in several currencies"
NOON = timedelta(hours=12)
BUCKET_TEXTS: Mapping[str, str] = {
    "gpu": "machines with GPUs: explained by cause below",
    "other_compute": "other machines: explained by cause below",
    "non_gpu": "storage, network and other services",
    "vendor_api": "tokens bought of model vendors",
    "unused_commitment": "commitments that nobody used",
    "unused_reservation": "reserved capacity that nobody used",
    "commitment_fee": "fees of commitments; their effective cost stands in what they cover",
    "commitment_negation": "on-demand price of covered usage, taken off the invoice again",
    "credit": "credits",
    "refund": "refunds",
    "tax": "taxes",
    "discount": "discounts in rows of their own",
    "correction": "corrections of months that were invoiced before",
    "adjustment": "adjustments and rounding of the issuer",
    "unknown": "line types no rule knows",
}
MACHINE_TEXTS: Mapping[str, str] = {
    "days": "the periods differ in days",
    "scale": "machine hours a day of machines in both periods",
    "new": "machines of the second period alone",
    "retired": "machines of the first period alone",
    "coverage": "share of the hours under a commitment (one began, ended or was outgrown)",
    "rate": "on-demand price of an hour",
    "covered_rate": "price of an hour under a commitment",
    "unsplit": "lines that name no running time",
}


def bill_level(connection: Connection, first: Window, second: Window) -> dict[str, Any]:
    """{view, first_days, second_days, reason, totals}: per currency the bill on both bases by bucket, the effects on machine
    time, and what no machine of the inventory explains. Whole UTC months are compared by invoice, anything else by day of use.
    """
    spans = _days(first), _days(second)
    view: View = "invoice" if all(day.day == 1 for span in spans for day in span) else "usage"
    shown = {"view": view, "first_days": _shown(spans[0]), "second_days": _shown(spans[1])}
    if not has_bills(connection):
        return {**shown, "reason": NO_BILL, "totals": []}
    if any(start >= after for start, after in spans):
        return {**shown, "reason": TOO_SHORT, "totals": []}
    periods = [bill_periods(connection, view, *span, window) for span, window in zip(spans, (first, second), strict=True)]
    currencies = sorted({*periods[0], *periods[1]})
    none = [BillPeriod((after - start).days) for start, after in spans]
    totals = [_total(unit, periods[0].get(unit, none[0]), periods[1].get(unit, none[1])) for unit in currencies]
    return {**shown, "reason": "" if totals else NO_CHARGES, "totals": totals}


def bill_only(level: Mapping[str, Any]) -> dict[str, Any]:
    """{amount, reason}: how much of the effective change no machine of the inventory explains; None with a reason."""
    totals: Sequence[Mapping[str, Any]] = level["totals"]
    if len(totals) != 1:
        return {"amount": None, "reason": SEVERAL if totals else level["reason"]}
    return {"amount": total(row["effective"]["change"] for row in totals[0]["bill_only"]), "reason": ""}


def tie_to_ledger(level: Mapping[str, Any], ledger: Sequence[Mapping[str, Any]]) -> None:
    """Add to each currency's ``ledger`` what the ledger costs in the periods, and the part of it that rates price, not bills."""
    costs = {row["currency"]: (row["before"], row["after"]) for row in ledger}
    for row in level["totals"]:
        before, after = costs.get(row["currency"], (ZERO, ZERO))
        held = row["ledger"]["held"]
        row["ledger"]["by_rates"] = _amounts(total([before, -held["before"]]), total([after, -held["after"]]))
        row["ledger"]["cost"] = _amounts(before, after)


def _days(window: Window) -> tuple[date, date]:
    """The UTC midnights nearest to the period's: bills have days of UTC and months of the issuer."""
    return (window.start.astimezone(UTC) + NOON).date(), (window.end.astimezone(UTC) + NOON).date()


def _shown(span: tuple[date, date]) -> dict[str, date]:
    return {"from": span[0], "to": span[1]}


def _total(currency: str, first: BillPeriod, second: BillPeriod) -> dict[str, Any]:
    buckets, machines = bucket_changes(first, second), machine_changes(first, second)
    effects = {name: total(change.effects[name] for change in machines) for name in MACHINE_EFFECTS}
    whole = BucketChange("", first.whole, second.whole)
    of_machines = total(change.change.effective for change in buckets if change.bucket in MACHINE_BUCKETS)
    return {
        "currency": currency,
        **_money(whole),
        "buckets": [_row(change) for change in buckets],
        "machine_effects": [
            {"effect": name, "amount": amount, "text": MACHINE_TEXTS[name]} for name, amount in effects.items() if amount
        ],
        "machine_types": [_machine(change) for change in machines if change.change or any(change.effects.values())],
        "commitments": [
            {"commitment_id": name, "hours_before": hours[0], "hours_after": hours[1]}
            for name, hours in covered_hours(first, second).items()
        ],
        "bill_only": [_row(change) for change in bill_only_changes(first, second)],
        "ledger": {
            "held": _amounts(first.held, second.held),
            "not_held": _amounts(first.not_held, second.not_held),
        },
        "difference": total([of_machines, *(-amount for amount in effects.values())]),
    }


def _row(change: BucketChange) -> dict[str, Any]:
    return {"bucket": change.bucket, **_money(change), "text": BUCKET_TEXTS.get(change.bucket, "")}


def _money(change: BucketChange) -> dict[str, Any]:
    return {
        "billed": _amounts(change.before.billed, change.after.billed),
        "effective": _amounts(change.before.effective, change.after.effective),
    }


def _machine(change: MachineChange) -> dict[str, Any]:
    effects = {name: amount for name, amount in change.effects.items() if amount}
    return {"instance_type": change.instance_type or "(not named)", **_amounts(change.before, change.after), "effects": effects}


def _amounts(before: Decimal, after: Decimal) -> dict[str, Decimal]:
    return {"before": before, "after": after, "change": total([after, -before])}

"""Shared cost rules: add, end, and what they make of a month's charges. Every change is audited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime

from sqlalchemy import Connection

from core.money import plain
from core.period_line import PeriodLine
from core.shared_cost import SharedRule, Weights, share_costs
from core.windows import Window, month_on
from models.audit_repo import append_audit
from models.ledger_repo import ledger_rows
from models.shared_repo import add_rule, end_rule, read_rules, shared_charges


@dataclass(frozen=True, slots=True)
class Preview:
    """A month's lines of kind shared and not_shared, as the rules are and with one more."""

    now: list[PeriodLine]
    then: list[PeriodLine]


def add_shared_rule(connection: Connection, rule: SharedRule, by: str, now: datetime) -> None:
    """Raises Conflict for a name taken."""
    add_rule(connection, rule, now, by)
    detail = {
        "method": rule.method, "over": rule.target, "valid_from": rule.valid_from.isoformat(), "owner": rule.owner,
        "shares": {holder: plain(share) for holder, share in rule.shares.items()}, "position": rule.position,
    }  # fmt: skip
    append_audit(connection, now, by, "shared.add", f"shared:{rule.name}", detail)


def end_shared_rule(connection: Connection, name: str, day: date, by: str, reason: str, now: datetime) -> SharedRule:
    """It takes nothing from ``day`` on. Raises NotFound."""
    ended = end_rule(connection, name, day)
    append_audit(connection, now, by, "shared.end", f"shared:{name}", {"valid_to": day.isoformat(), "reason": reason})
    return ended


def preview(
    connection: Connection, month: date, window: Window, *, adding: SharedRule | None = None, without: str = ""
) -> Preview:
    """What the rules make of ``month`` (its ledger weights from ``window``), and with a rule added or one taken out."""
    rules = read_rules(connection)
    then = [rule for rule in rules if rule.name != without] + ([adding] if adding else [])
    return Preview(shared_lines(connection, month, window, rules), shared_lines(connection, month, window, then))


def shared_lines(connection: Connection, month: date, window: Window, rules: Sequence[SharedRule]) -> list[PeriodLine]:
    """Lines of kind shared and not_shared of the UTC days of ``month``: together the charges that are no machine's, exactly."""
    charges = shared_charges(connection, month, month_on(month, 1), rules)
    weights = _weights(connection, window) if charges and any(rule.method != "fixed" for rule in rules) else {}
    return share_costs(charges, rules, weights, month)


def _weights(connection: Connection, window: Window) -> dict[str, Weights]:
    """By currency, from the newest closed quarter hours."""
    found: dict[str, Weights] = {}
    for row in ledger_rows(connection, ("deployment",), window):
        held = found.setdefault(row["currency"], Weights())
        found[row["currency"]] = replace(held, deployment={**held.deployment, row["deployment"]: row["cost"]})
    for row in ledger_rows(connection, ("org", "team"), window):
        if not row["org"]:
            continue
        held, tenant = found.setdefault(row["currency"], Weights()), "/".join(part for part in (row["org"], row["team"]) if part)
        found[row["currency"]] = replace(held, tenant={**held.tenant, tenant: row["allocated"]})
    return found

"""Shared cost rules and the charges they may take: rows <-> core values. Nothing here commits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, cast

from sqlalchemy import Connection, Row, Table, insert, select, text, update

from core.errors import Conflict, NotFound
from core.money import plain
from core.shared_cost import Selector, SharedCharge, SharedRule, tag_keys
from models.tables_period import SharedRuleRow

_RULE = cast(Table, SharedRuleRow.__table__)
_CHARGES = text("""
    SELECT c.day, c.bucket, c.service, CASE WHEN :by_resource THEN c.resource_id ELSE '' END AS resource_id, c.currency,
           coalesce(
               (SELECT jsonb_object_agg(k, c.tags -> k) FROM unnest(CAST(:tags AS text[])) k WHERE c.tags ? k), '{}'
           ) AS tags,
           sum(c.effective) AS cost
    FROM charge_day c JOIN bill_delivery d ON d.id = c.delivery
    WHERE d.status = 'current' AND c.bucket <> 'split_memo' AND coalesce(c.day, c.billing_period) >= :first
        AND coalesce(c.day, c.billing_period) < :after
        AND (CAST(:deliveries AS bigint[]) IS NULL OR d.id = ANY(CAST(:deliveries AS bigint[])))
        AND NOT EXISTS (
            SELECT 1 FROM node_charge n WHERE n.delivery = c.delivery AND n.resource_id = c.resource_id AND n.bucket = c.bucket
                AND n.currency = c.currency
        )
    GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
""")


def read_rules(connection: Connection, *, at: date | None = None) -> list[SharedRule]:
    """Every rule, or those that take charges on the day ``at``; as they are asked."""
    rows = connection.execute(select(_RULE).order_by(_RULE.c.position, _RULE.c.name))
    rules = [_rule(row) for row in rows]
    return [r for r in rules if at is None or (r.valid_from <= at and (r.valid_to is None or at < r.valid_to))]


def add_rule(connection: Connection, rule: SharedRule, at: datetime, by: str) -> None:
    """Raises Conflict when the name is taken: a rule is never edited."""
    if connection.execute(select(_RULE.c.name).where(_RULE.c.name == rule.name)).one_or_none() is not None:
        hint = "end it (tokenfuse shared end) and add one of another name"
        raise Conflict(f"a shared cost rule {rule.name} exists", hint=hint)
    row = {"name": rule.name, "position": rule.position, "selector": _selector_json(rule.selector), "method": rule.method}
    row |= {"target": rule.target, "shares": {k: plain(v) for k, v in rule.shares.items()}, "valid_from": rule.valid_from}
    row |= {"valid_to": rule.valid_to, "owner": rule.owner, "created_at": at, "created_by": by}
    connection.execute(insert(_RULE), [row])


def end_rule(connection: Connection, name: str, day: date) -> SharedRule:
    """It takes no charge of ``day`` or later; returns it as it is now. Raises NotFound."""
    row = connection.execute(select(_RULE).where(_RULE.c.name == name)).one_or_none()
    if row is None:
        raise NotFound(f"there is no shared cost rule {name}", hint="see tokenfuse shared list")
    ended = _rule(row, day)
    connection.execute(update(_RULE).where(_RULE.c.name == name).values(valid_to=day))
    return ended


def shared_charges(
    connection: Connection, first: date, after: date, rules: Sequence[SharedRule], deliveries: Collection[int] | None = None
) -> list[SharedCharge]:
    """Charges of current deliveries (these, or all) used on UTC days in ``[first, after)`` (without a day: by their billing
    period) that are no machine's, as fine as the rules' selectors ask."""
    values = {
        "first": first,
        "after": after,
        "tags": tag_keys(rules),
        "deliveries": None if deliveries is None else sorted(deliveries),
    }
    values["by_resource"] = any(rule.selector.resource_id for rule in rules)
    return [
        SharedCharge(
            r.day, r.bucket, r.service, r.resource_id, r.currency, r.cost, tuple(sorted((k, str(v)) for k, v in r.tags.items()))
        )
        for r in connection.execute(_CHARGES, values)
    ]


def _selector_json(selector: Selector) -> dict[str, Any]:
    return {
        "buckets": sorted(selector.buckets),
        "service": selector.service,
        "resource_id": selector.resource_id,
        "tag": list(selector.tag) if selector.tag else None,
    }


def _rule(row: Row[Any], valid_to: date | None = None) -> SharedRule:
    s = row.selector
    tag = (s["tag"][0], s["tag"][1]) if s["tag"] else None
    return SharedRule(
        row.name, row.position, Selector(frozenset(s["buckets"]), s["service"], s["resource_id"], tag), row.method, row.target,
        row.valid_from, row.owner, valid_to or row.valid_to, {holder: Decimal(share) for holder, share in row.shares.items()},
    )  # fmt: skip

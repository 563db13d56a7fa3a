"""Rules as people change them: what ships is stored, versions, switching on and off, and what a person makes of an alert.

Functions take an open transaction; the caller commits. Every change is audited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from control.rule_files import shipped_rules
from core.errors import BadInput, NotFound
from core.rules import Rule
from models.audit_repo import append_audit
from models.decide_repo import notify
from models.rule_repo import (
    Alert,
    StoredRule,
    end_alerts,
    list_rules,
    person_says,
    put_rule,
    rest_states,
    retire_rule,
    rule_names_ever,
)

SHIPPED = "tokenfuse"
"""Whose name stands under the rules that ship."""
SAID = {"ack": "acknowledged", "ignore": "ignored"}


def seed_rules(connection: Connection, now: datetime) -> int:
    """Store shipped rules whose name was never stored; a rule a person removed does not come back. Returns how many."""
    missing = {rule.name: rule for rule in shipped_rules()}
    for name in rule_names_ever(connection):
        missing.pop(name, None)
    for rule in missing.values():
        put_rule(connection, rule, SHIPPED, now)
    return len(missing)


def set_rules(connection: Connection, rules: Sequence[Rule], actor: str, now: datetime) -> list[str]:
    """Store rules that are new or differ from those in force; returns their names. Others in force stay as they are."""
    held = {stored.rule.name: stored.rule for stored in list_rules(connection)}
    changed = [rule for rule in rules if held.get(rule.name) != rule]
    for rule in changed:
        version = put_rule(connection, rule, actor, now)
        append_audit(connection, now, actor, "rule.set", rule.name, {"version": version, "shadow": rule.shadow})
        if not rule.enabled:
            _stop(connection, rule.name, now)
    if changed:
        notify(connection, "tokenfuse_settings", "rules")
    return [rule.name for rule in changed]


def find_rule(connection: Connection, name: str) -> StoredRule:
    """The rule in force. Raises NotFound."""
    for stored in list_rules(connection):
        if stored.rule.name == name:
            return stored
    raise NotFound(f"there is no rule {name!r}", hint="list them with `tokenfuse rules list`")


def switch_rule(connection: Connection, name: str, enabled: bool, actor: str, now: datetime) -> StoredRule:
    """Enable or disable a rule; disabling ends its alerts. Raises NotFound."""
    set_rules(connection, [replace(find_rule(connection, name).rule, enabled=enabled)], actor, now)
    return find_rule(connection, name)


def shadow_rule(connection: Connection, name: str, shadow: bool, actor: str, now: datetime) -> StoredRule:
    """Put a rule into shadow, or out of it: then people are told. Raises NotFound."""
    set_rules(connection, [replace(find_rule(connection, name).rule, shadow=shadow)], actor, now)
    return find_rule(connection, name)


def remove_rule(connection: Connection, name: str, actor: str, now: datetime) -> None:
    """Retire a rule; its history stays. Raises NotFound."""
    find_rule(connection, name)
    retire_rule(connection, name, now)
    _stop(connection, name, now)
    append_audit(connection, now, actor, "rule.remove", name, {})
    notify(connection, "tokenfuse_settings", "rules")


def _stop(connection: Connection, name: str, now: datetime) -> None:
    end_alerts(connection, name, None, now)
    rest_states(connection, name)


def answer_alert(connection: Connection, alert_id: int, what: str, actor: str, reason: str, now: datetime) -> Alert:
    """A person acknowledges an alert (``ack``) or says it is usual (``ignore``): then its windows belong to the baseline.

    Raises BadInput without a reason, NotFound.
    """
    if what not in SAID:
        raise BadInput("must be ack or ignore", field="action", value=what)
    if not reason.strip():
        raise BadInput("must not be empty", field="reason", value=reason, hint="say why, for whoever looks next")
    found = person_says(connection, alert_id, SAID[what], actor, reason, now)
    if found is None:
        raise NotFound(f"there is no alert {alert_id}", hint="list them with `tokenfuse rules alerts`")
    append_audit(connection, now, actor, f"alert.{what}", found.scope, {"alert": alert_id, "rule": found.rule, "reason": reason})
    return found

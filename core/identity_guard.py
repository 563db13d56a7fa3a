"""The identity rules as guards get them: compact, dated, a part of the signed policy document (``identity`` of its body).

Shape: ``{"format": 1, "versions": [{"version", "from_ms", "start", "default", "gateway_sets", "rules": [{"when": [[field,
operator, value]], "set", "then"?}]}], "names": {key id: alias}}``. ``then`` is written only where a rule lets later ones go on. A
guard that does not understand a section goes on with the one it held.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from core.errors import Refused
from core.identity import Condition, Rule, RuleVersion, reigns
from core.identity_codec import condition_text
from core.identity_match import Matcher
from core.identity_regex import safe_pattern
from core.identity_state import IdentityState, name_at
from core.policy import canonical_json
from core.windows import epoch_ms

FORMAT = 1
MAX_BYTES = 512 * 1024
"""Of one guard's section as JSON: some 4,000 conditions, or 500 rules and the names of 5,000 keys."""
MAX_BYTES_ALL = 64 * 1024 * 1024
"""Of the sections of all guards together: what the centre signs and sends when a version is published."""
BEHIND = timedelta(minutes=10)
"""A version is carried this much longer than it is in force: a guard's clock may be behind."""


def carried(versions: Sequence[RuleVersion], now: datetime) -> list[RuleVersion]:
    """The versions a guard needs from ``now`` on: the one in force (a while longer, the one before) and those to come."""
    ever = reigns(versions)
    ends = [version.valid_from for version in ever[1:]]
    over = sum(1 for end in ends if end <= now - BEHIND)
    return ever[over:]


def section(state: IdentityState, now: datetime) -> dict[str, Any] | None:
    """The section in force from ``now`` on; None when no rules are or will be."""
    versions = carried(state.versions, now)
    if not versions:
        return None
    return {"format": FORMAT, "versions": [_version(one) for one in versions], "names": _names(state, versions, now)}


def size(found: dict[str, Any] | None) -> int:
    """Bytes of a section in a guard's document."""
    return 0 if found is None else len(canonical_json(found).encode())


def check_size(found: dict[str, Any] | None, guards: int) -> None:
    """Raises Refused when the section is too large for a guard's document, or for ``guards`` of them."""
    bytes_each = size(found)
    hint = "join rules by patterns, or shorten them"
    if bytes_each > MAX_BYTES:
        raise Refused(f"rules and key names for guards take {bytes_each:,} bytes; at most {MAX_BYTES:,} are published", hint=hint)
    if bytes_each * guards > MAX_BYTES_ALL:
        said = f"{bytes_each:,} bytes for each of {guards:,} guards are {bytes_each * guards:,}"
        raise Refused(f"{said}; at most {MAX_BYTES_ALL:,} are published", hint=f"{hint}; or run fewer guards")


def fitted(found: dict[str, Any] | None) -> tuple[dict[str, Any] | None, str]:
    """The section as far as it fits, and what was left out: names of keys can be imported after the rules were published."""
    if found is None or size(found) <= MAX_BYTES:
        return found, ""
    if size(rest := {**found, "names": {}}) <= MAX_BYTES:
        return rest, f"the names of {len(found['names']):,} keys"
    return None, "all identity rules"


def client_conditions(rules: Iterable[Rule], gateway_sets: Sequence[str]) -> list[str]:
    """Conditions that guards judge without the client's word, as ``RULE: CONDITION``: their field is not marked."""
    found = []
    for rule in rules:
        for condition in rule.when:
            if is_client_word(condition.field) and not is_marked(condition.field, gateway_sets):
                found.append(f"{rule.name}: {condition_text(condition)}")
    return found


def is_client_word(field: str) -> bool:
    """Whether a client can write what the field holds, key's own labels and tags aside."""
    return field in ("user", "tag") or field.startswith(("tag.", "header.", "metadata."))


def is_marked(field: str, gateway_sets: Sequence[str]) -> bool:
    """Whether the gateway sets the field; a mark on ``tag`` holds for every ``tag.NAME``."""
    return field in gateway_sets or (field.startswith("tag.") and "tag" in gateway_sets)


def _version(version: RuleVersion) -> dict[str, Any]:
    rules = version.rules
    return {
        "version": version.version,
        "from_ms": epoch_ms(version.valid_from),
        "start": "said" if rules.keeps_said else "empty",
        "default": dict(rules.default),
        "gateway_sets": list(rules.gateway_sets),
        "rules": [_rule(rule) for rule in rules.rules],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    goes_on = {} if rule.stops else {"then": "continue"}
    return {"when": [_condition(condition) for condition in rule.when], "set": dict(rule.sets), **goes_on}


def _condition(condition: Condition) -> list[str]:
    """A pattern travels as it is compiled: without the anchors it may be written with."""
    value = condition.value
    if condition.operator == "regex":
        value = safe_pattern(value, condition.field).pattern
    return [condition.field, condition.operator, value]


def _names(state: IdentityState, versions: Sequence[RuleVersion], now: datetime) -> dict[str, str]:
    """What keys are called now, of those whose name some rule notices."""
    matchers = [Matcher(version.rules) for version in versions]
    if not any("key_alias" in matcher.fields for matcher in matchers):
        return {}
    called = {key_id: name_at(names, epoch_ms(now)) for key_id, names in state.key_names.items()}
    return {key_id: name for key_id, name in called.items() if any(m.notices("key_alias", name) for m in matchers)}

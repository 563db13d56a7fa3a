"""Rule sets as JSON and as one-line texts; a usage record's facts, and how a record keeps what its source said.

A record's ``raw.identity`` holds the facts beside its own fields (``key_alias``, ``gateway``, ``tags``, ``header.NAME``,
``metadata.NAME``) and, once rules changed its tenant or tier, ``said`` (what the source said) and ``rules`` (the version).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from core.errors import BadInput
from core.identity import PATH_PARTS, SETTABLE, Condition, Facts, Operator, Rule, RuleSet
from core.texts import MAX_ITEMS, MAX_LABEL
from core.usage import Deployment, TenantPath

IDENTITY = "identity"
"""Key of a record's ``raw``."""
MAX_FACT_NAME = 48
_SECRET = ("auth", "cookie", "credential", "password", "secret", "token", "api-key", "api_key", "apikey")
SIGNS: Mapping[str, Operator] = {"=": "exact", "^=": "prefix", "~": "glob", "=~": "regex"}
_SIGN_OF = {operator: sign for sign, operator in SIGNS.items()}
_CONDITION = re.compile(r"(\S+) (=|\^=|~|=~) (.*)", re.DOTALL)
_PLAIN_VALUE = re.compile(r'[^"\s]([^"]*[^"\s])?')
_RULE_KEYS, _SET_KEYS = frozenset({"name", "when", "set", "then"}), frozenset({"rules", "default", "start", "gateway_sets"})


def decode_rules(item: Any) -> RuleSet:
    """``{"start": "said"|"empty", "default": {part: name}, "rules": [{"name", "when": [{"field", "op", "value"}], "set": {part:
    template}, "then": "stop"|"continue"}], "gateway_sets": [field]}`` -> the set. Raises BadInput naming the place."""
    body = _object(item, "rules")
    _known(body, _SET_KEYS, "")
    rules = body.get("rules", [])
    if not isinstance(rules, list):
        raise BadInput("must be a list", field="rules", value=type(rules).__name__)
    default = _sets(body.get("default", {"org": "unassigned"}), "default")
    start = _choice(body.get("start", "said"), ("said", "empty"), "start")
    fields = body.get("gateway_sets", [])
    if not isinstance(fields, list):
        raise BadInput("must be a list of fields", field="gateway_sets", value=type(fields).__name__)
    made = tuple(_rule(one, f"rules[{n}]") for n, one in enumerate(rules))
    trusted = tuple(_text(one, f"gateway_sets[{n}]") for n, one in enumerate(fields))
    return RuleSet(made, default, start == "said", trusted)


def encode_rules(rules: RuleSet) -> dict[str, Any]:
    """The canonical JSON of a set: ``decode_rules`` gives it back. An empty ``gateway_sets`` is left out: sets from before there
    was one keep their digest."""
    marked = {"gateway_sets": list(rules.gateway_sets)} if rules.gateway_sets else {}
    return {
        "start": "said" if rules.keeps_said else "empty",
        "default": dict(rules.default),
        "rules": [
            {
                "name": rule.name,
                "when": [{"field": c.field, "op": c.operator, "value": c.value} for c in rule.when],
                "set": dict(rule.sets),
                "then": "stop" if rule.stops else "continue",
            }
            for rule in rules.rules
        ],
        **marked,
    }


def digest_of(rules: RuleSet) -> str:
    """SHA-256 of the canonical JSON: equal sets have equal digests."""
    body = json.dumps(encode_rules(rules), separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(body.encode()).hexdigest()


def condition_text(condition: Condition) -> str:
    """``key_alias ^= search-``; a value that could be misread stands in JSON quotes."""
    value = condition.value
    plain = _PLAIN_VALUE.fullmatch(value) and " AND " not in f" {value} "
    shown = value if plain else json.dumps(value, ensure_ascii=False)
    return f"{condition.field} {_SIGN_OF[condition.operator]} {shown}"


def conditions_text(conditions: Iterable[Condition]) -> str:
    """Conditions joined by AND."""
    return " AND ".join(condition_text(condition) for condition in conditions)


def parse_conditions(text: str, place: str) -> tuple[Condition, ...]:
    """The reverse of ``conditions_text``. Raises BadInput naming ``place``."""
    return tuple(_condition_of(part.strip(), place) for part in _split(text.strip()))


def _split(text: str) -> list[str]:
    """Cut at each AND outside quotes; a quote opens only right behind a sign."""
    parts, start, at = [], 0, 0
    while at < len(text):
        if text[at] == '"' and re.search(r"(?:^|\s)(?:=|\^=|~|=~) $", text[start:at]):
            closing = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, at)
            at = closing.end() if closing else len(text)
        elif text.startswith(" AND ", at):
            parts.append(text[start:at])
            start = at = at + len(" AND ")
        else:
            at += 1
    return [*parts, text[start:]]


def _condition_of(text: str, place: str) -> Condition:
    found = _CONDITION.fullmatch(text) or _CONDITION.fullmatch(f"{text} ")
    if found is None:
        hint = "write FIELD = VALUE, FIELD ^= PREFIX, FIELD ~ GLOB* or FIELD =~ PATTERN, joined by AND"
        raise BadInput("is not a condition", field=place, value=text, hint=hint)
    name, sign, value = found.groups()
    value = value.strip()
    if value.startswith('"'):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise BadInput("the quotes are not closed", field=place, value=text) from error
    elif " AND " in f" {value} ":
        raise BadInput("a condition is missing beside AND", field=place, value=text, hint="put a value that holds AND in quotes")
    return Condition(name, SIGNS[sign], value)


def record_facts(record: Mapping[str, Any], *, is_new: bool = False) -> Facts:
    """The facts of a full record (``usage/1`` as JSON values), as its source said them, whatever rules made of them.

    ``is_new``: the record comes from a source, which cannot say what rules already did.
    """
    identity = identity_of(record)
    said = None if is_new else identity.get("said")
    place = record.get("tenant") or {}
    tier = record.get("service_tier") or "P1"
    if isinstance(said, dict):
        place, tier = {**said, "key_id": place.get("key_id", "")}, said.get("service_tier", tier)
    where = record.get("deployment") or {}
    return Facts(
        said=TenantPath(**{part: str(place.get(part) or "") for part in (*PATH_PARTS, "key_id")}),
        service_tier=str(tier),
        deployment=Deployment(*(str(where.get(part) or "") for part in ("cluster", "namespace", "model_id"))),
        requested_model=str(record.get("requested_model") or ""),
        tags=tuple(tag for tag in identity.get("tags") or () if isinstance(tag, str)),
        more={name: value for name, value in identity.items() if isinstance(value, str) and name != "rules"},
    )


def identity_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """``raw.identity`` of a record, empty where there is none."""
    raw = record.get("raw")
    found = raw.get(IDENTITY) if isinstance(raw, dict) else None
    return found if isinstance(found, dict) else {}


def identity_facts(
    *,
    key_alias: str = "",
    gateway: str = "",
    tags: Iterable[str] = (),
    headers: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What an adapter puts into ``raw.identity``: short labels only, empty ones left out; header names in small letters. What
    bears the name of a secret is left out too."""
    found: dict[str, Any] = {"key_alias": key_alias, "gateway": gateway, "tags": [tag for tag in tags if _label(tag)][:MAX_ITEMS]}
    found |= {f"header.{name.lower()}": value for name, value in (headers or {}).items() if _may_be_kept(name)}
    found |= {f"metadata.{name}": value for name, value in (metadata or {}).items() if _may_be_kept(name)}
    return {name: value for name, value in found.items() if value and (isinstance(value, list) or _label(value))}


def said_of(facts: Facts, version: int) -> dict[str, Any]:
    """What a mapped record keeps of its source beside the facts it had."""
    said = {part: getattr(facts.said, part) for part in PATH_PARTS} | {"service_tier": facts.service_tier}
    return {"said": said, "rules": str(version)}


def _may_be_kept(name: str) -> bool:
    return _label(name) and len(name) <= MAX_FACT_NAME and not any(word in name.lower() for word in _SECRET)


def _label(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_LABEL and value.isprintable()


def _rule(item: Any, place: str) -> Rule:
    body = _object(item, place)
    _known(body, _RULE_KEYS, f"{place}.")
    when = body.get("when")
    if not isinstance(when, list):
        raise BadInput("must be a list of conditions", field=f"{place}.when", value=when)
    return Rule(
        name=_text(body.get("name"), f"{place}.name"),
        when=tuple(_condition(one, f"{place}.when[{n}]") for n, one in enumerate(when)),
        sets=_sets(body.get("set"), f"{place}.set"),
        stops=_choice(body.get("then", "stop"), ("stop", "continue"), f"{place}.then") == "stop",
    )


def _condition(item: Any, place: str) -> Condition:
    body = _object(item, place)
    _known(body, frozenset({"field", "op", "value"}), f"{place}.")
    operator = _text(body.get("op", "exact"), f"{place}.op")
    field = _text(body.get("field"), f"{place}.field")
    return Condition(field, cast(Operator, operator), _text(body.get("value"), f"{place}.value"))


def _sets(item: Any, place: str) -> tuple[tuple[str, str], ...]:
    body = _object(item, place)
    _known(body, frozenset(SETTABLE), f"{place}.")
    return tuple((part, _text(body[part], f"{place}.{part}")) for part in SETTABLE if part in body)


def _object(item: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise BadInput("must be an object", field=place, value=type(item).__name__)
    return item


def _known(body: Mapping[Any, Any], known: frozenset[str], place: str) -> None:
    for key in body:
        if key not in known:
            raise BadInput("is not known", field=f"{place}{key}", hint=f"use {', '.join(sorted(known))}")


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise BadInput("must be a text", field=place, value=value, hint="put it in quotes")
    return value


def _choice(value: Any, allowed: tuple[str, ...], place: str) -> str:
    if value not in allowed:
        raise BadInput(f"must be one of {', '.join(allowed)}", field=place, value=value)
    return str(value)

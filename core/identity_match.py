"""A rule set made ready to judge facts: patterns compiled, templates read, everything checked once."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.errors import BadInput
from core.identity import (
    CLIENT_FIELDS,
    NAMED_FIELDS,
    OPERATORS,
    PATH_PARTS,
    PLAIN_FIELDS,
    SETTABLE,
    Condition,
    Facts,
    Resolved,
    Rule,
    RuleSet,
    Step,
    is_settable,
)
from core.identity_regex import MAX_VALUE, safe_pattern
from core.usage import MAX_NAME, SERVICE_TIERS, TenantPath

MAX_RULES, MAX_CONDITIONS, MAX_GLOB_STARS, MAX_MARKS = 500, 10, 8, 50
_REFERENCE = re.compile(r"\$(?:(\$)|(\d{1,2})|\{([A-Za-z0-9_]{1,32})\})")
_FIELD_NAME = re.compile(r"[A-Za-z0-9_.-]{1,48}")
Caught = dict[str, str]
Test = Callable[[str], "Caught | None"]


@dataclass(frozen=True, slots=True)
class _Ready:
    rule: Rule
    tests: tuple[tuple[Condition, Test], ...]


class Matcher:
    """Judges facts by one rule set. Raises BadInput, naming rule and field, when the set is not in order."""

    def __init__(self, rules: RuleSet) -> None:
        if len(rules.rules) > MAX_RULES:
            raise BadInput(f"a set has at most {MAX_RULES} rules", field="rules", value=len(rules.rules))
        names = [rule.name for rule in rules.rules]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise BadInput("two rules have this name", field=f"rules[{place}].name", value=name)
        _check_sets(rules.default, "default", frozenset(), PATH_PARTS)
        _check_marks(rules.gateway_sets)
        self.rules = rules
        self._ready = [_prepared(rule, f"rules[{place}]") for place, rule in enumerate(rules.rules)]

    @property
    def fields(self) -> frozenset[str]:
        """The fields that conditions look at."""
        return frozenset(condition.field for rule in self.rules.rules for condition in rule.when)

    def notices(self, field: str, value: str) -> bool:
        """Whether a condition on ``field`` tells ``value`` from nothing said."""
        tests = [test for ready in self._ready for condition, test in ready.tests if condition.field == field]
        return any((test(value) is None) != (test("") is None) for test in tests)

    def resolve(self, facts: Facts, *, explain: bool = False) -> Resolved:
        """Whom the request is charged to; with ``explain`` also what became of each rule."""
        parts = dict.fromkeys(PATH_PARTS, "")
        if self.rules.keeps_said:
            parts = {part: getattr(facts.said, part) for part in PATH_PARTS}
        parts["service_tier"] = facts.service_tier
        matched: list[str] = []
        steps: list[Step] = []
        stopped = False
        for ready in self._ready:
            step = Step(ready.rule.name, "not reached") if stopped else _apply(ready, facts, parts)
            if step.outcome == "applied":
                matched.append(ready.rule.name)
                stopped = ready.rule.stops
            if explain:
                steps.append(step)
            elif stopped:
                break
        by_default = tuple(part for part, text in self.rules.default if text and not parts[part])
        parts |= {part: text for part, text in self.rules.default if part in by_default}
        tier = parts.pop("service_tier")
        return Resolved(TenantPath(**parts, key_id=facts.said.key_id), tier, tuple(matched), by_default, tuple(steps))


def _apply(ready: _Ready, facts: Facts, parts: dict[str, str]) -> Step:
    """Set the rule's parts when all its conditions hold and all it would set is in order."""
    caught: list[Caught] = []
    for condition, test in ready.tests:
        found = next((hit for value in facts.values(condition.field) if (hit := test(value)) is not None), None)
        if found is None:
            shown = " | ".join(facts.values(condition.field))
            return Step(ready.rule.name, "no match", f"{condition.field} is {shown!r}")
        caught.append(found)
    groups = _numbered(caught)
    made = {part: _filled(template, groups) for part, template in ready.rule.sets}
    for part, text in made.items():
        if not is_settable(part, text):
            return Step(ready.rule.name, "not a name", f"{part} would be {text!r}")
    parts.update(made)
    return Step(ready.rule.name, "applied", ", ".join(f"{part} = {text}" for part, text in made.items()))


def _numbered(caught: Sequence[Caught]) -> Caught:
    """Groups by number through all conditions, and by name."""
    found: Caught = {}
    number = 0
    for groups in caught:
        for name, text in groups.items():
            if name.startswith("#"):
                number += 1
                found[str(number)] = text
            else:
                found[name] = text
    return found


def _filled(template: str, groups: Caught) -> str:
    def value(found: re.Match[str]) -> str:
        return "$" if found[1] else groups[found[2] or found[3]]

    return _REFERENCE.sub(value, template).strip() if "$" in template else template


def _prepared(rule: Rule, place: str) -> _Ready:
    if not rule.name or len(rule.name) > MAX_NAME or not rule.name.isprintable():
        raise BadInput(f"a rule has a name of 1 to {MAX_NAME} printable characters", field=f"{place}.name", value=rule.name)
    if not 0 < len(rule.when) <= MAX_CONDITIONS:
        hint = "the default is for what no rule matches"
        raise BadInput(f"a rule has 1 to {MAX_CONDITIONS} conditions", field=f"{place}.when", value=len(rule.when), hint=hint)
    if not rule.sets:
        raise BadInput("the rule sets nothing", field=f"{place}.set", hint=f"set one of {', '.join(SETTABLE)}")
    tests: list[tuple[Condition, Test]] = []
    names: set[str] = set()
    count = 0
    for number, condition in enumerate(rule.when):
        test, groups = _test_of(condition, f"{place}.when[{number}]")
        count += groups[0]
        if twice := names & set(groups[1]):
            raise BadInput("two groups have this name", field=f"{place}.when[{number}].value", value=min(twice))
        names |= set(groups[1])
        tests.append((condition, test))
    _check_sets(rule.sets, f"{place}.set", frozenset({*map(str, range(1, count + 1)), *names}))
    return _Ready(rule, tuple(tests))


def check_field(name: str, place: str) -> None:
    """Raises BadInput for a field that no record can have."""
    prefix = next((start for start in NAMED_FIELDS if name.startswith(start)), "")
    if name not in PLAIN_FIELDS and not (prefix and _FIELD_NAME.fullmatch(name.removeprefix(prefix))):
        known = ", ".join((*PLAIN_FIELDS, *(f"{start}NAME" for start in NAMED_FIELDS)))
        raise BadInput("is not a field", field=place, value=name, hint=f"use one of {known}")


def _check_marks(fields: Sequence[str]) -> None:
    if len(fields) > MAX_MARKS:
        raise BadInput(f"at most {MAX_MARKS} fields can be marked", field="gateway_sets", value=len(fields))
    for number, name in enumerate(fields):
        place = f"gateway_sets[{number}]"
        check_field(name, place)
        if name not in CLIENT_FIELDS and not name.startswith(NAMED_FIELDS):
            hint = "only user, tag, tag.NAME, header.NAME and metadata.NAME can be written by a client"
            raise BadInput("needs no mark", field=place, value=name, hint=hint)


def _test_of(condition: Condition, place: str) -> tuple[Test, tuple[int, tuple[str, ...]]]:
    """The test, and the number and names of the groups it catches."""
    check_field(condition.field, f"{place}.field")
    if condition.operator not in OPERATORS:
        raise BadInput(f"must be one of {', '.join(OPERATORS)}", field=f"{place}.op", value=condition.operator)
    value, where = condition.value, f"{place}.value"
    if len(value) > MAX_VALUE or not value.isprintable():
        raise BadInput(f"has at most {MAX_VALUE} printable characters", field=where, value=value)
    if condition.operator == "exact":
        return (lambda text: {} if text == value else None), (0, ())
    if not value:
        hint = "an exact '' holds where the source said nothing"
        raise BadInput("must not be empty", field=where, hint=hint)
    if condition.operator == "prefix":
        return (lambda text: {} if text.startswith(value) else None), (0, ())
    if condition.operator == "glob":
        return _glob(value, where), (0, ())
    pattern = safe_pattern(value, where)
    return _regex(pattern), (pattern.groups, tuple(pattern.groupindex))


def _glob(value: str, where: str) -> Test:
    if value.count("*") > MAX_GLOB_STARS:
        raise BadInput(f"has at most {MAX_GLOB_STARS} stars", field=where, value=value)
    pattern = re.compile(fnmatch.translate(re.sub(r"\*+", "*", value)))
    return lambda text: {} if 0 < len(text) <= MAX_VALUE and pattern.fullmatch(text) else None


def _regex(pattern: re.Pattern[str]) -> Test:
    names = {number: name for name, number in pattern.groupindex.items()}

    def test(text: str) -> Caught | None:
        found = pattern.fullmatch(text) if 0 < len(text) <= MAX_VALUE else None
        if found is None:
            return None
        caught: Caught = {}
        for number, part in enumerate(found.groups(), 1):
            caught[f"#{number}"] = part or ""
            if number in names:
                caught[names[number]] = part or ""
        return caught

    return test


def _check_sets(sets: Sequence[tuple[str, str]], place: str, groups: frozenset[str], allowed: Sequence[str] = SETTABLE) -> None:
    for part, template in sets:
        if part not in allowed:
            raise BadInput(f"must be one of {', '.join(allowed)}", field=place, value=part)
        where = f"{place}.{part}"
        references = [found[2] or found[3] for found in _REFERENCE.finditer(template) if not found[1]]
        for name in references:
            if name not in groups:
                raise BadInput("no pattern of this rule catches that group", field=where, value=f"${name}")
        if "$" in _REFERENCE.sub("", template):
            raise BadInput("a dollar must be written $$", field=where, value=template)
        if part == "service_tier" and not references and template not in SERVICE_TIERS:
            raise BadInput(f"must be one of {', '.join(SERVICE_TIERS)}", field=where, value=template)
        literal = _REFERENCE.sub("", template)
        if not is_settable("org", literal) or "/" in literal or template != template.strip():
            hint = f"a part has at most {MAX_NAME} printable characters and no quote, backslash, slash or outer blank"
            raise BadInput("cannot be a part of a tenant path", field=where, value=template, hint=hint)

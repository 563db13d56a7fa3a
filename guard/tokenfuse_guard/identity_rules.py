"""The centre's identity rules, applied in the request path: from what the gateway proved to the tenant path and service tier.

They come in the signed policy (``identity`` of its body), dated; the version in force at the request's time applies. The meaning
of a rule is ``core.identity_match`` of the centre, and a test holds both equal. Answers are remembered by what decides them.
"""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

RULES_FORMAT = 1
PATH = ("org", "team", "project", "user")
SERVICE_TIERS = ("P0", "P1", "P2")
PLAIN = frozenset(
    (*PATH, "key_id", "key_alias", "service_tier", "requested_model", "model_id", "cluster", "namespace", "gateway", "tag")
)
NAMED = ("tag.", "header.", "metadata.")
LONGEST_VALUE, LONGEST_NAME = 200, 120
MAX_REMEMBERED_ANSWERS = 20_000
REFERENCE = re.compile(r"\$(?:(\$)|(\d{1,2})|\{([A-Za-z0-9_]{1,32})\})")
Path4 = tuple[str, ...]
"""(org, team, project, user); '' for a part that is not known."""
Values = tuple[tuple[str, ...], ...]
"""The values of each of a version's ``fields``, in their order; an absent one is ('',)."""
Made = tuple[tuple[Optional[str], ...], Optional[str]]
"""The parts of a path and the tier that rules set; None where they leave it."""
NOWHERE = ("",) * len(PATH)
Caught = dict[str, str]
Test = Callable[[str], Optional[Caught]]


class UnknownRules(ValueError):
    """Rules with something this guard does not know; none of them are applied."""


class Charge(NamedTuple):
    """Whom a request is charged to."""

    path: Path4
    service_tier: str


class Rule(NamedTuple):
    """``tests`` are (place of the field in the version's ``fields``, test)."""

    tests: tuple[tuple[int, Test], ...]
    sets: tuple[tuple[str, str], ...]
    stops: bool


class RuleVersion:
    """One published set. ``fields`` are those its conditions look at; ``trusts`` says whether the client's word counts."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        _only(raw, ("version", "from_ms", "start", "default", "gateway_sets", "rules"))
        self.version = int(raw["version"])
        self.from_ms = int(raw["from_ms"])
        self._keeps_said = _one_of(raw["start"], ("said", "empty")) == "said"
        self._default = [(PATH.index(_one_of(part, PATH)), str(text)) for part, text in raw["default"].items()]
        self._marked = frozenset(str(field) for field in raw["gateway_sets"])
        self.fields = tuple(sorted({_field(condition[0]) for rule in raw["rules"] for condition in rule["when"]}))
        self._rules = [self._rule(rule) for rule in raw["rules"]]
        self.readers: Any = None
        """How ``call_facts`` reads the values of ``fields``, made with the first request."""
        self._answers: dict[Values, Made] = {}

    def trusts(self, field: str) -> bool:
        """Whether the gateway sets what a client could write there."""
        return field in self._marked or (field.startswith("tag.") and "tag" in self._marked)

    def _rule(self, raw: Mapping[str, Any]) -> Rule:
        _only(raw, ("when", "set", "then"))
        tests = []
        for field, operator, value in raw["when"]:
            tests.append((self.fields.index(field), _test(operator, str(value))))
        sets = tuple((_one_of(part, (*PATH, "service_tier")), str(text)) for part, text in raw["set"].items())
        return Rule(tuple(tests), sets, _one_of(raw.get("then", "stop"), ("stop", "continue")) == "stop")

    def charge(self, said: Path4, service_tier: str, values: Values) -> Charge:
        """Whom a request is charged to whose own path and tier these are."""
        made = self._answers.get(values)
        if made is None:
            if len(self._answers) >= MAX_REMEMBERED_ANSWERS:
                self._answers.clear()
            made = self._answers[values] = self._made(values)
        parts, tier = made
        start = said if self._keeps_said else NOWHERE
        path = [was if part is None else part for was, part in zip(start, parts)]
        for place, text in self._default:
            path[place] = path[place] or text
        return Charge(tuple(path), service_tier if tier is None else tier)

    def _made(self, values: Values) -> Made:
        """What the rules that apply set, the later over the earlier."""
        parts: dict[str, str] = {}
        for rule in self._rules:
            made = _made(rule, values)
            if made is not None:
                parts.update(made)
                if rule.stops:
                    break
        return tuple([parts.get(part) for part in PATH]), parts.get("service_tier")


class IdentityRules:
    """All versions of one policy, and the names of keys whose gateway gives them none. Raises UnknownRules."""

    def __init__(self, raw: Any) -> None:
        try:
            if raw["format"] != RULES_FORMAT:
                raise UnknownRules(f"format {raw['format']!r}")
            _only(raw, ("format", "versions", "names"))
            self.versions = [RuleVersion(version) for version in raw["versions"]]
            self.key_names: dict[str, str] = {str(key): str(name) for key, name in raw["names"].items()}
        except UnknownRules:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, re.error) as error:
            raise UnknownRules(f"{type(error).__name__}: {error}") from error
        self.raw = raw
        fields = {field for version in self.versions for field in version.fields}
        self.headers = tuple(sorted(field[len("header.") :] for field in fields if field.startswith("header.")))
        """Headers that some rule looks at."""
        self._starts_ms = [version.from_ms for version in self.versions]
        if self._starts_ms != sorted(self._starts_ms):
            raise UnknownRules("versions out of order")

    def at(self, now_s: float) -> RuleVersion | None:
        """The version in force; None before the first: the gateway is taken at its word."""
        place = bisect_right(self._starts_ms, now_s * 1000)
        return self.versions[place - 1] if place else None


def _made(rule: Rule, values: Values) -> dict[str, str] | None:
    """What the rule sets; None when a condition does not hold or what it would set cannot be a name or a tier."""
    all_caught: list[Caught] = []
    for place, test in rule.tests:
        caught = None
        for value in values[place]:
            caught = test(value)
            if caught is not None:
                break
        if caught is None:
            return None
        all_caught.append(caught)
    groups = _numbered(all_caught)
    made = {part: _filled(template, groups) for part, template in rule.sets}
    return made if all(_can_be_set(part, text) for part, text in made.items()) else None


def _numbered(all_caught: list[Caught]) -> Caught:
    """Groups by number through all conditions, and by name."""
    groups: Caught = {}
    number = 0
    for caught in all_caught:
        for name, text in caught.items():
            if name.startswith("#"):
                number += 1
                groups[str(number)] = text
            else:
                groups[name] = text
    return groups


def _filled(template: str, groups: Caught) -> str:
    if "$" not in template:
        return template
    return REFERENCE.sub(lambda found: "$" if found[1] else groups[found[2] or found[3]], template).strip()


def _can_be_set(part: str, text: str) -> bool:
    if part == "service_tier":
        return text in SERVICE_TIERS
    return len(text) <= LONGEST_NAME and text.isprintable() and '"' not in text and "\\" not in text


def _test(operator: str, value: str) -> Test:
    if operator == "exact":
        return lambda text: {} if text == value else None
    if operator == "prefix":
        return lambda text: {} if text.startswith(value) else None
    if operator == "glob":
        return _fits(re.compile(fnmatch.translate(re.sub(r"\*+", "*", value))), ())
    if operator == "regex":
        pattern = re.compile(value)
        names = {number: name for name, number in pattern.groupindex.items()}
        return _fits(pattern, tuple(names.get(number, "") for number in range(1, pattern.groups + 1)))
    raise UnknownRules(f"operator {operator!r}")


def _fits(pattern: re.Pattern[str], names: tuple[str, ...]) -> Test:
    """A test that catches the pattern's groups: by number, and by name those that have one."""

    def test(text: str) -> Caught | None:
        found = pattern.fullmatch(text) if 0 < len(text) <= LONGEST_VALUE else None
        if found is None:
            return None
        caught: Caught = {}
        for number, name in enumerate(names, 1):
            caught[f"#{number}"] = found[number] or ""
            if name:
                caught[name] = found[number] or ""
        return caught

    return test


def _field(name: Any) -> str:
    if name not in PLAIN and not str(name).startswith(NAMED):
        raise UnknownRules(f"field {name!r}")
    return str(name)


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UnknownRules(f"{value!r} is none of {', '.join(known)}")
    return str(value)


def _only(raw: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in raw:
        if name not in known:
            raise UnknownRules(f"{name!r}")

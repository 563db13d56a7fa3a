"""Who a request is charged to: ordered rules from what the source said (facts) to a tenant path and a service tier.

A rule applies when all its conditions hold; it sets parts of the path and stops or lets later rules go on. What is still empty at
the end is filled by the set's default. A rule set is one value: it is versioned, dated and published as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from datetime import datetime
from typing import Literal, get_args

from core.usage import MAX_NAME, SERVICE_TIERS, Deployment, TenantPath

Operator = Literal["exact", "prefix", "glob", "regex"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
PATH_PARTS = ("org", "team", "project", "user")
SETTABLE = (*PATH_PARTS, "service_tier")
PLAIN_FIELDS = (
    *PATH_PARTS, "key_id", "key_alias", "service_tier", "requested_model", "model_id", "cluster", "namespace", "gateway", "tag",
)  # fmt: skip
NAMED_FIELDS = ("tag.", "header.", "metadata.")
"""A field that begins so ends with the name of a tag, a header or a metadata key."""
CLIENT_FIELDS = ("user", "tag")
"""Plain fields that hold what the client wrote; so do all ``NAMED_FIELDS``."""
UNASSIGNED = "unassigned"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the source said of a request. ``said`` is its own tenant path, ``more`` holds key_alias, gateway, ``header.NAME`` and
    ``metadata.NAME`` (short labels); ``tags`` are the gateway's request tags. Absent is ''."""

    said: TenantPath = field_of(default_factory=TenantPath)
    service_tier: str = "P1"
    deployment: Deployment = field_of(default_factory=lambda: Deployment("", "", ""))
    requested_model: str = ""
    tags: tuple[str, ...] = ()
    more: Mapping[str, str] = field_of(default_factory=dict)

    def values(self, name: str) -> tuple[str, ...]:
        """The values of a field: one for all but ``tag``, which has as many as there are tags; an absent one is ''."""
        if name == "tag":
            return self.tags or ("",)
        if name.startswith("tag."):
            return (tag_value(self.tags, name.removeprefix("tag.")),)
        if name in (*PATH_PARTS, "key_id"):
            return (str(getattr(self.said, name)),)
        if name in ("cluster", "namespace", "model_id"):
            return (str(getattr(self.deployment, name)),)
        if name in ("service_tier", "requested_model"):
            return (str(getattr(self, name)),)
        return (self.more.get(name, ""),)


def tag_value(tags: Sequence[str], name: str) -> str:
    """The value of the first tag ``name:value`` or ``name=value``, else ''."""
    for text in tags:
        if text.startswith((f"{name}:", f"{name}=")):
            return text[len(name) + 1 :].strip()
    return ""


@dataclass(frozen=True, slots=True)
class Condition:
    """``value`` is a literal, a prefix, a glob (* ? [...]) or a pattern (``core.identity_regex``) that fits the whole value.
    An exact '' holds where the source said nothing; the other operators need something to match."""

    field: str
    operator: Operator
    value: str


@dataclass(frozen=True, slots=True)
class Rule:
    """``sets`` are (part, template): a literal, in which ``$1`` or ``${name}`` stands for what a pattern of this rule caught
    (groups are numbered through all its conditions) and ``$$`` for a dollar."""

    name: str
    when: tuple[Condition, ...]
    sets: tuple[tuple[str, str], ...]
    stops: bool = True


@dataclass(frozen=True, slots=True)
class RuleSet:
    """``keeps_said``: the path starts as the source said it; else it starts empty and only rules and the default fill it (the
    key id always stays). ``default`` fills the parts that are empty at the end. ``gateway_sets``: fields a client could write
    (``CLIENT_FIELDS``) that the gateway sets itself, so that guards may refuse by them."""

    rules: tuple[Rule, ...] = ()
    default: tuple[tuple[str, str], ...] = (("org", UNASSIGNED),)
    keeps_said: bool = True
    gateway_sets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleVersion:
    """A published rule set: in force for records that finish at or after ``valid_from``, until a newer version's time comes."""

    version: int
    valid_from: datetime
    author: str
    reason: str
    created_at: datetime
    rules: RuleSet
    digest: str = ""


def in_force(versions: Sequence[RuleVersion], at: datetime) -> RuleVersion | None:
    """The newest version whose time has come at ``at``; None: no rules, the source is taken at its word."""
    due = [version for version in versions if version.valid_from <= at]
    return max(due, key=lambda version: version.version, default=None)


def reigns(versions: Sequence[RuleVersion]) -> list[RuleVersion]:
    """The versions that are ever in force, each until the next one's ``valid_from``, earliest first."""
    found: list[RuleVersion] = []
    for version in sorted(versions, key=lambda v: (v.valid_from, v.version)):
        if found and version.version < found[-1].version:
            continue
        if found and found[-1].valid_from == version.valid_from:
            found.pop()
        found.append(version)
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """What became of one rule: ``applied``, ``no match`` (``why`` names the condition), ``not a name`` (what it would set cannot
    be a name or a tier, so it does not apply) or ``not reached``."""

    rule: str
    outcome: Literal["applied", "no match", "not a name", "not reached"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """Whom a request is charged to. ``matched``: the rules that applied, in order; ``by_default``: parts the default set."""

    tenant: TenantPath
    service_tier: str
    matched: tuple[str, ...] = ()
    by_default: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


def is_name(text: str) -> bool:
    """Whether a text can be a part of a tenant path."""
    return len(text) <= MAX_NAME and text.isprintable() and '"' not in text and "\\" not in text


def is_settable(part: str, text: str) -> bool:
    """Whether ``part`` can be set to ``text``."""
    return text in SERVICE_TIERS if part == "service_tier" else is_name(text)

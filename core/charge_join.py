"""Who a charge belongs to: ordered rules that name their reason. What is only likely is a suggestion and never enters the ledger.

``ingest.billing.join_sql`` reads whole deliveries by what ``resolve`` says of each resource.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Literal, get_args

MatchRule = Literal["person", "instance id", "provider id", "node tag", "name"]
MATCH_RULES: tuple[MatchRule, ...] = get_args(MatchRule)
"""In the order in which they are tried; the first that names one machine decides."""

Reason = Literal["no machine", "several machines", "several resources", "no time of use", "names no machine", "unused", "ignored"]
REASONS: tuple[Reason, ...] = get_args(Reason)
REASON_WORDS: Mapping[Reason, str] = {
    "no machine": "no machine of the inventory has this id or name",
    "several machines": "several machines of the inventory fit it",
    "several resources": "other resources bear the same name at the same time",
    "no time of use": "the lines do not say when",
    "names no machine": "the lines name neither a resource nor a node",
    "unused": "capacity reserved and not used: a person says whose it is",
    "ignored": "a person said it is none of ours",
}

JOINED = ("gpu", "other_compute", "unused_reservation")
"""Buckets that are machines' (other_compute: where the line has instance hours). Each such charge is a machine's or unmatched."""
ADJUSTING = ("correction", "credit", "refund", "discount", "adjustment")
"""Buckets that count for a machine where the line names its resource; else they are the account's."""

NODE_TAGS = ("awseksnode",)
HOST_TAGS = ("kubernetesiohostname", "k8siohostname", "labelkubernetesiohostname", "googk8snodename")
NAME_TAGS = ("name",)

_EVER = datetime.min.replace(tzinfo=UTC)
_AZURE = re.compile(r"^(?:azure://)?(/subscriptions/.+)$", re.IGNORECASE)
_GCE = re.compile(r"^(?:gce://|.*?projects/)([^/]+)/(?:zones/)?([^/]+)/(?:instances/)?([^/]+)$", re.IGNORECASE)
_ARN = re.compile(r"^arn:[^:]*:ec2:[^:]*:[^:]*:instance/(.+)$", re.IGNORECASE)
_INSTANCE = re.compile(r"(?:^|[/.])((?:i|mi|ins)-[0-9a-z]+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A machine's name in the inventory."""

    cluster: str
    node: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.node}"


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of a node in ``[since, until)``. Empty: not known. ``gpus``: how many of each type serve."""

    node: Node
    since: datetime
    until: datetime | None = None
    provider_id: str = ""
    instance_type: str = ""
    gpus: tuple[tuple[str, int], ...] = ()

    def meets(self, first: datetime, last: datetime) -> bool:
        return self.since < last and (self.until is None or self.until > first)


@dataclass(frozen=True, slots=True)
class PersonMatch:
    """A person's word on a resource in ``[valid_from, valid_to)`` (None: open). ``node`` None: ignore it."""

    id: int
    resource_id: str
    node: Node | None
    valid_from: datetime | None = None
    valid_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A resource of a bill. ``names``: (rule, value) of its tags. ``tags``: their text where no resource is named, else ''."""

    provider: str
    resource_id: str
    tags: str
    instance_type: str
    names: tuple[tuple[MatchRule, str], ...]
    first: datetime
    last: datetime
    """End of its last charge, not included."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The resource's charges in the hours of ``[since, until)`` (None: open) are the node's; node None: nobody's, on purpose."""

    node: Node | None
    matched_by: MatchRule
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the rules say of one resource. ``reason``: of the hours no assignment covers. Assignments do not overlap."""

    assignments: tuple[Assignment, ...] = ()
    reason: Reason = "no machine"
    candidates: tuple[Node, ...] = ()


def identity_key(text: str) -> str:
    """One form for the ways a cloud writes a machine's id, '' for none.

    ``i-0abc`` = ``arn:aws:ec2:…:instance/i-0abc`` = ``aws:///us-east-1a/i-0abc``; Azure's resource ids in any case, with or
    without ``azure://``; ``gce://p/z/n`` = ``//compute.googleapis.com/projects/p/zones/z/instances/n``.
    """
    plain = text.strip()
    azure, arn, instance = _AZURE.match(plain), _ARN.match(plain), _INSTANCE.search(plain)
    if azure:
        return azure[1].casefold().rstrip("/")
    if arn:
        return arn[1].casefold()
    if plain.startswith(("gce://", "//compute.googleapis.com/", "projects/")):
        google = _GCE.match(plain)
        return "/".join(google.groups()).casefold() if google else plain.casefold()
    if instance and ("://" in plain or "/" not in plain):
        return instance[1].casefold()
    return plain.casefold()


def names_in_tags(tags: Mapping[str, object], own: Iterable[str] = ()) -> tuple[tuple[MatchRule, str], ...]:
    """Names of the machine in a charge's tags: of its Kubernetes node (rule "node tag"), else hostname, the tags named in ``own``
    (settings) and ``Name`` (rule "name"). Keys are compared by letters and digits, without ``user:``."""
    found = {_tag_key(key): str(value).strip() for key, value in tags.items() if value}
    given = [("node tag", key) for key in NODE_TAGS]
    given += [("name", key) for key in (*HOST_TAGS, *map(_tag_key, own), *NAME_TAGS)]
    names = [(rule, found[key]) for rule, key in given if found.get(key)]
    return tuple(dict.fromkeys(names))  # type: ignore[arg-type]


def _tag_key(key: str) -> str:
    bare = re.sub(r"^user[:_]", "", key.casefold())
    return "".join(sign for sign in bare if sign.isalnum())


class Inventory:
    """Machines by every name they have."""

    def __init__(self, machines: Iterable[Machine], matches: Iterable[PersonMatch] = ()) -> None:
        self.machines = tuple(machines)
        self._by_node: dict[str, list[Machine]] = {}
        self._by_id: dict[str, list[Machine]] = {}
        self._matches: dict[str, list[PersonMatch]] = {}
        for machine in self.machines:
            self._by_node.setdefault(machine.node.node.casefold(), []).append(machine)
            if machine.provider_id:
                self._by_id.setdefault(identity_key(machine.provider_id), []).append(machine)
        for match in matches:
            self._matches.setdefault(identity_key(match.resource_id), []).append(match)

    def said(self, subject: Subject) -> list[PersonMatch]:
        return self._matches.get(identity_key(subject.resource_id), []) if subject.resource_id else []

    def found(self, subject: Subject, rule: MatchRule) -> list[Machine]:
        """Machines that ``rule`` names for the subject."""
        key = identity_key(subject.resource_id) if subject.resource_id else ""
        if rule == "instance id":
            return self._by_node.get(key, []) if key else []
        if rule == "provider id":
            return self._by_id.get(key, []) if key else []
        values = {value.casefold() for named, value in subject.names if named == rule}
        if rule == "name" and subject.resource_id:
            values.add(subject.resource_id.rstrip("/").rpartition("/")[2].casefold())
        return [m for value in sorted(values) for m in self._by_node.get(value, []) if not self._is_other(m, subject, key)]

    def _is_other(self, machine: Machine, subject: Subject, key: str) -> bool:
        """The node is known, at that time, as another resource than the subject: a name that was given again."""
        known = [m for m in self._by_node.get(machine.node.node.casefold(), []) if m.node == machine.node and m.provider_id]
        here = [m for m in known if m.meets(subject.first, subject.last)]
        return bool(key and here) and all(identity_key(m.provider_id) != key for m in here)


def resolve(subjects: Sequence[Subject], inventory: Inventory) -> dict[Subject, Resolution]:
    """What belongs to whom: a person's match first, then the rules in order. Two machines that fit: neither. A name that several
    resources bear at one time decides for none of them."""
    found = {subject: _automatic(subject, inventory) for subject in subjects}
    for subject in _rivals(found):
        nodes = tuple(a.node for a in found[subject].assignments if a.node)
        found[subject] = Resolution(reason="several resources", candidates=nodes)
    return {subject: _with_person(inventory.said(subject), found[subject]) for subject in subjects}


def _automatic(subject: Subject, inventory: Inventory) -> Resolution:
    for rule in MATCH_RULES[1:]:
        machines = inventory.found(subject, rule)
        nodes = sorted({m.node for m in machines})
        if len(nodes) > 1:
            nodes = sorted({m.node for m in machines if m.meets(subject.first, subject.last)}) or nodes
        if len(nodes) == 1:
            return Resolution((Assignment(nodes[0], rule),))
        if nodes:
            return Resolution(reason="several machines", candidates=tuple(nodes))
    return Resolution(reason="no machine" if subject.resource_id or subject.names else "names no machine")


def _rivals(found: Mapping[Subject, Resolution]) -> list[Subject]:
    """Subjects that claim, by name alone, a node another one claims at the same time."""
    claims: dict[Node, list[tuple[Subject, MatchRule]]] = {}
    for subject, resolution in found.items():
        for one in resolution.assignments:
            if one.node:
                claims.setdefault(one.node, []).append((subject, one.matched_by))
    rivals = []
    for claimants in claims.values():
        for subject, rule in claimants:
            others = (s for s, _ in claimants if s.resource_id != subject.resource_id)
            if rule == "name" and any(s.first < subject.last and subject.first < s.last for s in others):
                rivals.append(subject)
    return rivals


def _with_person(said: Sequence[PersonMatch], rest: Resolution) -> Resolution:
    """The person's matches, and the rules' answer for the time they leave open."""
    if not said:
        return rest
    ordered = sorted(said, key=lambda match: (match.valid_from or _EVER, match.id))
    own = [Assignment(match.node, "person", match.valid_from, match.valid_to) for match in ordered]
    gaps: list[tuple[datetime | None, datetime | None]] = []
    if own[0].since is not None:
        gaps.append((None, own[0].since))
    gaps += [(a.until, b.since) for a, b in pairwise(own) if a.until is not None and b.since is not None and a.until < b.since]
    if own[-1].until is not None:
        gaps.append((own[-1].until, None))
    filled = [replace(one, since=since, until=until) for since, until in gaps for one in rest.assignments]
    return replace(rest, assignments=(*own, *filled))


def overlaps(one: PersonMatch, other: PersonMatch) -> bool:
    """Whether two words on the same resource speak of the same time."""
    starts_before = one.valid_from is None or other.valid_to is None or one.valid_from < other.valid_to
    ends_after = one.valid_to is None or other.valid_from is None or other.valid_from < one.valid_to
    return identity_key(one.resource_id) == identity_key(other.resource_id) and starts_before and ends_after


Shape = Callable[[str, str], tuple[str, int] | None]
"""(provider, instance type) -> (GPU type, GPUs), None where it is not known."""

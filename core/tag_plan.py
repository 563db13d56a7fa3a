"""Which cost-allocation tags a cloud's resources should carry so that its console groups by our names, and what to change.

Pure. A machine that serves one organisation or team is tagged with it; one that serves several is not (its cost is shared, and
only the ledger knows how), and says its deployment alone. Limits are AWS's (Tagging best practices; EC2 and Tag Editor).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.errors import BadInput
from core.usage import Deployment

MOST_TAGS = 50
"""User tags a resource may have; those of AWS (``aws:``) do not count."""
MOST_KEY, MOST_VALUE = 128, 256
RESERVED = "aws:"
_ALLOWED = re.compile(r"[\w\s+\-=.:/@]*")
NAMES = ("org", "team", "deployment")


@dataclass(frozen=True, slots=True)
class TagKeys:
    """The keys written, by what they name: ``PREFIXorg``, ``PREFIXteam``, ``PREFIXdeployment``."""

    prefix: str = "tokenfuse:"

    def __post_init__(self) -> None:
        for name in NAMES:
            fault = key_fault(self.prefix + name)
            if fault:
                raise BadInput(fault, field="aws_tag_prefix", value=self.prefix, hint='write for example "tokenfuse:"')

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self.prefix + name for name in NAMES)


@dataclass(frozen=True, slots=True)
class Machine:
    """A billed machine and whom it served: ``resource`` as the bill names it (an instance id or an ARN)."""

    resource: str
    account: str
    region: str
    node: str = ""
    deployments: frozenset[Deployment] = frozenset()
    teams: frozenset[tuple[str, str]] = frozenset()
    """(organisation, team) of every tenant served; '' is none."""


@dataclass(frozen=True, slots=True)
class TagChange:
    """What one resource needs. ``put`` are keys to set, ``drop`` keys of ours to take away; ``blocked`` says why nothing is done.
    ``notes`` say which tag it gets not, and why."""

    arn: str
    account: str
    region: str
    node: str
    put: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blocked: str = ""

    @property
    def is_change(self) -> bool:
        return not self.blocked and bool(self.put or self.drop)


@dataclass(frozen=True, slots=True)
class Batch:
    """One call: up to so many resources of a region that get the same tags, or lose the same keys."""

    region: str
    arns: tuple[str, ...]
    put: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()


def partition_of(region: str) -> str:
    """The partition of a region's name."""
    starts = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
    return next((partition for start, partition in starts.items() if region.startswith(start)), "aws")


def arn_of(machine: Machine) -> str | None:
    """The resource's ARN; None for one whose kind its name does not tell."""
    if machine.resource.startswith("arn:"):
        return machine.resource
    if not re.fullmatch(r"i-[0-9a-f]{8,17}", machine.resource) or not (machine.account and machine.region):
        return None
    return f"arn:{partition_of(machine.region)}:ec2:{machine.region}:{machine.account}:instance/{machine.resource}"


def wanted_tags(machine: Machine, keys: TagKeys) -> tuple[dict[str, str], tuple[str, ...]]:
    """(tags, notes) of one machine. A value AWS would refuse is left out and noted, never altered."""
    orgs = {org for org, _ in machine.teams}
    said: dict[str, str] = {}
    notes: list[str] = []
    for name, values in (
        ("org", orgs),
        ("team", {team for _, team in machine.teams} if len(machine.teams) == 1 else machine.teams),
        ("deployment", {f"{d.cluster}/{d.namespace}/{d.model_id}" for d in machine.deployments}),
    ):
        if len(values) > 1:
            notes.append(f"no {name}: it serves {len(values)}")
        for value in values if len(values) == 1 else ():
            fault = value_fault(str(value))
            if fault:
                notes.append(f"no {name}: {str(value)!r} {fault}")
            elif value:
                said[keys.prefix + name] = str(value)
    return said, tuple(notes)


def plan_tags(machines: Iterable[Machine], there: Mapping[str, Mapping[str, str]], keys: TagKeys) -> tuple[TagChange, ...]:
    """The changes, by ARN. ``there``: the tags each ARN has; an ARN that is not in it has none."""
    merged: dict[str, Machine] = {}
    unknown: list[TagChange] = []
    for machine in machines:
        arn = arn_of(machine)
        if arn is None:
            reason = "is no instance id or ARN, or its bill names no account and region"
            unknown.append(TagChange(machine.resource, machine.account, machine.region, machine.node, blocked=reason))
        else:
            merged[arn] = _joined(merged[arn], machine) if arn in merged else machine
    return (*(_change(arn, merged[arn], there.get(arn, {}), keys) for arn in sorted(merged)), *unknown)


def _joined(one: Machine, other: Machine) -> Machine:
    """A resource billed under two nodes' names served both."""
    return Machine(one.resource, one.account, one.region, one.node, one.deployments | other.deployments, one.teams | other.teams)


def _change(arn: str, machine: Machine, there: Mapping[str, str], keys: TagKeys) -> TagChange:
    wanted, notes = wanted_tags(machine, keys)
    put = {key: value for key, value in wanted.items() if there.get(key) != value}
    drop = tuple(key for key in keys.all if key in there and key not in wanted)
    after = {key for key in there if not key.startswith(RESERVED)} - set(drop) | set(wanted)
    blocked = f"it would have {len(after)} tags, and {MOST_TAGS} are allowed" if len(after) > MOST_TAGS and put else ""
    return TagChange(arn, machine.account, machine.region, machine.node, put, drop, notes, blocked)


def batches(changes: Sequence[TagChange], most: int) -> tuple[Batch, ...]:
    """The calls that make the changes, keys taken away first; at most ``most`` resources a call."""
    groups: dict[tuple[bool, str, tuple[tuple[str, str], ...], tuple[str, ...]], list[str]] = {}
    for change in changes:
        if change.is_change and change.drop:
            groups.setdefault((False, change.region, (), change.drop), []).append(change.arn)
        if change.is_change and change.put:
            groups.setdefault((True, change.region, tuple(sorted(change.put.items())), ()), []).append(change.arn)
    return tuple(
        Batch(region, tuple(arns[first : first + most]), dict(put), drop)
        for (_, region, put, drop), arns in sorted(groups.items())
        for first in range(0, len(arns), most)
    )


def key_fault(key: str) -> str:
    """Why AWS would refuse a tag key, '' when it would not."""
    if not key or len(key) > MOST_KEY:
        return f"is empty or longer than {MOST_KEY} characters"
    if key.casefold().startswith(RESERVED):
        return f"begins with {RESERVED}, which is AWS's own"
    return "" if _ALLOWED.fullmatch(key) else "has a character no tag may have"


def value_fault(value: str) -> str:
    """Why AWS would refuse a tag value, '' when it would not."""
    if len(value) > MOST_VALUE:
        return f"is longer than {MOST_VALUE} characters"
    return "" if _ALLOWED.fullmatch(value) else "has a character no tag may have"

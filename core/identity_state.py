"""All rule versions and key names of one moment, ready to judge records of any time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from core.identity import Facts, Resolved, RuleSet, RuleVersion, reigns
from core.identity_match import Matcher
from core.windows import epoch_ms

Names = tuple[tuple[datetime, str], ...]
"""What a thing was called, each from its time on, earliest first; the first name holds for all time before it too."""


AliasKind = Literal["key", "team", "user", "org"]


@dataclass(frozen=True, slots=True)
class Alias:
    """What a gateway calls a key (by its hash), team, user or organisation, and the ids of what it belongs to ('' for none)."""

    kind: AliasKind
    external_id: str
    alias: str
    team_id: str = ""
    user_id: str = ""
    org_id: str = ""


@dataclass(frozen=True, slots=True)
class IdentityState:
    """``revision`` changes whenever anything of it does."""

    revision: str = ""
    versions: tuple[RuleVersion, ...] = ()
    key_names: Mapping[str, Names] = field(default_factory=dict)


def name_at(names: Names, at_ms: int) -> str:
    """The name at an instant; '' when there is none."""
    found = ""
    for since, name in names:
        if found and epoch_ms(since) > at_ms:
            break
        found = name
    return found


class Judge:
    """Resolves facts by the rules and key names of the time. Time is cut into periods in which neither changes: a caller may
    remember an answer by (period, facts)."""

    def __init__(self, state: IdentityState) -> None:
        self._key_names = state.key_names
        self._reigns = reigns(state.versions)
        self._matchers = {version.version: Matcher(version.rules) for version in self._reigns}
        renamed = {epoch_ms(since) for names in state.key_names.values() for since, _ in names[1:]}
        starts = {epoch_ms(version.valid_from) for version in self._reigns}
        self.starts = sorted(starts | renamed) if starts else []
        """Where the periods begin, in ms since the epoch; before the first is period 0."""

    @property
    def has_rules(self) -> bool:
        return bool(self._matchers)

    @property
    def fields(self) -> frozenset[str]:
        """Fields that a rule of any version looks at."""
        return frozenset[str]().union(*(matcher.fields for matcher in self._matchers.values()))

    def period(self, at_ms: int) -> int:
        """The period of an instant (ms since the epoch)."""
        return bisect_right(self.starts, at_ms)

    def version_of(self, period: int) -> int | None:
        """The version in force in a period; None before the first."""
        start_ms = self.starts[period - 1] if period else None
        found = [v.version for v in self._reigns if start_ms is not None and epoch_ms(v.valid_from) <= start_ms]
        return found[-1] if found else None

    def resolve(self, facts: Facts, period: int) -> Resolved | None:
        """Whom the request is charged to; None where no rules were in force: the source is taken at its word."""
        version = self.version_of(period)
        if version is None:
            return None
        return self._matchers[version].resolve(named(facts, self._key_names, self.starts[period - 1]))


def named(facts: Facts, key_names: Mapping[str, Names], at_ms: int) -> Facts:
    """The facts with the key's known name of that time, where the source itself gave none."""
    names = key_names.get(facts.said.key_id)
    if not names or facts.more.get("key_alias"):
        return facts
    return replace(facts, more={**facts.more, "key_alias": name_at(names, at_ms)})


def judge_of(rules: RuleSet, key_names: Mapping[str, Names], since: datetime) -> Judge:
    """A judge that holds one unpublished set in force from ``since`` on, as a preview does."""
    version = RuleVersion(1, since, "", "", since, rules)
    return Judge(IdentityState("preview", (version,), key_names))


def revision_of(parts: Sequence[object]) -> str:
    """A revision made of whatever tells states apart."""
    return "/".join(map(str, parts))

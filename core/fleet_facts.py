"""What is known of one engine or gateway without any history: parameters as they were read, with the place each was read in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Literal

SubjectKind = Literal["engine", "gateway"]
StreamUsage = Literal["always", "not always", "unknown", "no gateway"]
ON, OFF = "true", "false"
MOST = Decimal(10) ** 15
COULD_NOT = " could not be read"


@dataclass(frozen=True, slots=True)
class Seen:
    """A value as it was written, and where."""

    value: str
    where: str


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine address. ``seen`` holds each parameter under vLLM's name, from the first source that told it; switches are
    ``true`` or ``false``.

    ``numbers`` are canonical counters since the process started and gauges, summed over the ``cores`` of the page; absent: the
    page does not show it. ``silent`` says of each source that told nothing why. ``down``: why its page could not be read, empty
    when it was. ``software`` is the family of the page, empty without one. ``gateway_usage``: whether the gateways in front ask
    every stream for its usage. ``gpu`` and ``gpu_count`` are what is paid for, as declared or found.
    """

    target: str
    down: str = ""
    software: str = ""
    page: str = ""
    cores: int = 0
    models: Sequence[str] = ()
    has_start: bool = False
    seen: Mapping[str, Seen] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    gpu: str = ""
    gpu_count: int = 0
    gateway_usage: StreamUsage = "no gateway"

    def whole(self, name: str) -> int | None:
        """A parameter that is a whole number from 1; None where it is not known."""
        found = self.seen.get(name)
        digits = found is not None and found.value.isascii() and found.value.isdigit() and len(found.value) < 16
        return int(found.value) or None if found is not None and digits else None

    def number(self, name: str) -> Decimal | None:
        found = self.seen.get(name)
        try:
            value = Decimal(found.value) if found is not None else None
        except InvalidOperation:
            return None
        return value if value is not None and value.is_finite() and 0 <= value < MOST else None

    def switch(self, name: str) -> bool | None:
        found = self.seen.get(name)
        return {ON: True, OFF: False}.get(found.value) if found is not None else None


@dataclass(frozen=True, slots=True)
class GatewayModel:
    """One deployment a gateway routes to. ``asks_usage``: its parameters hold ``stream_options``."""

    name: str
    model: str
    api_base: str = ""
    self_hosted: bool = False
    asks_usage: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True)
class Callback:
    """A callback of a gateway, for ``on``: success, failure, or success_and_failure; ``endpoint`` where it posts to, if told."""

    name: str
    on: str
    where: str
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class GatewayFacts:
    """One LiteLLM proxy. ``callbacks`` and ``models`` None: could not be read. ``engines`` are the addresses (HOST:PORT) and
    ``served`` the models of the engines that are read; ``unasked``: how many engines' models are not known."""

    url: str
    down: str = ""
    seen: Mapping[str, Seen] = field(default_factory=dict)
    callbacks: Sequence[Callback] | None = None
    models: Sequence[GatewayModel] | None = None
    engines: frozenset[str] = frozenset()
    served: frozenset[str] = frozenset()
    unasked: int = 0
    silent: Mapping[str, str] = field(default_factory=dict)

    def switch(self, name: str) -> bool | None:
        found = self.seen.get(name)
        return {ON: True, OFF: False}.get(found.value) if found is not None else None


Verdict = Literal["pass", "fail", "unknown"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One rule's answer. ``value`` fills the check's fix line."""

    verdict: Verdict
    reason: str
    seen: str = ""
    where: str = ""
    value: str = ""


def first_seen(told: Sequence[Mapping[str, Seen]]) -> dict[str, Seen]:
    """Each parameter from the first source that tells it."""
    found: dict[str, Seen] = {}
    for source in told:
        found = {**source, **found}
    return found


def unknown(facts: EngineFacts | GatewayFacts, what: str) -> Judgement:
    """``what`` could not be read, and why each source told nothing."""
    why = "; ".join(f"{source}: {reason}" for source, reason in facts.silent.items())
    return Judgement("unknown", f"{what}{COULD_NOT}{f' ({why})' if why else ''}")

"""The seams: what the rules need of the world, each a Protocol of one to three methods in core values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

Topic = Literal["usage", "engine", "quarantine", "fault", "counter"]
TOPICS: tuple[Topic, ...] = ("usage", "engine", "quarantine", "fault", "counter")


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Lines to append together. ``lines`` are canonical CSV lines without line breaks (the columns the job reads);
    ``records`` are the full records as JSON bytes, one per line in the same order (for the archive), or empty for a topic
    that has none."""

    lines: Sequence[str]
    records: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Ack:
    """Proof that a batch is durable: the segment and the number of its first line."""

    topic: str
    segment: str
    first_line: int
    lines: int


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line read back. ``offset`` is opaque and ordered within a topic; pass the last one to read on."""

    offset: str
    line: str
    record: bytes | None = None


class EventLog(Protocol):
    """Durable, append-only, replayable. Backends: spool, kafka."""

    def append(self, topic: Topic, batch: LogBatch) -> Ack:
        """Return once the batch is on disk. Raises DiskFull (retryable) before the disk is full; then nothing was written."""
        ...

    def read(self, topic: Topic, after: str | None = None, limit: int = 10_000) -> Iterator[LogLine]:
        """Lines in order, those after ``after``."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Page:
    """One fetched metrics page."""

    target: str
    at: datetime
    body: bytes
    content_type: str = "text/plain; version=0.0.4"


class PageSource(Protocol):
    """Where metrics pages come from: live targets, or a folder of recorded scrapes."""

    def pages(self) -> Iterator[Page]: ...


@dataclass(frozen=True, slots=True)
class FoundTarget:
    """One engine's metrics address and the capacity behind it. Empty, 0 or None: not known; ``unknown`` says why the GPUs are
    not. ``since``: when its GPUs were taken, where the source tells. ``kind`` gpu: a GPU exporter, which is not paid for.
    ``provider_id``, ``instance_type``: by what id and as what type the cloud bills its node."""

    url: str
    gpu: str = ""
    count: int = 0
    node: str = ""
    cluster: str = ""
    namespace: str = ""
    model_id: str = ""
    since: datetime | None = None
    unknown: str = ""
    kind: Literal["engine", "gpu"] = "engine"
    provider_id: str = ""
    instance_type: str = ""


class TargetSource(Protocol):
    """Where engines are found: settings, files, DNS, Prometheus, Kubernetes."""

    def targets(self) -> Sequence[FoundTarget]:
        """Every target there is now. Raises Unavailable, Refused or BadInput when that cannot be told; what was known stays."""
        ...


@dataclass(frozen=True, slots=True)
class Effect:
    """One outbox entry to deliver. ``key`` is its idempotency key."""

    key: str
    kind: str
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of an effect: delivered, or try again after ``retry_after_s``, or permanently failed."""

    outcome: Literal["delivered", "retry", "failed"]
    detail: str = ""
    retry_after_s: int = 0


class Effector(Protocol):
    """Carries out effects of one kind; applying a key twice acts once."""

    def deliver(self, effect: Effect) -> Delivery: ...


@dataclass(frozen=True, slots=True)
class FleetReading:
    """A switch as it stands. ``value``: what can be set, by name, as plain JSON values. ``facts``: what is told besides, such as
    how many replicas run (``size``) and the smallest number allowed (``least``)."""

    value: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)


class Actuator(Protocol):
    """One kind of switch outside. Plan and verify are a ``read``, apply and revert a ``write``: there is one way to look and one
    to change. Raises Unavailable (try again), Conflict (what stood there is gone), or BadInput, NotFound, Refused (for good)."""

    def read(self, address: str) -> FleetReading:
        """What stands there now. Changes nothing."""
        ...

    def wanted(self, move: str, options: Mapping[str, Any], reading: FleetReading) -> Mapping[str, Any]:
        """What ``move`` would set, given a reading; pure. Raises Refused where it cannot be done."""
        ...

    def write(self, address: str, seen: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        """Set ``value``, if ``seen`` still stands there; setting what stands there already does nothing. Raises Conflict."""
        ...

    def commands(self, address: str, value: Mapping[str, Any]) -> tuple[str, ...]:
        """Plain lines by which a person sets ``value`` without us; no secret in them."""
        ...

"""The audit trail's hash chain: each record's hash covers its content and the hash before it, so an edit anywhere shows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from core.policy import canonical_json
from core.windows import require_utc

GENESIS = "0" * 64
"""The ``prev_hash`` of the first record."""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One thing somebody did. ``seq`` counts from 1 without gaps; ``detail`` is JSON without floats."""

    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    detail: Mapping[str, Any] = field(default_factory=dict)
    prev_hash: str = GENESIS
    hash: str = ""


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """Whether the chain is whole; else the first broken record and why. ``records`` were read and found good before it.

    A cut-off tail cannot be seen from inside: keep ``last_hash`` elsewhere and pass it as ``anchor`` to check for it.
    """

    intact: bool
    records: int
    last_hash: str = GENESIS
    broken_seq: int | None = None
    reason: str = ""


def record_hash(record: AuditRecord) -> str:
    """Hex SHA-256 over prev_hash and the canonical JSON of the record's content (time to the microsecond)."""
    content = {
        "seq": record.seq,
        "at": require_utc(record.at).isoformat(timespec="microseconds"),
        "actor": record.actor,
        "action": record.action,
        "subject": record.subject,
        "detail": record.detail,
    }
    return hashlib.sha256((record.prev_hash + canonical_json(content)).encode()).hexdigest()


def chain(
    last: AuditRecord | None, at: datetime, actor: str, action: str, subject: str, detail: Mapping[str, Any]
) -> AuditRecord:
    """The record that follows ``last`` (None: the first)."""
    seq, previous = (1, GENESIS) if last is None else (last.seq + 1, last.hash)
    draft = AuditRecord(seq, at, actor, action, subject, detail, previous)
    return AuditRecord(seq, at, actor, action, subject, detail, previous, record_hash(draft))


def verify_records(records: Iterable[AuditRecord], anchor: str | None = None) -> AuditVerdict:
    """Walk the whole chain in order of ``seq``. ``anchor`` is a hash noted earlier that must occur in it."""
    expected, previous, seen = 1, GENESIS, anchor is None
    for record in records:
        if record.seq != expected:
            return AuditVerdict(False, expected - 1, previous, expected, f"record {expected} is missing")
        if record.prev_hash != previous:
            return AuditVerdict(False, expected - 1, previous, expected, "does not follow the record before it")
        if record.hash != record_hash(record):
            return AuditVerdict(False, expected - 1, previous, expected, "content does not fit its hash")
        previous, expected = record.hash, expected + 1
        seen = seen or previous == anchor
    if not seen:
        return AuditVerdict(False, expected - 1, previous, expected, "the noted hash does not occur: records were cut off")
    return AuditVerdict(True, expected - 1, previous)

"""Published policies: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, null, select, text

from core.policy import OnExpiry, PolicyBody, PolicyEntry, digest, entry_from_json
from models.tables_decide import PolicyVersionRow

PUBLISH_LOCK = 7360703


@dataclass(frozen=True, slots=True)
class PublishedPolicy:
    """What the centre last told guards. Each guard's copy is made and signed on the way out."""

    version: int
    issued_at: datetime
    expires_at: datetime
    entries: tuple[PolicyEntry, ...]
    digest: str
    identity: Mapping[str, Any] | None = None

    def body_for(self, guard: str, on_expiry: OnExpiry) -> PolicyBody:
        """The body for one guard; sign its ``canonical()`` text with ``core.policy.sign``."""
        return PolicyBody(self.version, self.issued_at, self.expires_at, guard, on_expiry, self.entries, self.identity)


class PolicyHead(NamedTuple):
    """What tells whether a policy must be published anew."""

    version: int
    issued_at: datetime
    digest: str


def policy_head(connection: Connection) -> PolicyHead | None:
    """Of the newest policy; None before the first."""
    p = PolicyVersionRow
    row = connection.execute(select(p.version, p.issued_at, p.digest).order_by(p.version.desc()).limit(1)).one_or_none()
    return None if row is None else PolicyHead(*row)


def lock_publishing(connection: Connection) -> None:
    """Wait for other publishers until this transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": PUBLISH_LOCK})


def latest_policy(connection: Connection) -> PublishedPolicy | None:
    """The newest published policy; None before the control loop ran for the first time."""
    p = PolicyVersionRow
    row = connection.execute(select(p.__table__).order_by(p.version.desc()).limit(1)).one_or_none()
    return None if row is None else _published(row)


def _published(row: Any) -> PublishedPolicy:
    entries = tuple(entry_from_json(entry) for entry in row.entries)
    return PublishedPolicy(row.version, row.issued_at, row.expires_at, entries, row.digest, row.identity)


def add_policy(
    connection: Connection, version: int, issued_at: datetime, expires_at: datetime, entries: Sequence[PolicyEntry],
    identity: Mapping[str, Any] | None = None,
) -> PublishedPolicy:  # fmt: skip
    """Store the next version. Of versions that say the same in a row only the first and the newest are kept."""
    published = PublishedPolicy(version, issued_at, expires_at, tuple(entries), digest(entries, identity), identity)
    p = PolicyVersionRow
    last = connection.execute(select(p.version, p.digest).order_by(p.version.desc()).limit(2)).all()
    if len(last) == 2 and {row.digest for row in last} == {published.digest}:
        connection.execute(delete(p).where(p.version == last[0].version))
    row = {
        "version": version, "issued_at": issued_at, "expires_at": expires_at, "digest": published.digest,
        "entries": [entry.as_json() for entry in entries], "identity": null() if identity is None else identity,
    }  # fmt: skip
    connection.execute(insert(p).values(row))
    return published

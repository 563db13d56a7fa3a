"""Identity rule sets and gateway names: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, func, insert, select, text, update

from core.identity import RuleSet, RuleVersion
from core.identity_codec import decode_rules, digest_of, encode_rules
from core.identity_state import Alias, IdentityState, Names, revision_of
from models.database import transaction
from models.tables_identity import IdentityAliasRow, IdentityRuleSetRow

RULES_LOCK = 7360741


@dataclass(frozen=True, slots=True)
class StoredAlias:
    """``valid_to`` None: it is called so now."""

    source: str
    alias: Alias
    valid_from: datetime
    valid_to: datetime | None


@dataclass(frozen=True, slots=True)
class AliasChanges:
    """What an import did: rows of things never seen, of things with a new name or owner, and of things it found as they were."""

    new: int
    changed: int
    same: int


def rule_versions(connection: Connection) -> list[RuleVersion]:
    """Every published version, oldest first."""
    rows = connection.execute(select(IdentityRuleSetRow.__table__).order_by(IdentityRuleSetRow.version))
    return [RuleVersion(r.version, r.valid_from, r.author, r.reason, r.created_at, decode_rules(r.rules), r.digest) for r in rows]


def lock_rules(connection: Connection) -> int:
    """Make other publishers wait until this transaction ends; returns the newest version's number (0: none)."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": RULES_LOCK})
    return connection.execute(select(func.max(IdentityRuleSetRow.version))).scalar() or 0


def put_rules(
    connection: Connection, version: int, rules: RuleSet, valid_from: datetime, author: str, reason: str, now: datetime
) -> RuleVersion:
    """Write a version; the caller holds ``lock_rules``."""
    made = RuleVersion(version, valid_from, author, reason, now, rules, digest_of(rules))
    row = {
        "version": version, "valid_from": valid_from, "created_at": now, "author": author, "reason": reason,
        "rules": encode_rules(rules), "digest": made.digest,
    }  # fmt: skip
    connection.execute(insert(IdentityRuleSetRow).values(row))
    return made


def newer_state(connection: Connection, held: str) -> IdentityState | None:
    """All versions and key names, or None when ``held`` is the newest revision."""
    a = IdentityAliasRow
    newest = connection.execute(select(func.max(IdentityRuleSetRow.version))).scalar()
    marks = connection.execute(select(func.max(a.id), func.max(a.valid_to)).where(a.kind == "key")).one()
    revision = revision_of((newest, *marks))
    if revision == held:
        return None
    return IdentityState(revision, tuple(rule_versions(connection)), key_names(connection))


class StoredIdentity:
    """Reads the state of a database: given the revision held, the newer state or None. Raises Unavailable when it is away."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, held: str) -> IdentityState | None:
        with transaction(self._engine) as connection:
            return newer_state(connection, held)


def key_names(connection: Connection) -> dict[str, Names]:
    """Every name each key ever had, earliest first."""
    a = IdentityAliasRow
    query = select(a.external_id, a.valid_from, a.alias).where(a.kind == "key").order_by(a.external_id, a.valid_from, a.id)
    found: dict[str, list[tuple[datetime, str]]] = {}
    for key_id, since, alias in connection.execute(query):
        names = found.setdefault(key_id, [])
        if not names or names[-1][1] != alias:
            names.append((since, alias))
    return {key_id: tuple(names) for key_id, names in found.items()}


def with_key_alias(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows; those with a ``key_id`` get ``key_alias`` behind it: what its gateway calls the key now, or called it last; ''
    where none was told."""
    keys = {row["key_id"] for row in rows if row.get("key_id")}
    a = IdentityAliasRow
    query = select(a.external_id, a.alias).where(a.kind == "key", a.external_id.in_(keys)).order_by(a.valid_from, a.id)
    names = {key: alias for key, alias in connection.execute(query)} if keys else {}
    return [
        {
            name: told
            for key, value in row.items()
            for name, told in ((key, value), *((("key_alias", names.get(value, "")),) if key == "key_id" else ()))
        }
        for row in rows
    ]


def put_aliases(connection: Connection, source: str, aliases: Iterable[Alias], now: datetime) -> AliasChanges:
    """Take over what a gateway says now: a new name or owner ends the old row at ``now`` and opens another; what it lists no
    longer keeps its last name. The same again changes nothing."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": RULES_LOCK})
    a = IdentityAliasRow
    current = {(s.alias.kind, s.alias.external_id): s.alias for s in _aliases(connection, a.valid_to.is_(None), source)}
    wanted = {(alias.kind, alias.external_id): alias for alias in aliases}
    changed = {key: alias for key, alias in wanted.items() if key in current and current[key] != alias}
    new = {key: alias for key, alias in wanted.items() if key not in current}
    for kind, external_id in changed:
        mine = (a.source == source) & (a.kind == kind) & (a.external_id == external_id) & a.valid_to.is_(None)
        connection.execute(update(a).where(mine).values(valid_to=now))
    rows = [_alias_row(source, alias, now) for alias in (*new.values(), *changed.values())]
    if rows:
        connection.execute(insert(a), rows)
    return AliasChanges(len(new), len(changed), len(wanted) - len(new) - len(changed))


def list_aliases(connection: Connection, *, with_history: bool = False) -> list[StoredAlias]:
    """Names as they are now, or with all earlier ones."""
    return _aliases(connection, None if with_history else IdentityAliasRow.valid_to.is_(None), None)


def _aliases(connection: Connection, which: Any, source: str | None) -> list[StoredAlias]:
    a = IdentityAliasRow
    query = select(a.__table__).order_by(a.source, a.kind, a.external_id, a.valid_from, a.id)
    if which is not None:
        query = query.where(which)
    if source is not None:
        query = query.where(a.source == source)
    return [
        StoredAlias(r.source, Alias(r.kind, r.external_id, r.alias, r.team_id, r.user_id, r.org_id), r.valid_from, r.valid_to)
        for r in connection.execute(query)
    ]


def _alias_row(source: str, alias: Alias, now: datetime) -> dict[str, Any]:
    return {
        "source": source, "kind": alias.kind, "external_id": alias.external_id, "alias": alias.alias, "team_id": alias.team_id,
        "user_id": alias.user_id, "org_id": alias.org_id, "valid_from": now,
    }  # fmt: skip


def has_usage_since(connection: Connection, since: datetime) -> bool:
    """Whether any request that finished at or after the UTC day of ``since`` is counted."""
    query = "SELECT EXISTS (SELECT FROM usage_day WHERE day >= date_trunc('day', CAST(:since AS timestamptz), 'UTC'))"
    return bool(connection.execute(text(query), {"since": since}).scalar())


TENANT_COLUMNS: Mapping[str, str] = {
    "org": "org", "team": "team", "project": "project", "user": "user_id", "key_id": "key_id", "service_tier": "service_tier",
}  # fmt: skip
_LAST_SEEN = """
SELECT {keys}, sum(requests)::bigint AS requests, max(seen) AS last_seen FROM (
  SELECT {columns}, requests, day AS seen FROM usage_day WHERE day >= :start AND day < :end AND requests > 0
  UNION ALL
  SELECT {columns}, 0, hour FROM usage_hour WHERE hour >= :recent AND hour < :end AND requests > 0
) AS found WHERE TRUE{where} GROUP BY {keys} ORDER BY {keys}
"""


def tenants_seen(
    connection: Connection, by: Sequence[str], start: datetime, end: datetime, recent: datetime, filters: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Requests and last use by tenant columns. ``start`` and ``end`` are UTC midnights; ``last_seen`` is the start of the last
    hour with a finished request from ``recent`` on, and of the last such UTC day before."""
    columns = ", ".join(f"{TENANT_COLUMNS[key]} AS {_quoted(key)}" for key in TENANT_COLUMNS)
    keys = ", ".join(_quoted(key) for key in by)
    where = "".join(f" AND {_quoted(key)} = :filter_{key}" for key in filters)
    query = text(_LAST_SEEN.format(keys=keys, columns=columns, where=where))
    values = {"start": start, "end": end, "recent": recent, **{f"filter_{key}": value for key, value in filters.items()}}
    return [dict(row) for row in connection.execute(query, values).mappings()]


def _quoted(key: str) -> str:
    return f'"{key}"'

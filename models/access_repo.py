"""API tokens ``tf_<id>_<secret>``: only a hash of the secret is kept; the text is shown once, when it is made."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select, text, update

from core.errors import BadInput, Conflict
from core.scopes import parse_scope
from models.tables_access import ApiTokenRow

TOKEN_SCOPES: tuple[str, ...] = ("ingest", "read", "operate", "admin", "policy")
MAX_TOKEN_NAME = 80
ADMIN_NAME = "admin"
ADMIN_LOCK = 7360704


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a verified token speaks for. ``admin`` may do everything; ``tenant_scope`` '' sees all tenants, else "ORG/TEAM"."""

    token_id: str
    name: str
    scopes: frozenset[str]
    tenant_scope: str = ""

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token without its secret."""

    id: str
    name: str
    scopes: tuple[str, ...]
    tenant_scope: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


def create_token(
    connection: Connection,
    name: str,
    scopes: Sequence[str],
    tenant_scope: str,
    now: datetime,
    expires_at: datetime | None = None,
) -> tuple[str, str]:
    """Make a token; returns (id, token text). Raises BadInput naming the field, Conflict when the name is taken."""
    _check(name, scopes, tenant_scope, now, expires_at)
    if connection.execute(select(ApiTokenRow.id).where(ApiTokenRow.name == name)).first():
        raise Conflict(f"a token named {name!r} exists", hint="choose another name; revoked names are not used again")
    token_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    row = {
        "id": token_id, "name": name, "secret_hash": _hash(secret), "scopes": sorted(set(scopes)), "tenant_scope": tenant_scope,
        "created_at": now, "expires_at": expires_at,
    }  # fmt: skip
    connection.execute(insert(ApiTokenRow).values(row))
    return token_id, f"tf_{token_id}_{secret}"


def _check(name: str, scopes: Sequence[str], tenant_scope: str, now: datetime, expires_at: datetime | None) -> None:
    if not name.strip() or len(name) > MAX_TOKEN_NAME or not name.isprintable():
        raise BadInput(f"must have 1 to {MAX_TOKEN_NAME} printable characters", field="name", value=name)
    unknown = [scope for scope in scopes if scope not in TOKEN_SCOPES]
    if unknown or not scopes:
        raise BadInput(f"must be some of {', '.join(TOKEN_SCOPES)}", field="scopes", value=unknown)
    if tenant_scope:
        parse_scope(f"tenant:{tenant_scope}", "tenant_scope")
    if expires_at is not None and expires_at <= now:
        raise BadInput("must be in the future", field="expires_at", value=expires_at.isoformat())


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def verify_token(connection: Connection, token: str, now: datetime) -> Principal | None:
    """Whom the token speaks for; None when it is malformed, unknown, wrong, expired or revoked (never says which)."""
    parts = token.split("_")
    if len(parts) != 3 or parts[0] != "tf" or not token.isascii():
        return None
    columns = (
        ApiTokenRow.id, ApiTokenRow.name, ApiTokenRow.secret_hash, ApiTokenRow.scopes, ApiTokenRow.tenant_scope,
        ApiTokenRow.expires_at, ApiTokenRow.revoked_at,
    )  # fmt: skip
    row = connection.execute(select(*columns).where(ApiTokenRow.id == parts[1])).one_or_none()
    # An unknown id costs the same comparison as a wrong secret.
    good = hmac.compare_digest(_hash(parts[2]), row.secret_hash if row is not None else _hash(""))
    if row is None or not good or row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= now):
        return None
    return Principal(row.id, row.name, frozenset(row.scopes), row.tenant_scope)


def revoke_token(connection: Connection, token_id: str, now: datetime) -> bool:
    """End a token; False when it does not exist or was revoked before."""
    mine = (ApiTokenRow.id == token_id) & ApiTokenRow.revoked_at.is_(None)
    return connection.execute(update(ApiTokenRow).where(mine).values(revoked_at=now)).rowcount > 0


def list_tokens(connection: Connection) -> list[TokenInfo]:
    """Every token ever made, by age."""
    columns = (
        ApiTokenRow.id, ApiTokenRow.name, ApiTokenRow.scopes, ApiTokenRow.tenant_scope, ApiTokenRow.created_at,
        ApiTokenRow.expires_at, ApiTokenRow.revoked_at,
    )  # fmt: skip
    rows = connection.execute(select(*columns).order_by(ApiTokenRow.created_at, ApiTokenRow.id))
    return [TokenInfo(r.id, r.name, tuple(r.scopes), r.tenant_scope, r.created_at, r.expires_at, r.revoked_at) for r in rows]


def first_admin_token(connection: Connection, now: datetime) -> str | None:
    """The admin token's text the first time it is asked for, ever; None afterwards (its text cannot be shown again)."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": ADMIN_LOCK})
    if connection.execute(select(ApiTokenRow.id).where(ApiTokenRow.name == ADMIN_NAME)).first():
        return None
    return create_token(connection, ADMIN_NAME, ("admin",), "", now)[1]

"""What a LiteLLM proxy calls its keys, teams, users and organisations: from its admin API, or read-only from its tables.

Shapes read from LiteLLM 1.95.1: ``/key/list`` pages of ``keys`` (``token`` is the key's hash, as usage bears it),
``/team/list`` a bare list, ``/user/list`` pages of ``users``. Keys of its own web sessions (team
``litellm-dashboard``) are nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx
import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from core.errors import BadInput, Unavailable
from core.identity import is_name
from core.identity_state import Alias, AliasKind

SOURCE = "litellm"
PAGE_ROWS = 100
"""LiteLLM gives no more at once."""
MAX_PAGES = 10_000
TIMEOUT_S = 30
DASHBOARD_TEAM = "litellm-dashboard"
Object = Mapping[str, Any]
_OWNERS = ("team_id", "user_id", "organization_id")
_TABLES: Mapping[AliasKind, tuple[str, str, tuple[str, ...]]] = {
    "key": ("LiteLLM_VerificationToken", "token", ("key_alias", "key_name")),
    "team": ("LiteLLM_TeamTable", "team_id", ("team_alias",)),
    "user": ("LiteLLM_UserTable", "user_id", ("user_alias", "user_email")),
    "org": ("LiteLLM_OrganizationTable", "organization_id", ("organization_alias",)),
}
"""Per kind: the table, its id, and the columns that name it, best first."""


def read_api(url: str, key: str, *, page_rows: int = PAGE_ROWS, transport: httpx.BaseTransport | None = None) -> list[Alias]:
    """All names by the admin API. Raises BadInput for a wrong URL or key, Unavailable when the proxy does not answer well."""
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport) as client:
            keys = list(_pages(client, "/key/list", "keys", {"size": page_rows, "return_full_object": "true"}))
            teams = _body(client, "/team/list", {})
            users = _pages(client, "/user/list", "users", {"page_size": page_rows})
            return _aliases({"key": keys, "team": _rows(teams, "/team/list"), "user": list(users)})
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise BadInput("is not a URL", field="litellm_url", value=url, hint="write http://HOST:4000") from error
    except httpx.HTTPError as error:
        hint = "is litellm_url right and the proxy up?"
        raise Unavailable(f"LiteLLM cannot be reached ({type(error).__name__})", hint=hint) from error


def _pages(client: httpx.Client, path: str, name: str, params: Mapping[str, Any]) -> Iterator[Object]:
    for page in range(1, MAX_PAGES):
        body = _body(client, path, {**params, "page": page})
        if not isinstance(body, dict):
            raise _unexpected(path)
        yield from _rows(body.get(name), path)
        if page >= int(body.get("total_pages") or 0):
            return


def _body(client: httpx.Client, path: str, params: Mapping[str, Any]) -> Any:
    answer = client.get(path, params=dict(params))
    if answer.status_code in (401, 403):
        hint = "litellm_key must be the master key or that of a proxy admin"
        raise BadInput(f"LiteLLM does not let this key read {path}", field="litellm_key", hint=hint)
    if not answer.is_success:
        raise Unavailable(f"LiteLLM answered {answer.status_code} to {path}", hint="does the proxy have its database?")
    try:
        return answer.json()
    except ValueError as error:
        raise _unexpected(path) from error


def _rows(value: Any, path: str) -> list[Object]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise _unexpected(path)
    return value


def _unexpected(path: str) -> Unavailable:
    return Unavailable(f"what answers at {path} is not a LiteLLM proxy", hint="does litellm_url name the proxy itself?")


def read_tables(url: str) -> list[Alias]:
    """All names from LiteLLM's own database, in a read-only session. Raises Unavailable or BadInput."""
    try:
        with psycopg.connect(url, autocommit=True, row_factory=dict_row, connect_timeout=10) as connection:
            connection.execute("SET default_transaction_read_only = on")
            found = {kind: _table(connection, kind) for kind in _TABLES}
    except psycopg.OperationalError as error:
        raise Unavailable("LiteLLM's database cannot be reached", hint=str(error).strip().splitlines()[0]) from error
    if not any(found.values()):
        raise BadInput(
            "the database has no keys, teams or users of LiteLLM", field="litellm_db_url", hint="give the proxy's DATABASE_URL"
        )
    return _aliases(found)


def _table(connection: psycopg.Connection[dict[str, Any]], kind: AliasKind) -> list[Object]:
    table, own_id, names = _TABLES[kind]
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = %(table)s"
    have = {row["column_name"] for row in connection.execute(query, {"table": table})}
    wanted = [name for name in dict.fromkeys((own_id, *names, *_OWNERS)) if name in have]
    if own_id not in have:
        return []
    columns = sql.SQL(", ").join(sql.Identifier(name) for name in wanted)
    return list(connection.execute(sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(table))))


def _aliases(found: Mapping[AliasKind, Iterable[Object]]) -> list[Alias]:
    """One alias a thing; without a name it is called by its id. The last of two rows of one id wins."""
    aliases: dict[tuple[AliasKind, str], Alias] = {}
    for kind, rows in found.items():
        _, own_id, names = _TABLES[kind]
        for row in rows:
            external_id = _text(row, own_id)
            if not external_id or (kind == "key" and _text(row, "team_id") == DASHBOARD_TEAM):
                continue
            alias = next((name for name in (_text(row, column) for column in names) if name), external_id)
            owner = {name: _text(row, name) if name != own_id else "" for name in _OWNERS}
            aliases[kind, external_id] = Alias(
                kind, external_id, alias, owner["team_id"], owner["user_id"], owner["organization_id"]
            )
    return list(aliases.values())


def _text(row: Object, name: str) -> str:
    """A short printable text, else ''."""
    value = row.get(name)
    return value.strip() if isinstance(value, str) and is_name(value) else ""

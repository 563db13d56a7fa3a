"""What a tenant's token may see and change: its own path and below, never another's, and nothing that names no tenant."""

from __future__ import annotations

from api.errors import Forbidden
from core.errors import BadInput
from core.scopes import Scope, parse_scope
from models.access_repo import Principal

KEYS = ("org", "team", "project", "user")


def own_scope(caller: Principal) -> Scope | None:
    """The tenant scope the token is bound to; None: every tenant's."""
    return parse_scope(f"tenant:{caller.tenant_scope}") if caller.tenant_scope else None


def confine(caller: Principal, filters: dict[str, str]) -> dict[str, str]:
    """The filters, narrowed to the caller's own tenant. Raises Forbidden when they ask for another's."""
    own = own_scope(caller)
    if own is None:
        return filters
    narrowed = dict(filters)
    for key, value in zip(KEYS, own.parts, strict=False):
        if narrowed.get(key, value) != value:
            raise Forbidden(f"this token sees {key} {value!r} only", hint=f"leave filter.{key} out")
        narrowed[key] = value
    return narrowed


def require_all_tenants(caller: Principal, what: str) -> None:
    """Raises Forbidden for a tenant's token: ``what`` cannot be cut by tenant."""
    if caller.tenant_scope:
        raise Forbidden(
            f"{what} cannot be cut by tenant; this token is bound to {caller.tenant_scope}", hint="use a token of all tenants"
        )


def may_see(caller: Principal, scope: str) -> bool:
    """Whether a thing of ``scope`` is the caller's own or below."""
    own = own_scope(caller)
    return own is None or own.covers(parse_scope(scope))


def require_own(caller: Principal, scope: str) -> None:
    """Raises Forbidden when ``scope`` is outside the caller's tenant, BadInput when it is no scope."""
    try:
        inside = may_see(caller, scope)
    except BadInput as error:
        error.where = error.where or "body"
        raise
    if not inside:
        raise Forbidden(f"{scope} is outside this token's tenant {caller.tenant_scope}")

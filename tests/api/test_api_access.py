"""Who may call what: every route of the application is walked, so a new one cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from api_client import Api, Clock, TokenMaker
from fastapi.routing import APIRoute
from sqlalchemy import Engine

from api.routes import ROUTERS
from models.access_repo import revoke_token

pytestmark = pytest.mark.db

OPEN = {"/healthz", "/readyz"}
SCOPES = {"ingest", "read", "operate", "policy"}
NEEDS = {
    "/v1/usage POST": "ingest",
    "/v1/usage/litellm POST": "ingest",
    **{f"{base}/v1/{signal} POST": "ingest" for base in ("", "/otlp") for signal in ("traces", "metrics", "logs")},
    "/v1/identity/preview POST": "read",
    "/v1/identity/test POST": "read",
    "/v1/policy GET": "policy",
    "/v1/guards/report POST": "policy",
}


CHANGES = ("POST", "PUT")


def routes_of(api: Api) -> Iterator[tuple[str, str]]:
    for path, methods in api.app.openapi()["paths"].items():
        for method in methods:
            yield method.upper(), path


def needed(method: str, path: str) -> str:
    return NEEDS.get(f"{path} {method}", "operate" if method in CHANGES else "read")


def at(path: str) -> str:
    return re.sub(r"\{[^}]+\}", "1", path)


def test_openapi_lists_every_route(api: Api) -> None:
    served = {
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    assert served == set(routes_of(api))


def test_without_a_token_every_route_but_health_answers_401(api: Api) -> None:
    for method, path in routes_of(api):
        answer = api.call(method, at(path), content=b"{not json" if method in CHANGES else None)
        if path in OPEN:
            assert answer.status_code in (200, 503), path
        else:
            assert answer.status_code == 401, (method, path)
            assert answer.json()["error"]["code"] == "unauthenticated"
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_token_of_any_other_scope_gets_403(api: Api, token: TokenMaker) -> None:
    tokens = {scope: token(scope) for scope in SCOPES}
    for method, path in routes_of(api):
        if path in OPEN:
            continue
        for scope in SCOPES - {needed(method, path)}:
            answer = api.call(method, at(path), tokens[scope], content=b"{not json" if method in CHANGES else None)
            assert answer.status_code == 403, (method, path, scope)
            assert answer.json()["error"]["code"] == "forbidden"


def test_a_revoked_token_is_out_once_it_is_no_longer_remembered(db: Engine, api: Api, token: TokenMaker, clock: Clock) -> None:
    text = token("read")
    assert api.get("/v1/limits", text).status_code == 200
    with db.begin() as connection:
        revoke_token(connection, text.split("_")[1], clock())
    api.app.state.parts.auth.forget_all()
    assert api.get("/v1/limits", text).status_code == 401


def test_an_expired_or_invented_token_is_401(api: Api) -> None:
    assert api.get("/v1/limits", "tf_nobody_" + "x" * 43).status_code == 401

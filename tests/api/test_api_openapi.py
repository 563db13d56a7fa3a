"""The whole API against its own OpenAPI document: whatever is sent, the answer is one the document allows, and never a 500."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from api_client import NOW, Api, TokenMaker
from api_world import settle
from hypothesis import HealthCheck, given, settings
from prometheus_client.parser import text_string_to_metric_families
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import Engine

from control.policy_publish import publish

pytestmark = pytest.mark.db
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
WRITES = (
    ("/v1/budgets", {"scope": "tenant:acme/search", "period": "day", "amount": "100", "cap": "120"}),
    ("/v1/limits", {"scope": "tenant:acme", "name": "max_prompt_tokens", "value": 8000}),
    ("/v1/exemptions", {"scope": "tenant:acme", "owner": "ann", "reason": "x", "expires_at": (NOW + timedelta(1)).isoformat()}),
)  # fmt: skip


def send(api: Api, case: Case, token: str) -> httpx.Response:
    """The case as it would go over the wire."""
    wire = requests.Request(**case.as_transport_kwargs(base_url="http://tokenfuse.test")).prepare()
    headers = {name: value for name, value in wire.headers.items() if name.lower() != "authorization"}
    body = wire.body.encode() if isinstance(wire.body, str) else wire.body
    assert wire.method is not None
    return api.call(wire.method, wire.path_url, token, headers=headers, content=body)


def test_every_answer_is_one_the_document_allows(db: Engine, api: Api, token: TokenMaker) -> None:
    settle(db, NOW)
    admin = token("admin", name="gateway-1")
    for path, body in WRITES:
        assert api.post(path, admin, body).status_code == 200
    with db.begin() as connection:
        publish(connection, NOW)
    document = api.get("/openapi.json", admin).json()
    tried = 0
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        operation = found.ok()
        tried += 1

        @given(case=operation.as_strategy())
        @settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
        def obeys(case: Case) -> None:
            if case.path == "/v1/policy":
                case.query = {**(case.query or {}), "wait": 0}
            answer = send(api, case, admin)
            case.validate_response(answer, checks=CHECKS)

        obeys()
    assert tried == sum(len(methods) for methods in document["paths"].values())


def test_every_operation_documents_its_errors_and_its_token(api: Api) -> None:
    for path, methods in api.app.openapi()["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), (method, path)
            if path in ("/healthz", "/readyz"):
                continue
            assert operation["security"] == [{"token": []}], (method, path)
            assert {"400", "401", "403", "429", "500", "503"} <= operation["responses"].keys(), (method, path)
            error = operation["responses"]["401"]["content"]["application/json"]["schema"]
            assert error == {"$ref": "#/components/schemas/ErrorOut"}
            assert "422" not in operation["responses"] or method in ("post", "put"), (method, path)


def test_every_route_and_metric_stands_in_the_manual(db: Engine, api: Api, token: TokenMaker) -> None:
    settle(db, NOW)
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for path in api.app.openapi()["paths"]:
        assert f"{path}`" in text, path
    for family in text_string_to_metric_families(api.get("/metrics", token("read")).text):
        assert family.name.removesuffix("_created") in text, family.name

"""Who a LiteLLM request is for: in the same words as the ledger's own reading of the callback."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ingest.usage.litellm import tenant_of
from tokenfuse_guard.identity import joined, said_path, service_tier_of, tags_of

KEY = {"organization_alias": "acme", "org_id": "o1", "team_alias": "search", "team_id": "t1", "project_alias": "chat"}


@pytest.mark.parametrize(
    ("key", "data", "tags", "path"),
    [
        (KEY, {"user": "ann"}, (), "acme/search/chat/ann"),
        ({**KEY, "user_id": "owner"}, {}, (), "acme/search/chat/owner"),
        ({**KEY, "user_id": "owner"}, {"user": "ann"}, (), "acme/search/chat/ann"),
        ({"org_id": "o1", "team_id": "t1"}, {}, (), "o1/t1"),
        (KEY, {}, ("org:evil", "team:evil"), "acme/search/chat"),
        ({}, {}, ("org:acme", "team:search"), "acme/search"),
        ({}, {}, ("team:search",), "home/search"),
        ({"org_id": "a/b"}, {}, (), ""),
        ({"org_id": "o1"}, {"user": "ann"}, (), "o1"),
    ],
    ids=["alias before id", "the key's user", "the end user first", "ids", "tags never win over the key", "tags fill", "home org",
         "a slash ends the path", "a gap ends the path"],
)  # fmt: skip
def test_the_tenant_path(key: dict[str, str], data: dict[str, Any], tags: tuple[str, ...], path: str) -> None:
    user = SimpleNamespace(**key)
    assert joined(said_path(user, data, tags, "home")) == path
    logged = {f"user_api_key_{name.replace('organization', 'org')}": value for name, value in key.items()}
    ledger = tenant_of(logged, tags, end_user=data.get("user", ""), key_id="")
    said = [ledger.org or "home", ledger.team, ledger.project, ledger.user]
    assert "/".join(said).startswith(path)


def test_tags_and_tier() -> None:
    tags = tags_of({"metadata": {"tags": ["service_tier:P2", 5, "team:x"]}})
    assert tags == ("service_tier:P2", "team:x")
    assert (service_tier_of(tags, "P1"), service_tier_of(("service_tier:P9",), "P1"), service_tier_of((), "P0")) == (
        "P2",
        "P1",
        "P0",
    )

"""Rule sets as the centre publishes them to guards, and LiteLLM calls as guard and ledger see them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from core.identity import RuleVersion
from core.identity_codec import decode_rules
from core.identity_guard import section
from core.identity_state import IdentityState, Names
from core.policy import canonical_json

T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
FOREVER = datetime(2026, 1, 1, tzinfo=UTC)


def rule(field: str, operator: str, value: str, then: str = "stop", name: str = "r", **sets: str) -> dict[str, Any]:
    return {"name": name, "when": [{"field": field, "op": operator, "value": value}], "set": sets or {"org": "x"}, "then": then}


def rule_set(*rules: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"rules": list(rules), "default": {}, **rest}


def told(*sets: tuple[datetime, dict[str, Any]], now: datetime = T0, names: dict[str, str] | None = None) -> dict[str, Any]:
    """The section that guards get, through the JSON that is signed."""
    versions = tuple(
        RuleVersion(number, since, "ann", "r", since, decode_rules(item)) for number, (since, item) in enumerate(sets, 1)
    )
    known: dict[str, Names] = {key_id: ((FOREVER, name),) for key_id, name in (names or {}).items()}
    found = section(IdentityState("1", versions, known), now)
    assert found is not None
    read: dict[str, Any] = json.loads(canonical_json(found))
    return read


def key(**more: Any) -> Any:
    """LiteLLM's UserAPIKeyAuth, as far as a guard reads it."""
    known = {
        "api_key": "a" * 64, "key_alias": "rag-prod", "organization_alias": "acme", "org_id": "o1", "team_alias": "search",
        "team_id": "t1", "project_alias": None, "project_id": None, "user_id": "owner", "end_user_id": None, "metadata": {},
        "team_metadata": None,
    }  # fmt: skip
    return SimpleNamespace(**{**known, **more})


def call_data(
    owner: Any,
    *,
    tags: tuple[str, ...] = (),
    headers: dict[str, str] | None = None,
    labels: dict[str, Any] | None = None,
    **body: Any,
) -> dict[str, Any]:
    """What LiteLLM hands to a pre-call hook: the body, with its own metadata in it."""
    metadata = {
        "user_api_key_hash": owner.api_key, "user_api_key_alias": owner.key_alias, "user_api_key_org_id": owner.org_id,
        "user_api_key_org_alias": owner.organization_alias, "user_api_key_team_id": owner.team_id,
        "user_api_key_team_alias": owner.team_alias, "user_api_key_user_id": owner.user_id,
        "user_api_key_project_alias": owner.project_alias, "user_api_key_end_user_id": owner.end_user_id,
        "user_api_key_auth_metadata": owner.metadata, "requester_metadata": labels or {},
        "tags": [*tags, *(owner.metadata.get("tags") or ())],
    }  # fmt: skip
    return {"model": "tiny", "metadata": metadata, "proxy_server_request": {"headers": headers or {}}, **body}


def logged_payload(data: dict[str, Any]) -> dict[str, Any]:
    """What LiteLLM logs of the call afterwards, as the guard sends it on."""
    metadata = {**data["metadata"], "requester_custom_headers": data["proxy_server_request"]["headers"]}
    return {
        "id": "chatcmpl-1", "litellm_call_id": "c1", "call_type": "acompletion", "status": "success", "startTime": 1796040000.0,
        "endTime": 1796040001.0, "model": "hosted_vllm/tiny", "model_group": "tiny", "custom_llm_provider": "hosted_vllm",
        "end_user": data.get("user") or "", "request_tags": metadata["tags"], "metadata": metadata, "prompt_tokens": 1,
        "completion_tokens": 1,
    }  # fmt: skip

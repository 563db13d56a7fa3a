"""Who a LiteLLM request is for, in the words the ledger uses: the key's organisation, team and project come first (alias before
id); tags ``org:``, ``team:``, ``project:``, ``service_tier:`` fill what the key does not say."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tokenfuse_guard.settings import GuardSettings

SELF_HOSTED = frozenset(
    ("hosted_vllm", "vllm", "sglang", "ollama", "ollama_chat", "lm_studio", "llamafile", "xinference", "openai_like",
     "infinity", "huggingface", "triton", "litellm_proxy", "custom_openai")
)  # fmt: skip
TIERS = ("P0", "P1", "P2")
MAX_REMEMBERED = 1000
_SERVED: dict[tuple[int, str], str] = {}


def tags_of(data: Mapping[str, Any]) -> tuple[str, ...]:
    """The request's tags, as LiteLLM will log them."""
    for name in ("metadata", "litellm_metadata"):
        found = data.get(name)
        tags = found.get("tags") if isinstance(found, dict) else None
        if isinstance(tags, list):
            return tuple(tag for tag in tags if isinstance(tag, str))
    return ()


def proven_tenant(user: Any, data: Mapping[str, Any], tags: tuple[str, ...], default_org: str) -> str:
    """``ORG/TEAM/PROJECT/USER`` as far as it is known without a gap; "" when there is no organisation.

    A part that holds a slash ends the path: no scope can name it.
    """
    said = [
        _first(user, "organization_alias", "org_id") or _tag(tags, "org") or default_org,
        _first(user, "team_alias", "team_id") or _tag(tags, "team"),
        _first(user, "project_alias", "project_id") or _tag(tags, "project"),
        str(data.get("user") or "") or _first(user, "end_user_id", "user_id"),
    ]
    path = []
    for part in said:
        if not part or "/" in part:
            break
        path.append(part)
    return "/".join(path)


class _Logged:
    """A key's owner from the metadata LiteLLM attaches to a routed call."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.organization_alias = metadata.get("user_api_key_org_alias")
        self.org_id = metadata.get("user_api_key_org_id")
        self.team_alias = metadata.get("user_api_key_team_alias")
        self.team_id = metadata.get("user_api_key_team_id")
        self.project_alias = metadata.get("user_api_key_project_alias")
        self.project_id = metadata.get("user_api_key_project_id")
        self.end_user_id = metadata.get("user_api_key_end_user_id")
        self.user_id = metadata.get("user_api_key_user_id")


def routed_tenant(kwargs: Mapping[str, Any], tags: tuple[str, ...], default_org: str) -> str:
    """``proven_tenant`` of a call that has been routed to a deployment."""
    metadata = kwargs.get("metadata") or kwargs.get("litellm_metadata")
    return proven_tenant(_Logged(metadata if isinstance(metadata, dict) else {}), kwargs, tags, default_org)


def is_self_hosted(routed_model: str) -> bool:
    """Whether a routed model (``PROVIDER/MODEL``) runs on an engine of ours."""
    return routed_model.partition("/")[0] in SELF_HOSTED


def service_tier_of(tags: tuple[str, ...], default: str) -> str:
    named = _tag(tags, "service_tier")
    return named if named in TIERS else default


def served_deployment(model_group: str, settings: GuardSettings) -> str:
    """The deployment a model group stands for: as mapped in the settings, else by what LiteLLM's router serves under the name."""
    if settings.deployment or model_group in settings.deployments:
        return settings.deployment_of(model_group)
    proxy = sys.modules.get("litellm.proxy.proxy_server")
    router = getattr(proxy, "llm_router", None)
    if router is None:
        return settings.deployment_of(model_group)
    key = (len(getattr(router, "model_list", ())), model_group)
    found = _SERVED.get(key)
    if found is None:
        if len(_SERVED) >= MAX_REMEMBERED:
            _SERVED.clear()
        found = _SERVED[key] = _served(router, model_group, settings)
    return found


def _served(router: Any, model_group: str, settings: GuardSettings) -> str:
    names = [
        str((item.get("litellm_params") or {}).get("model") or "")
        for item in router.get_model_list(model_name=model_group) or ()
        if isinstance(item, dict)
    ]
    own = [name.partition("/") for name in names]
    for provider, slash, model in own:
        if slash and provider in SELF_HOSTED:
            return settings.deployment_of(model)
    for provider, slash, model in own:
        if slash:
            return f"vendor/{provider}/{model}"
    return settings.deployment_of(names[0] if names and names[0] else model_group)


def _first(user: Any, *names: str) -> str:
    for name in names:
        value = getattr(user, name, None)
        if value:
            return str(value)
    return ""


def _tag(tags: tuple[str, ...], name: str) -> str:
    return next((text.split(":", 1)[1].strip() for text in tags if text.startswith(name + ":")), "")

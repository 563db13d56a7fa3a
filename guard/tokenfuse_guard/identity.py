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


def labelled(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata that LiteLLM itself writes to (routes differ); empty where it wrote none. It takes ``user_api_key_*`` out of
    whatever a client sends, so these keys are its own."""
    for name in ("metadata", "litellm_metadata"):
        found = data.get(name)
        if isinstance(found, dict) and "user_api_key_hash" in found:
            return found
    return {}


def tags_of(data: Mapping[str, Any]) -> tuple[str, ...]:
    """The request's tags, as LiteLLM will log them."""
    for name in ("metadata", "litellm_metadata"):
        found = data.get(name)
        tags = found.get("tags") if isinstance(found, dict) else None
        if isinstance(tags, list):
            return tuple(tag for tag in tags if isinstance(tag, str))
    return ()


def said_path(user: Any, data: Mapping[str, Any], tags: tuple[str, ...], default_org: str) -> tuple[str, str, str, str]:
    """(org, team, project, user) as the gateway knows them; '' where it knows none."""
    return (
        first_of(user, "organization_alias", "org_id") or tag_of(tags, "org") or default_org,
        first_of(user, "team_alias", "team_id") or tag_of(tags, "team"),
        first_of(user, "project_alias", "project_id") or tag_of(tags, "project"),
        str(data.get("user") or "") or first_of(user, "end_user_id", "user_id"),
    )


def joined(parts: tuple[str, ...]) -> str:
    """``ORG/TEAM/PROJECT/USER`` as far as it is known without a gap; "" when there is no organisation.

    A part that holds a slash ends the path: no scope can name it.
    """
    path = []
    for part in parts:
        if not part or "/" in part:
            break
        path.append(part)
    return "/".join(path)


class LoggedKey:
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
        self.api_key = metadata.get("user_api_key_hash")
        self.key_alias = metadata.get("user_api_key_alias")
        self.metadata = metadata.get("user_api_key_auth_metadata")


def key_of(metadata: Mapping[str, Any]) -> Any:
    """The owner of a routed call's key: LiteLLM's own object where it is still there."""
    return metadata.get("user_api_key_auth") or LoggedKey(metadata)


def is_self_hosted(routed_model: str) -> bool:
    """Whether a routed model (``PROVIDER/MODEL``) runs on an engine of ours."""
    return routed_model.partition("/")[0] in SELF_HOSTED


def service_tier_of(tags: tuple[str, ...], default: str) -> str:
    named = tag_of(tags, "service_tier")
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


def first_of(user: Any, *names: str) -> str:
    """The first of a key's attributes that says something."""
    for name in names:
        value = getattr(user, name, None)
        if value:
            return str(value)
    return ""


def tag_of(tags: tuple[str, ...], name: str) -> str:
    """The value of a request tag ``name:value``, else ''."""
    start = name + ":"
    for text in tags:
        if text.startswith(start):
            return text[len(start) :].strip()
    return ""

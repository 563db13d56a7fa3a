"""What a guard is told when it starts: environment variables ``TOKENFUSE_GUARD_*`` (listed in the package's README)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

Keys = tuple[tuple[str, bytes], ...]
"""(key id, secret) pairs; two may be valid at a time, so that a key can be changed without a gap."""

GUARDED_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/score",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
    "/score",
    "/pooling",
    "/classify",
    "/generate",
    "/inference/v1/generate",
    "/invocations",
)
"""Every path by which vLLM runs a model; ``/invocations`` is chat, completions and embeddings under another name."""
PREFIX = "TOKENFUSE_GUARD_"
MAX_WAIT_S = 30


class SettingsError(ValueError):
    """A variable that cannot be used; the message names it and what it should hold."""


class GuardSettings(NamedTuple):
    """All of a guard's settings. ``on_expiry`` None means: as the policy itself says, and open before there is one.

    Not a dataclass: LiteLLM runs a mounted file without registering its module, which dataclasses do not survive.
    """

    url: str = ""
    token: str = ""
    name: str = ""
    keys: Keys = ()
    state_dir: str = ""
    on_expiry: str | None = None
    cluster: str = "default"
    namespace: str = "default"
    deployment: str = ""
    deployments: Mapping[str, str] = MappingProxyType({})
    org: str = ""
    service_tier: str = "P1"
    trust_tags: bool = True
    tenant_keys: Keys = ()
    paths: tuple[str, ...] = GUARDED_PATHS
    tokenize: str = ""
    template_allowance_tokens: int = 256
    media_tokens: int | None = None
    long_prompt_tokens: int = 8192
    allow_truncate: bool = False
    max_body_bytes: int = 32 * 1024 * 1024
    wait_s: float = 25.0
    report_every_s: float = 10.0
    break_glass_file: str = ""
    usage: bool = True
    features_percent: int = 10

    def __repr__(self) -> str:
        """Without the token and the keys."""
        return f"GuardSettings(name={self.name!r}, url={self.url!r})"

    def deployment_of(self, model: str) -> str:
        """``CLUSTER/NAMESPACE/MODEL`` of a requested model: the fixed one, the mapped one, or by cluster and namespace."""
        if self.deployment:
            return self.deployment
        return self.deployments.get(model) or f"{self.cluster}/{self.namespace}/{model}"


def from_env(env: Mapping[str, str]) -> GuardSettings:
    """Read ``TOKENFUSE_GUARD_*``. Raises SettingsError."""
    given = {name[len(PREFIX) :]: value.strip() for name, value in env.items() if name.startswith(PREFIX)}
    take = given.get
    settings = GuardSettings(
        url=take("URL", "").rstrip("/"),
        token=take("TOKEN", ""),
        name=take("NAME", ""),
        keys=_keys("KEYS", take("KEYS", "")),
        state_dir=take("STATE_DIR", ""),
        on_expiry=_choice("ON_EXPIRY", take("ON_EXPIRY", ""), ("open", "closed")),
        cluster=take("CLUSTER", "default"),
        namespace=take("NAMESPACE", "default"),
        deployment=_deployment(take("DEPLOYMENT", "")),
        deployments=_mapping("DEPLOYMENTS", take("DEPLOYMENTS", "")),
        org=take("ORG", ""),
        service_tier=_choice("SERVICE_TIER", take("SERVICE_TIER", "P1"), ("P0", "P1", "P2")) or "P1",
        trust_tags=_flag("TRUST_TAGS", take("TRUST_TAGS", "1")),
        tenant_keys=_keys("TENANT_KEYS", take("TENANT_KEYS", "")),
        paths=tuple(p.strip() for p in take("PATHS", "").split(",") if p.strip()) or GUARDED_PATHS,
        tokenize=take("TOKENIZE", ""),
        template_allowance_tokens=_whole("TEMPLATE_ALLOWANCE", take("TEMPLATE_ALLOWANCE", "256")),
        media_tokens=_whole("MEDIA_TOKENS", take("MEDIA_TOKENS", "")) if take("MEDIA_TOKENS") else None,
        long_prompt_tokens=_whole("LONG_PROMPT_TOKENS", take("LONG_PROMPT_TOKENS", "8192")),
        allow_truncate=_flag("ALLOW_TRUNCATE", take("ALLOW_TRUNCATE", "0")),
        max_body_bytes=_whole("MAX_BODY_BYTES", take("MAX_BODY_BYTES", str(32 * 1024 * 1024))),
        wait_s=float(_whole("WAIT_S", take("WAIT_S", "25"))),
        report_every_s=float(_whole("REPORT_EVERY_S", take("REPORT_EVERY_S", "10"))),
        break_glass_file=take("BREAK_GLASS_FILE", ""),
        usage=_flag("USAGE", take("USAGE", "1")),
        features_percent=_whole("FEATURES_PERCENT", take("FEATURES_PERCENT", "10")),
    )
    _check(settings)
    return settings


def _check(settings: GuardSettings) -> None:
    if settings.wait_s > MAX_WAIT_S:
        raise SettingsError(f"TOKENFUSE_GUARD_WAIT_S must be at most {MAX_WAIT_S}, the centre's own limit")
    if settings.features_percent > 100:
        raise SettingsError("TOKENFUSE_GUARD_FEATURES_PERCENT must be 0 to 100")
    if settings.url and not settings.url.startswith(("http://", "https://")):
        raise SettingsError("TOKENFUSE_GUARD_URL must start with http:// or https://")
    if settings.url and not (settings.token and settings.name and settings.keys):
        raise SettingsError("TOKENFUSE_GUARD_URL needs TOKENFUSE_GUARD_TOKEN, TOKENFUSE_GUARD_NAME and TOKENFUSE_GUARD_KEYS too")


def _keys(name: str, text: str) -> Keys:
    pairs = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        key_id, colon, secret = item.partition(":")
        if not colon or not key_id or len(secret) < 16:
            raise SettingsError(f"TOKENFUSE_GUARD_{name} must hold KEY_ID:SECRET pairs with secrets of 16 characters or more")
        pairs.append((key_id, secret.encode("utf-8")))
    if len(pairs) > 2:
        raise SettingsError(f"TOKENFUSE_GUARD_{name} holds {len(pairs)} keys; two may be valid at a time")
    return tuple(pairs)


def _choice(name: str, text: str, allowed: tuple[str, ...]) -> str | None:
    if text and text not in allowed:
        raise SettingsError(f"TOKENFUSE_GUARD_{name} must be one of {', '.join(allowed)}, not {text!r}")
    return text or None


def _flag(name: str, text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off", ""):
        return False
    raise SettingsError(f"TOKENFUSE_GUARD_{name} must be 1 or 0, not {text!r}")


def _whole(name: str, text: str) -> int:
    if not text.isdigit():
        raise SettingsError(f"TOKENFUSE_GUARD_{name} must be a whole number, not {text!r}")
    return int(text)


def _deployment(text: str) -> str:
    if text and text.count("/") < 2:
        raise SettingsError(f"TOKENFUSE_GUARD_DEPLOYMENT must be CLUSTER/NAMESPACE/MODEL, not {text!r}")
    return text


def _mapping(name: str, text: str) -> dict[str, str]:
    if not text:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SettingsError(f'TOKENFUSE_GUARD_{name} must be a JSON object {{"MODEL": "CLUSTER/NAMESPACE/MODEL"}}')
    return {str(model): _deployment(str(path)) for model, path in found.items()}

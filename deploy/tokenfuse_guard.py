"""Tokenfuse guard in one file, generated from guard/tokenfuse_guard by guard/build_single_file.py: do not edit.

vLLM: put it on PYTHONPATH, ``vllm serve … --middleware tokenfuse_guard.GuardMiddleware``.
LiteLLM: put it beside config.yaml, ``litellm_settings: {callbacks: tokenfuse_guard.handler}``.
Settings: the environment variables TOKENFUSE_GUARD_* (guard/README.md). Apache-2.0.
"""
# ruff: noqa
# fmt: off

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections import deque
from collections.abc import Awaitable, Mapping, MutableMapping
from collections.abc import Awaitable, MutableMapping
from collections.abc import Iterator, Mapping
from collections.abc import Mapping
from collections.abc import Mapping, Sequence
from datetime import datetime
from datetime import datetime, timezone
from hashlib import blake2b
from itertools import islice
from types import MappingProxyType
from typing import Any
from typing import Any, Callable
from typing import Any, Callable, NamedTuple
from typing import Any, Callable, NamedTuple, Optional
from typing import Any, NamedTuple
from typing import NamedTuple
from urllib.parse import quote, unquote
import asyncio
import fnmatch
import gzip
import hashlib
import hmac
import http.client
import json
import logging
import os
import queue
import random
import re
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
import zlib

# ---- settings ----

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


# ---- entries ----

DEFAULT_RETRY_AFTER_S = 60
JITTER = random.Random()
"""Our own generator: the host application may have seeded the shared one and count on its order."""


class RequestFacts(NamedTuple):
    """What is known of a request before it runs. ``tenant`` is "ORG/TEAM/PROJECT/USER", and "" unless its identity is proven;
    ``prompt_tokens_at_most`` is an upper bound (UTF-8 bytes and the chat template's allowance), None when nobody measured it;
    ``prompt_tokens`` is the tokenizer's exact count, where one was asked."""

    model: str = ""
    deployment: str = ""
    tenant: str = ""
    service_tier: str = ""
    prompt_tokens_at_most: int | None = None
    prompt_tokens: int | None = None
    max_output_tokens: int | None = None


class Entry:
    """One instruction of the policy."""

    __slots__ = (
        "action",
        "acts",
        "allowed_models",
        "breaker",
        "epoch",
        "exempt",
        "id",
        "limits",
        "priority",
        "reason",
        "reroute_to",
        "retry_after_s",
        "scope",
        "tier",
        "within",
    )  # fmt: skip

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.id = str(raw["id"])
        self.scope = str(raw["scope"])
        self.action = str(raw["action"])
        self.tier = int(raw.get("tier") or 0)
        self.priority = int(raw.get("priority") or 0)
        self.reroute_to = str(raw.get("reroute_to") or "")
        self.limits: dict[str, int] = {str(k): int(v) for k, v in (raw.get("limits") or {}).items()}
        self.allowed_models: frozenset[str] = frozenset(str(m) for m in raw.get("allowed_models") or ())
        self.retry_after_s = int(raw.get("retry_after_s") or 0)
        self.reason = str(raw.get("reason") or "")
        self.exempt: frozenset[str] = frozenset(str(s) for s in raw.get("exempt") or ())
        self.within: frozenset[str] = frozenset(str(s) for s in raw.get("within") or ())
        self.acts = not raw.get("shadow") and raw.get("mode", "enforce") == "enforce"
        self.breaker = int(raw.get("breaker") or 0)
        self.epoch = int(raw.get("epoch") or 0)


class Refusal(NamedTuple):
    """Why a request is refused. ``retry_after_s`` already holds its jitter."""

    code: str
    message: str
    param: str | None
    retry_after_s: int
    entry: Entry | None = None

    def error_body(self) -> dict[str, Any]:
        """The OpenAI error body."""
        error = {"message": self.message, "type": "tokenfuse_policy", "param": self.param, "code": self.code}
        return {"error": error}

    def headers(self) -> dict[str, str]:
        return {"retry-after": str(self.retry_after_s), "x-should-retry": "false", "x-tokenfuse-policy": self.code}


class Decision(NamedTuple):
    """What to do with one request. ``notes`` are (entry, what) to be counted: refused, would_refuse, capped, would_cap, …"""

    refusal: Refusal | None = None
    max_output_tokens: int | None = None
    truncate_to_tokens: int | None = None
    reroute_to: str = ""
    delay_s: float = 0.0
    notes: tuple[tuple[Entry, str], ...] = ()


PASS = Decision()


class Match(NamedTuple):
    """The entries that touch a request, and what must be known of it before they can be decided: its prompt's length, fields
    of its body. ``prompt_cap`` is the lowest max_prompt_tokens among them (0 when another limit needs the length);
    ``meters`` says that some look at more than one request."""

    entries: tuple[Entry, ...] = ()
    needs_prompt: bool = False
    needs_fields: bool = False
    prompt_cap: int = 0
    meters: bool = False

    @property
    def needs_body(self) -> bool:
        return self.needs_prompt or self.needs_fields


NO_MATCH = Match()


def refusal(code: str, entry: Entry, said: str, *, param: str | None = None) -> Refusal:
    """A refusal on behalf of an entry: its scope and reason are named, the wait is spread by up to a quarter."""
    base = entry.retry_after_s or DEFAULT_RETRY_AFTER_S
    wait = base + JITTER.randint(0, max(1, base // 4))
    why = f": {entry.reason}" if entry.reason else ""
    return Refusal(code, f"Tokenfuse: {said} ({entry.scope}{why})", param, wait, entry)


# ---- policy ----

ACTIONS = ("reject", "truncate", "reroute", "delay", "limit")
DELAY_S = 1.0
"""How long a ``delay`` entry holds a request back when it names no ``retry_after_s``."""
MAX_DELAY_S = 10.0
MAX_REMEMBERED_MATCHES = 20_000


class PolicyError(Exception):
    """A document that is not obeyed. ``code``: shape, signature, guard, version or expired."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def scope_keys(facts: RequestFacts) -> list[str]:
    """Every scope text that covers the request; at most 3 + 4."""
    keys = ["platform"]
    if facts.service_tier:
        keys.append("service_tier:" + facts.service_tier)
    if facts.deployment:
        keys.append("deployment:" + facts.deployment)
    tenant = facts.tenant
    if tenant:
        at = tenant.find("/")
        while at > 0:
            keys.append("tenant:" + tenant[:at])
            at = tenant.find("/", at + 1)
        keys.append("tenant:" + tenant)
    return keys


class Policy:
    """A verified policy, compiled: entries by scope text, highest priority first. A look-up costs the same however many."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.version = int(raw["version"])
        self.issued_at_s = unix_seconds(raw["issued_at"])
        self.expires_at_s = unix_seconds(raw["expires_at"])
        self.guard = str(raw["guard"])
        self.identity: Any = raw.get("identity")
        self.on_expiry = "closed" if raw.get("on_expiry") == "closed" else "open"
        found = [Entry(entry) for entry in raw["entries"]]
        self.unknown = sum(1 for entry in found if entry.action not in ACTIONS)
        by_scope: dict[str, list[Entry]] = {}
        for entry in sorted(found, key=lambda e: (-e.priority, -e.tier)):
            if entry.action in ACTIONS:
                by_scope.setdefault(entry.scope, []).append(entry)
        self.by_scope = by_scope
        self._matches: dict[tuple[str, str, str], Match] = {}
        named = [*by_scope, *(scope for entry in found for scope in entry.within)]
        self.names_deployments = any(scope.startswith("deployment:") for scope in named)

    def match(self, facts: RequestFacts) -> Match:
        """The entries in force on this request, exemptions taken off; remembered by who asks for what."""
        if not self.by_scope:
            return NO_MATCH
        key = (facts.tenant, facts.deployment, facts.service_tier)
        found = self._matches.get(key)
        if found is None:
            if len(self._matches) >= MAX_REMEMBERED_MATCHES:
                self._matches.clear()
            found = self._matches[key] = self._match(facts)
        return found

    def _match(self, facts: RequestFacts) -> Match:
        keys = scope_keys(facts)
        entries = [entry for key in keys for entry in self.by_scope.get(key, ())]
        if not entries:
            return NO_MATCH
        return _needs(tuple(e for e in entries if e.exempt.isdisjoint(keys) and e.within.issubset(keys)))

    def decide(self, match: Match, facts: RequestFacts, *, can_truncate: bool = False) -> Decision:
        """Decide on the matched entries.

        ``reject`` refuses all but ``allowed_models``; any entry with ``allowed_models`` refuses other models; ``limit`` refuses a
        prompt over ``max_prompt_tokens`` and lowers the output to ``max_output_tokens``; ``truncate`` asks for a prompt cut to
        ``max_prompt_tokens``, and acts as ``limit`` where nobody may cut; ``reroute`` names another model; ``delay`` holds the
        request back. Within a scope the entry of highest priority refuses first; of several caps the lowest holds. An entry in
        shadow or mode warn is only noted.
        """
        if not match.entries:
            return PASS
        plan = _Plan()
        for entry in match.entries:
            wrong = _refusal(entry, facts, can_truncate)
            if wrong is not None:
                plan.refuse(entry, wrong)
            else:
                plan.cap(entry, facts)
                plan.step(entry, facts)
        return Decision(plan.refusal, plan.output_cap, plan.cut, plan.reroute_to, plan.delay_s, tuple(plan.notes))


class _Plan:
    """A decision in the making."""

    def __init__(self) -> None:
        self.refusal: Refusal | None = None
        self.output_cap: int | None = None
        self.cut: int | None = None
        self.reroute_to = ""
        self.delay_s = 0.0
        self.notes: list[tuple[Entry, str]] = []

    def refuse(self, entry: Entry, wrong: Refusal) -> None:
        self.notes.append((entry, "refused" if entry.acts else "would_refuse"))
        if entry.acts and self.refusal is None:
            self.refusal = wrong

    def cap(self, entry: Entry, facts: RequestFacts) -> None:
        cap = entry.limits.get("max_output_tokens")
        if cap is None or (facts.max_output_tokens is not None and facts.max_output_tokens <= cap):
            return
        self.notes.append((entry, "capped" if entry.acts else "would_cap"))
        if entry.acts:
            self.output_cap = _least(self.output_cap, cap)

    def step(self, entry: Entry, facts: RequestFacts) -> None:
        what = _step(entry, facts)
        if not what:
            return
        self.notes.append((entry, what if entry.acts else "would_" + what))
        if not entry.acts:
            return
        if what == "truncate":
            self.cut = _least(self.cut, entry.limits["max_prompt_tokens"])
        elif what == "reroute":
            self.reroute_to = self.reroute_to or entry.reroute_to
        else:
            self.delay_s = max(self.delay_s, min(MAX_DELAY_S, float(entry.retry_after_s) or DELAY_S))


def _least(held: int | None, cap: int) -> int:
    return cap if held is None else min(held, cap)


def _needs(entries: tuple[Entry, ...]) -> Match:
    prompt = fields = meters = False
    caps: list[int] = []
    for entry in entries:
        limits = entry.limits
        if limits:
            if "max_prompt_tokens" in limits:
                prompt = True
                caps.append(limits["max_prompt_tokens"])
            if "max_concurrent_long" in limits:
                prompt = meters = True
            fields = fields or "max_output_tokens" in limits
            meters = meters or "tokens_per_min" in limits
        fields = fields or bool(entry.allowed_models) or entry.action == "reroute"
    return Match(entries, prompt, fields, min(caps) if caps else 0, meters)


def _refusal(entry: Entry, facts: RequestFacts, can_truncate: bool) -> Refusal | None:
    if entry.allowed_models and facts.model not in entry.allowed_models:
        return refusal("model_not_allowed", entry, f"model {facts.model!r} is not allowed here now", param="model")
    if entry.action == "reject":
        if entry.allowed_models:
            return None
        code = "budget_exceeded" if entry.tier == 3 else "policy_refused"
        return refusal(code, entry, "refused by a cost policy")
    cap = entry.limits.get("max_prompt_tokens")
    if cap is None or not (entry.action == "limit" or (entry.action == "truncate" and not can_truncate)):
        return None
    return _over_prompt_cap(entry, cap, facts)


def _over_prompt_cap(entry: Entry, cap: int, facts: RequestFacts) -> Refusal | None:
    if facts.prompt_tokens is not None:
        if facts.prompt_tokens <= cap:
            return None
        said = f"the prompt has {facts.prompt_tokens} tokens, over the limit max_prompt_tokens={cap}"
    elif facts.prompt_tokens_at_most is not None:
        if facts.prompt_tokens_at_most <= cap:
            return None
        said = f"the prompt (up to {facts.prompt_tokens_at_most} tokens by its bytes) is over the limit max_prompt_tokens={cap}"
    else:
        said = f"the prompt's length cannot be bounded, and the limit max_prompt_tokens={cap} is in force"
    return refusal("prompt_too_long", entry, said, param="messages")


def _step(entry: Entry, facts: RequestFacts) -> str:
    """Which softer step the entry takes on this request: truncate, reroute, delay or none."""
    if entry.action == "truncate" and "max_prompt_tokens" in entry.limits:
        over = _over_prompt_cap(entry, entry.limits["max_prompt_tokens"], facts)
        return "truncate" if over is not None else ""
    if entry.action == "reroute" and entry.reroute_to and entry.reroute_to != facts.model:
        return "reroute"
    return "delay" if entry.action == "delay" else ""


def verify(document: Any, keys: Keys, guard: str, held_version: int, now_s: float | None) -> Policy:
    """Check a document and compile it. ``now_s`` None leaves the expiry unchecked (a stored policy read at start).

    Raises PolicyError when the signature fits none of ``keys``, it is meant for another guard, is older than
    ``held_version``, has expired, or is not a policy.
    """
    body = document.get("body") if isinstance(document, dict) else None
    if not isinstance(body, str):
        raise PolicyError("shape", "the policy has no body text")
    if not _signed(body.encode("utf-8", "surrogatepass"), document.get("signatures"), keys):
        raise PolicyError("signature", "no signature of a key this guard knows fits the policy")
    try:
        policy = Policy(json.loads(body))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError("shape", f"not a policy body: {error!r}") from error
    if policy.guard != guard:
        raise PolicyError("guard", f"the policy is meant for guard {policy.guard!r}, not {guard!r}")
    if policy.version < held_version:
        raise PolicyError("version", f"policy version {policy.version} is older than the held {held_version}")
    if now_s is not None and policy.expires_at_s <= now_s:
        raise PolicyError("expired", f"policy version {policy.version} has expired")
    return policy


def _signed(body: bytes, signatures: Any, keys: Keys) -> bool:
    found = False
    for key_id, secret in keys:
        expected = hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
        for item in signatures if isinstance(signatures, list) else []:
            given = str(item.get("hmac_sha256", "")) if isinstance(item, dict) and item.get("key_id") == key_id else ""
            found |= hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected)
    return found


def unix_seconds(text: str) -> float:
    at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if at.tzinfo is None:
        raise ValueError(f"time without a zone: {text!r}")
    return at.timestamp()


# ---- prompt ----

MESSAGE_TOKENS = 16
"""Most tokens a chat template puts around one message."""
PROMPT_FIELDS = ("messages", "system", "instructions", "tools", "functions", "documents", "suffix", "chat_template_kwargs")
ELSEWHERE = ("previous_response_id", "conversation", "prompt_embeds")
"""Fields by which a prompt comes from outside the request: nothing in the body bounds it."""
MEDIA_KEYS = frozenset(
    ("image_url", "input_image", "image", "input_audio", "audio_url", "video_url", "video", "file", "input_file", "file_id")
)
SUSPECT = re.compile(rb'"(?:image|input_|audio|video|file|previous_response_id|conversation|prompt_embeds)')
"""How the names of media and of prompts kept elsewhere begin in JSON; "input_" is not the name "input"."""


class Bound(NamedTuple):
    """``tokens`` is an upper bound, None when the body cannot give one; ``max_output_tokens`` what the client asked for."""

    tokens: int | None
    max_output_tokens: int | None


class _Unbounded(Exception):
    pass


def bound(data: Mapping[str, Any], allowance_tokens: int, media_tokens: int | None = None) -> Bound:
    """Bound a request body (chat completions, completions, responses, embeddings, Anthropic messages).

    Each media part counts ``media_tokens``; without that figure a prompt with media has no bound. A list of prompts counts as
    its longest, for each runs on its own.
    """
    try:
        if any(data.get(name) for name in ELSEWHERE):
            raise _Unbounded
        tokens = allowance_tokens + sum(_size(data[name], media_tokens) for name in PROMPT_FIELDS if data.get(name))
        for name in ("prompt", "input"):
            if data.get(name):
                tokens += _prompts(data[name], media_tokens)
        return Bound(tokens, output_asked(data))
    except (_Unbounded, RecursionError):
        return Bound(None, output_asked(data))


def quick_bound(raw: bytes, allowance_tokens: int) -> int | None:
    """The bound from a JSON body's size alone, None when the body must be parsed to give one.

    JSON text is never shorter than the UTF-8 text in it, and a message's own keys outweigh what the template puts around it;
    only media, prompts kept elsewhere, and keys that could hide behind an escape need the parse.
    """
    if SUSPECT.search(raw) or (b"\\" in raw and b"\\u" in raw):
        return None
    return len(raw) + allowance_tokens


def output_asked(data: Mapping[str, Any]) -> int | None:
    """The output limit the client set, None when it set none."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = data.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def output_field(data: Mapping[str, Any], path: str) -> str:
    """The field by which this request's output is limited."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        if name in data:
            return name
    return "max_output_tokens" if path.endswith("/responses") else "max_tokens"


def _prompts(value: Any, media_tokens: int | None) -> int:
    if isinstance(value, list) and value and all(isinstance(item, (str, list)) for item in value):
        return max(_size(item, media_tokens) for item in value)
    return _size(value, media_tokens)


def _size(value: Any, media_tokens: int | None) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, Mapping):
        if not MEDIA_KEYS.isdisjoint(value) or value.get("type") in MEDIA_KEYS:
            if media_tokens is None:
                raise _Unbounded
            return media_tokens
        return MESSAGE_TOKENS + sum(_size(k, media_tokens) + _size(v, media_tokens) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        if all(type(item) is int for item in value):
            return len(value)
        return sum(_size(item, media_tokens) for item in value)
    return 1 if value is None or isinstance(value, bool) else len(str(value))


# ---- meters ----

BYTES_PER_TOKEN = 4
"""Only to tell long prompts from short ones where nobody tokenised: a bound in bytes over-counts about this much."""


class Hold(NamedTuple):
    """What a running request occupies until ``Meters.settle``."""

    rates: tuple[Entry, ...] = ()
    longs: tuple[Entry, ...] = ()


NO_HOLD = Hold()


class Admission(NamedTuple):
    """The first refusal of an acting entry, what is held, and (entry, what) to be counted."""

    refusal: Refusal | None
    hold: Hold
    notes: tuple[tuple[Entry, str], ...]


class Overshoot(NamedTuple):
    """How far a bucket was overdrawn since it last had credit. Tokens are known when an answer ends, so at most every request in
    flight passes beside the one that crosses the limit: ``tokens`` <= ``most_in_flight`` x ``largest_request``."""

    tokens: int
    largest_request: int
    most_in_flight: int


class Meters:
    """Token buckets and running counts by entry. A bucket refills evenly over a minute and may be overdrawn: the request that
    crosses it has passed, the next one waits until it is refilled."""

    def __init__(self, long_prompt_tokens: int) -> None:
        self._long_prompt_tokens = long_prompt_tokens
        self._levels: dict[str, tuple[float, float]] = {}
        self._running: dict[str, int] = {}
        self._in_flight: dict[str, int] = {}
        self._most_in_flight: dict[str, int] = {}
        self._largest: dict[str, int] = {}
        self._overshoots: dict[str, tuple[Entry, Overshoot]] = {}
        self._lock = threading.Lock()

    def admit(self, match: Match, facts: RequestFacts, now_s: float) -> Admission:
        """Try to let a request in."""
        rates: list[Entry] = []
        longs: list[Entry] = []
        notes: list[tuple[Entry, str]] = []
        first: Refusal | None = None
        long = self._is_long(facts)
        with self._lock:
            for entry in match.entries:
                wrong = self._wrong(entry, long, now_s)
                if wrong is not None:
                    notes.append((entry, "refused" if entry.acts else "would_refuse"))
                    first = first or (wrong if entry.acts else None)
                if "tokens_per_min" in entry.limits:
                    rates.append(entry)
                if long and "max_concurrent_long" in entry.limits:
                    longs.append(entry)
            if first is not None:
                return Admission(first, NO_HOLD, tuple(notes))
            for entry in longs:
                self._running[entry.id] = self._running.get(entry.id, 0) + 1
            for entry in rates:
                now_running = self._in_flight.get(entry.id, 0) + 1
                self._in_flight[entry.id] = now_running
                self._most_in_flight[entry.id] = max(now_running, self._most_in_flight.get(entry.id, 0))
        return Admission(None, Hold(tuple(rates), tuple(longs)), tuple(notes))

    def settle(self, hold: Hold, tokens: int, now_s: float) -> None:
        """A request has ended: charge its tokens and free its place."""
        with self._lock:
            for entry in hold.rates:
                self._levels[entry.id] = (self._level(entry, now_s) - tokens, now_s)
                self._charged(entry, tokens)
            for entry in hold.longs:
                left = self._running.get(entry.id, 0) - 1
                if left > 0:
                    self._running[entry.id] = left
                else:
                    self._running.pop(entry.id, None)

    def overshoots(self, now_s: float) -> dict[str, Any]:
        """Fields for the guard's report: by entry, what passed beyond a limit that can act only after the fact. Told until the
        bucket is filled up again."""
        with self._lock:
            told = list(self._overshoots.values())
            for entry, _ in told:
                if self._level(entry, now_s) > 0 and self._in_flight.get(entry.id, 0) <= 0:
                    self._forget(entry.id)
        return {"overshoots": [{"entry": entry.id, "scope": entry.scope, **found._asdict()} for entry, found in told]}

    def _forget(self, name: str) -> None:
        self._overshoots.pop(name, None)
        self._largest.pop(name, None)
        self._most_in_flight.pop(name, None)

    def _charged(self, entry: Entry, tokens: int) -> None:
        name = entry.id
        self._in_flight[name] = self._in_flight.get(name, 1) - 1
        self._largest[name] = max(tokens, self._largest.get(name, 0))
        beyond = -int(self._levels[name][0])
        if beyond > 0:
            before = self._overshoots.get(name)
            worst = max(beyond, before[1].tokens if before else 0)
            self._overshoots[name] = entry, Overshoot(worst, self._largest[name], self._most_in_flight.get(name, 1))
        elif self._in_flight[name] <= 0 and name not in self._overshoots:
            self._forget(name)

    def _is_long(self, facts: RequestFacts) -> bool:
        if facts.prompt_tokens is not None:
            return facts.prompt_tokens > self._long_prompt_tokens
        at_most = facts.prompt_tokens_at_most
        return at_most is None or at_most // BYTES_PER_TOKEN > self._long_prompt_tokens

    def _level(self, entry: Entry, now_s: float) -> float:
        cap = float(entry.limits["tokens_per_min"])
        level, at_s = self._levels.get(entry.id, (cap, now_s))
        return min(cap, level + cap * max(0.0, now_s - at_s) / 60.0)

    def _wrong(self, entry: Entry, long: bool, now_s: float) -> Refusal | None:
        rate = entry.limits.get("tokens_per_min")
        if rate is not None:
            level = self._level(entry, now_s)
            if level <= 0:
                wait_s = int(60 * (1 - level) / rate) + 1 if rate else 60
                said = f"over the limit tokens_per_min={rate}"
                return refusal("tokens_per_min", entry, said)._replace(retry_after_s=min(wait_s, 3600))
        most = entry.limits.get("max_concurrent_long")
        if most is not None and long and self._running.get(entry.id, 0) >= most:
            return refusal("too_many_long_prompts", entry, f"over the limit max_concurrent_long={most}", param="messages")
        return None


# ---- store ----

POLICY_FILE = "policy.json"
RULES_FILE = "identity.json"
"""The last document whose identity rules this guard understood, kept once one came that it does not."""
BREAK_GLASS_FILE = "break-glass.json"
USAGE_FOLDER = "usage"


class BreakGlass(NamedTuple):
    """While ``until_s`` (unix seconds) is ahead the guard passes everything; who broke the glass says why."""

    until_s: float
    until: str
    reason: str


def write_atomic(path: str, data: bytes) -> None:
    """Write, fsync and rename: a reader sees the old file or the new one, whole. Raises OSError."""
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def save_document(folder: str, document: Any, name: str = POLICY_FILE) -> None:
    """Keep the document as received, signatures and all. Raises OSError."""
    write_atomic(os.path.join(folder, name), json.dumps(document).encode())


def load_document(folder: str, name: str = POLICY_FILE) -> Any | None:
    """The kept document, None when there is none. Raises PolicyError when the file is not JSON, OSError when unreadable."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PolicyError("shape", f"{name} in {folder} is not JSON: {error}") from error


def read_break_glass(path: str) -> BreakGlass | None:
    """The break-glass file {until, reason}, None when absent. Raises ValueError when it lacks an end or a reason."""
    try:
        with open(path, "rb") as file:
            raw = json.load(file)
    except FileNotFoundError:
        return None
    if not isinstance(raw, dict) or not raw.get("until") or not raw.get("reason"):
        raise ValueError(f'{path} must hold {{"until": "2026-12-01T08:00:00Z", "reason": "…"}}')
    return BreakGlass(unix_seconds(str(raw["until"])), str(raw["until"]), str(raw["reason"]))


# ---- counts ----

TOTALS = ("passed", "refused", "shadow_refused", "dropped")
_Row = tuple[int, float, float]
_Key = tuple[str, int, int, str, str]


def rfc3339(at_s: float) -> str:
    """``2026-11-30T12:00:00.000Z``."""
    return datetime.fromtimestamp(at_s, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Counts:
    """Totals by name, and rows by (entry, breaker, epoch, scope, what) with the first and last time."""

    def __init__(self, now_s: float) -> None:
        self._lock = threading.Lock()
        self._since_s = now_s
        self._totals: dict[str, int] = dict.fromkeys(TOTALS, 0)
        self._rows: dict[_Key, _Row] = {}

    def add(self, total: str, number: int = 1) -> None:
        with self._lock:
            self._totals[total] += number

    def note(self, notes: tuple[tuple[Entry, str], ...], refused: bool, now_s: float) -> None:
        """Count one request and what its entries did."""
        with self._lock:
            if refused:
                self._totals["refused"] += 1
            else:
                self._totals["passed"] += 1
                if any(what == "would_refuse" for _, what in notes):
                    self._totals["shadow_refused"] += 1
            for entry, what in notes:
                key = (entry.id, entry.breaker, entry.epoch, entry.scope, what)
                number, first_s, _ = self._rows.get(key, (0, now_s, now_s))
                self._rows[key] = (number + 1, first_s, now_s)

    def drain(self, now_s: float) -> dict[str, Any]:
        """Everything since the last drain, as fields of the report."""
        with self._lock:
            totals, rows, since_s = self._totals, self._rows, self._since_s
            self._totals, self._rows, self._since_s = dict.fromkeys(TOTALS, 0), {}, now_s
        return {"since": rfc3339(since_s), **totals, "entries": [_row_json(key, row) for key, row in rows.items()]}

    def restore(self, report: dict[str, Any]) -> None:
        """Take a drained report back: it did not arrive."""
        with self._lock:
            self._since_s = min(self._since_s, _at(report["since"]))
            for name in TOTALS:
                self._totals[name] += report[name]
            entries: list[dict[str, Any]] = report["entries"]
            for row in entries:
                key = (row["entry"], row["breaker"], row["epoch"], row["scope"], row["what"])
                first_s, last_s = _at(row["first_at"]), _at(row["last_at"])
                number, held_first_s, held_last_s = self._rows.get(key, (0, first_s, last_s))
                self._rows[key] = (number + row["requests"], min(first_s, held_first_s), max(last_s, held_last_s))


def _row_json(key: _Key, row: _Row) -> dict[str, Any]:
    entry, breaker, epoch, scope, what = key
    number, first_s, last_s = row
    found: dict[str, Any] = {"entry": entry, "breaker": breaker, "epoch": epoch, "scope": scope, "what": what}
    return {**found, "requests": number, "first_at": rfc3339(first_s), "last_at": rfc3339(last_s)}


def _at(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


# ---- identity_rules ----

RULES_FORMAT = 1
PATH = ("org", "team", "project", "user")
SERVICE_TIERS = ("P0", "P1", "P2")
PLAIN = frozenset(
    (*PATH, "key_id", "key_alias", "service_tier", "requested_model", "model_id", "cluster", "namespace", "gateway", "tag")
)
NAMED = ("tag.", "header.", "metadata.")
LONGEST_VALUE, LONGEST_NAME = 200, 120
MAX_REMEMBERED_ANSWERS = 20_000
REFERENCE = re.compile(r"\$(?:(\$)|(\d{1,2})|\{([A-Za-z0-9_]{1,32})\})")
Path4 = tuple[str, ...]
"""(org, team, project, user); '' for a part that is not known."""
Values = tuple[tuple[str, ...], ...]
"""The values of each of a version's ``fields``, in their order; an absent one is ('',)."""
Made = tuple[tuple[Optional[str], ...], Optional[str]]
"""The parts of a path and the tier that rules set; None where they leave it."""
NOWHERE = ("",) * len(PATH)
Caught = dict[str, str]
Test = Callable[[str], Optional[Caught]]


class UnknownRules(ValueError):
    """Rules with something this guard does not know; none of them are applied."""


class Charge(NamedTuple):
    """Whom a request is charged to."""

    path: Path4
    service_tier: str


class Rule(NamedTuple):
    """``tests`` are (place of the field in the version's ``fields``, test)."""

    tests: tuple[tuple[int, Test], ...]
    sets: tuple[tuple[str, str], ...]
    stops: bool


class RuleVersion:
    """One published set. ``fields`` are those its conditions look at; ``trusts`` says whether the client's word counts."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        _only(raw, ("version", "from_ms", "start", "default", "gateway_sets", "rules"))
        self.version = int(raw["version"])
        self.from_ms = int(raw["from_ms"])
        self._keeps_said = _one_of(raw["start"], ("said", "empty")) == "said"
        self._default = [(PATH.index(_one_of(part, PATH)), str(text)) for part, text in raw["default"].items()]
        self._marked = frozenset(str(field) for field in raw["gateway_sets"])
        self.fields = tuple(sorted({_field(condition[0]) for rule in raw["rules"] for condition in rule["when"]}))
        self._rules = [self._rule(rule) for rule in raw["rules"]]
        self.readers: Any = None
        """How ``call_facts`` reads the values of ``fields``, made with the first request."""
        self._answers: dict[Values, Made] = {}

    def trusts(self, field: str) -> bool:
        """Whether the gateway sets what a client could write there."""
        return field in self._marked or (field.startswith("tag.") and "tag" in self._marked)

    def _rule(self, raw: Mapping[str, Any]) -> Rule:
        _only(raw, ("when", "set", "then"))
        tests = []
        for field, operator, value in raw["when"]:
            tests.append((self.fields.index(field), _test(operator, str(value))))
        sets = tuple((_one_of(part, (*PATH, "service_tier")), str(text)) for part, text in raw["set"].items())
        return Rule(tuple(tests), sets, _one_of(raw.get("then", "stop"), ("stop", "continue")) == "stop")

    def charge(self, said: Path4, service_tier: str, values: Values) -> Charge:
        """Whom a request is charged to whose own path and tier these are."""
        made = self._answers.get(values)
        if made is None:
            if len(self._answers) >= MAX_REMEMBERED_ANSWERS:
                self._answers.clear()
            made = self._answers[values] = self._made(values)
        parts, tier = made
        start = said if self._keeps_said else NOWHERE
        path = [was if part is None else part for was, part in zip(start, parts)]
        for place, text in self._default:
            path[place] = path[place] or text
        return Charge(tuple(path), service_tier if tier is None else tier)

    def _made(self, values: Values) -> Made:
        """What the rules that apply set, the later over the earlier."""
        parts: dict[str, str] = {}
        for rule in self._rules:
            made = _made(rule, values)
            if made is not None:
                parts.update(made)
                if rule.stops:
                    break
        return tuple([parts.get(part) for part in PATH]), parts.get("service_tier")


class IdentityRules:
    """All versions of one policy, and the names of keys whose gateway gives them none. Raises UnknownRules."""

    def __init__(self, raw: Any) -> None:
        try:
            if raw["format"] != RULES_FORMAT:
                raise UnknownRules(f"format {raw['format']!r}")
            _only(raw, ("format", "versions", "names"))
            self.versions = [RuleVersion(version) for version in raw["versions"]]
            self.key_names: dict[str, str] = {str(key): str(name) for key, name in raw["names"].items()}
        except UnknownRules:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, re.error) as error:
            raise UnknownRules(f"{type(error).__name__}: {error}") from error
        self.raw = raw
        fields = {field for version in self.versions for field in version.fields}
        self.headers = tuple(sorted(field[len("header.") :] for field in fields if field.startswith("header.")))
        """Headers that some rule looks at."""
        self._starts_ms = [version.from_ms for version in self.versions]
        if self._starts_ms != sorted(self._starts_ms):
            raise UnknownRules("versions out of order")

    def at(self, now_s: float) -> RuleVersion | None:
        """The version in force; None before the first: the gateway is taken at its word."""
        place = bisect_right(self._starts_ms, now_s * 1000)
        return self.versions[place - 1] if place else None


def _made(rule: Rule, values: Values) -> dict[str, str] | None:
    """What the rule sets; None when a condition does not hold or what it would set cannot be a name or a tier."""
    all_caught: list[Caught] = []
    for place, test in rule.tests:
        caught = None
        for value in values[place]:
            caught = test(value)
            if caught is not None:
                break
        if caught is None:
            return None
        all_caught.append(caught)
    groups = _numbered(all_caught)
    made = {part: _filled(template, groups) for part, template in rule.sets}
    return made if all(_can_be_set(part, text) for part, text in made.items()) else None


def _numbered(all_caught: list[Caught]) -> Caught:
    """Groups by number through all conditions, and by name."""
    groups: Caught = {}
    number = 0
    for caught in all_caught:
        for name, text in caught.items():
            if name.startswith("#"):
                number += 1
                groups[str(number)] = text
            else:
                groups[name] = text
    return groups


def _filled(template: str, groups: Caught) -> str:
    if "$" not in template:
        return template
    return REFERENCE.sub(lambda found: "$" if found[1] else groups[found[2] or found[3]], template).strip()


def _can_be_set(part: str, text: str) -> bool:
    if part == "service_tier":
        return text in SERVICE_TIERS
    return len(text) <= LONGEST_NAME and text.isprintable() and '"' not in text and "\\" not in text


def _test(operator: str, value: str) -> Test:
    if operator == "exact":
        return lambda text: {} if text == value else None
    if operator == "prefix":
        return lambda text: {} if text.startswith(value) else None
    if operator == "glob":
        return _fits(re.compile(fnmatch.translate(re.sub(r"\*+", "*", value))), ())
    if operator == "regex":
        pattern = re.compile(value)
        names = {number: name for name, number in pattern.groupindex.items()}
        return _fits(pattern, tuple(names.get(number, "") for number in range(1, pattern.groups + 1)))
    raise UnknownRules(f"operator {operator!r}")


def _fits(pattern: re.Pattern[str], names: tuple[str, ...]) -> Test:
    """A test that catches the pattern's groups: by number, and by name those that have one."""

    def test(text: str) -> Caught | None:
        found = pattern.fullmatch(text) if 0 < len(text) <= LONGEST_VALUE else None
        if found is None:
            return None
        caught: Caught = {}
        for number, name in enumerate(names, 1):
            caught[f"#{number}"] = found[number] or ""
            if name:
                caught[name] = found[number] or ""
        return caught

    return test


def _field(name: Any) -> str:
    if name not in PLAIN and not str(name).startswith(NAMED):
        raise UnknownRules(f"field {name!r}")
    return str(name)


def _one_of(value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UnknownRules(f"{value!r} is none of {', '.join(known)}")
    return str(value)


def _only(raw: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in raw:
        if name not in known:
            raise UnknownRules(f"{name!r}")


# ---- guard ----

LOG = logging.getLogger("tokenfuse.guard")
LOOK_EVERY_S = 1.0
SAY_EVERY_S = 60.0
CLOSED_RETRY_S = 30


class Posture(NamedTuple):
    """``obey`` the policy, or else refuse everything with ``refusal``, or pass everything (no refusal).
    ``note`` goes into the header ``x-tokenfuse-policy`` of passed answers."""

    obey: bool
    refusal: Refusal | None
    note: str


OBEY = Posture(True, None, "")


class Guard:
    """Thread-safe: the fetcher's thread replaces the policy, requests read it."""

    def __init__(self, settings: GuardSettings, now_s: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.now_s = now_s
        self.policy: Policy | None = None
        self.rules: IdentityRules | None = None
        self.rules_fault = ""
        self._rules_document: Any = None
        self.counts = Counts(now_s())
        self.meters = Meters(settings.long_prompt_tokens)
        self.break_glass: BreakGlass | None = None
        self.fault = ""
        self._glass_file = settings.break_glass_file or (
            os.path.join(settings.state_dir, BREAK_GLASS_FILE) if settings.state_dir else ""
        )
        self._look_at_s = 0.0
        self._say_at_s = 0.0
        self._load()

    def _load(self) -> None:
        """Obey what was held before a restart; the held version stays the floor even when it has expired."""
        if not self.settings.state_dir:
            return
        try:
            document = load_document(self.settings.state_dir)
            if document is not None:
                self.policy = verify(document, self.settings.keys, self.settings.name, 0, None)
                self._take_rules(self.policy, document)
                if self.rules_fault:
                    self._load_rules()
        except (PolicyError, OSError) as error:
            self.trouble(f"kept policy not used: {error}")

    def _load_rules(self) -> None:
        """The identity rules that were in use before the kept policy came, which holds some this guard does not know."""
        document = load_document(self.settings.state_dir, RULES_FILE)
        if document is None:
            return
        policy = verify(document, self.settings.keys, self.settings.name, 0, None)
        if policy.identity is not None:
            self.rules, self._rules_document = IdentityRules(policy.identity), document

    def take(self, document: Any) -> Policy:
        """Verify a fetched document, keep it on disk and obey it. Raises PolicyError, and goes on with the old one."""
        held = 0 if self.policy is None else self.policy.version
        policy = verify(document, self.settings.keys, self.settings.name, held, self.now_s())
        self._take_rules(policy, document)
        if self.settings.state_dir:
            try:
                if self.rules_fault and self._rules_document is not None:
                    save_document(self.settings.state_dir, self._rules_document, RULES_FILE)
                save_document(self.settings.state_dir, document)
            except OSError as error:
                self.trouble(f"policy not kept on disk: {error}")
        self.policy = policy
        if policy.unknown:
            self.trouble(f"{policy.unknown} entries with actions this guard does not know were left out")
        return policy

    def _take_rules(self, policy: Policy, document: Any) -> None:
        """Use the policy's identity rules; when it holds some this guard does not know, go on with those in use, and say so."""
        try:
            if policy.identity is None:
                self.rules = None
            elif self.rules is None or self.rules.raw != policy.identity:
                self.rules = IdentityRules(policy.identity)
            self.rules_fault, self._rules_document = "", document
        except UnknownRules as error:
            fault = f"identity rules not known to this guard, the former ones are kept: {error}"
            if fault != self.rules_fault:
                self.trouble(fault)
            self.rules_fault = fault

    def trouble(self, message: str) -> None:
        """Something a person should know: logged, and the newest goes into the report."""
        self.fault = message
        LOG.warning("%s", message)

    def posture(self) -> Posture:
        """Obey, pass or refuse everything right now."""
        now_s = self.now_s()
        if now_s >= self._look_at_s:
            self._look(now_s)
        if self.break_glass is not None:
            return Posture(False, None, "break-glass")
        policy = self.policy
        if policy is not None and now_s < policy.expires_at_s:
            return OBEY
        return self._without(policy, now_s)

    def _look(self, now_s: float) -> None:
        """Once a second: is there a break-glass file, and is it still good?"""
        self._look_at_s = now_s + LOOK_EVERY_S
        if not self._glass_file:
            return
        try:
            found = read_break_glass(self._glass_file)
        except (ValueError, OSError) as error:
            found = None
            self._say(f"break-glass file not used: {error}", now_s)
        glass = found if found is not None and found.until_s > now_s else None
        if glass is not None and self.break_glass is None:
            LOG.warning("break-glass: everything passes until %s: %s", glass.until, glass.reason)
        self.break_glass = glass

    def _without(self, policy: Policy | None, now_s: float) -> Posture:
        """No policy in force: open or closed, as configured."""
        code = "no_policy" if policy is None else "policy_expired"
        mode = self.settings.on_expiry or (policy.on_expiry if policy is not None else "open")
        held = "" if policy is None else f"; version={policy.version}"
        self._say(f"{code}{held}: failing {mode} until a policy is fetched", now_s)
        if mode == "open":
            return Posture(False, None, f"{code}; open{held}")
        message = "Tokenfuse: no cost policy is in force, and this guard is told to refuse then"
        return Posture(False, Refusal(code, message, None, CLOSED_RETRY_S), "")

    def _say(self, message: str, now_s: float) -> None:
        if now_s >= self._say_at_s:
            self._say_at_s = now_s + SAY_EVERY_S
            self.trouble(message)

    def match(self, facts: RequestFacts) -> Match:
        policy = self.policy
        return NO_MATCH if policy is None else policy.match(facts)

    def decide(self, match: Match, facts: RequestFacts, *, can_truncate: bool = False) -> tuple[Decision, Hold]:
        """The decision, counted; and what the request holds until ``meters.settle`` when it passes."""
        policy = self.policy
        decision = PASS if policy is None else policy.decide(match, facts, can_truncate=can_truncate)
        hold = NO_HOLD
        if match.meters and decision.refusal is None:
            admission = self.meters.admit(match, facts, self.now_s())
            hold = admission.hold
            decision = decision._replace(refusal=admission.refusal, notes=decision.notes + admission.notes)
        self.counts.note(decision.notes, decision.refusal is not None, self.now_s())
        return decision, hold

    def count_posture(self, posture: Posture) -> None:
        """A request that was passed or refused without looking at entries."""
        self.counts.add("passed" if posture.refusal is None else "refused")

    def report(self) -> dict[str, Any]:
        """The body of ``POST /v1/guards/report``: counts since the last one, and how the guard stands."""
        now_s = self.now_s()
        policy = self.policy
        expired = policy is not None and now_s >= policy.expires_at_s
        glass = self.break_glass
        found = self.counts.drain(now_s)
        found["policy_version"] = None if policy is None else policy.version
        found["expired"] = expired
        found["break_glass"] = None if glass is None else {"until": glass.until, "reason": glass.reason}
        rules = None if self.rules is None else self.rules.at(now_s)
        found["rules_version"] = None if rules is None else rules.version
        found["rules_fault"] = _printable(self.rules_fault)
        found["note"] = _printable(self.fault)
        return found


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())[:120]


# ---- wire ----

MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def call(
    method: str, url: str, token: str, *, body: bytes | None = None, headers: dict[str, str] | None = None, timeout_s: float
) -> Answer:
    """Any status is an answer. Raises OSError (URLError, timeout) when there is none."""
    sent = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "tokenfuse-guard"}
    sent.update(headers or {})
    request = urllib.request.Request(url, data=body, headers=sent, method=method)
    try:
        with _OPENER.open(request, timeout=timeout_s) as got:
            return Answer(got.status, {k.lower(): v for k, v in got.headers.items()}, got.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read(MAX_ANSWER_BYTES))


# ---- fetch ----

FIRST_BACKOFF_S = 0.5
MAX_BACKOFF_S = 30.0
CALL_TIMEOUT_S = 10.0
HEARTBEAT_S = 60.0
FAILURES = (OSError, http.client.HTTPException, ValueError)


def backoff_s(failures: int) -> float:
    """Full jitter on 0.5, 1, 2 … 30 s, so that guards do not return all at once; at least a tenth."""
    most = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 10))
    return most * (0.1 + 0.9 * JITTER.random())


class Fetcher:
    """Keeps one guard's policy fresh and reports for it. ``more`` adds fields of other parts (the usage sender) to the report."""

    def __init__(self, guard: Guard, more: Callable[[], dict[str, Any]] | None = None) -> None:
        self._guard = guard
        self._more = more
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._etag = ""

    def start(self) -> None:
        """Start both threads (daemons); a second call does nothing."""
        if self._threads or not self._guard.settings.url:
            return
        for name, work in (("tokenfuse-policy", self._keep_fetching), ("tokenfuse-report", self._keep_reporting)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Ask both threads to end, and send what is left to report."""
        self._stop.set()
        if self._threads:
            self.send_report()

    def _keep_fetching(self) -> None:
        failures = 0
        while not self._stop.is_set():
            failures = 0 if self.fetch_once() else failures + 1
            if failures:
                self._stop.wait(backoff_s(failures))

    def fetch_once(self) -> bool:
        """One long poll: True when a policy was taken or nothing is newer."""
        settings, policy = self._guard.settings, self._guard.policy
        if policy is not None and policy.expires_at_s <= self._guard.now_s():
            self._etag = ""
        headers = {"If-None-Match": self._etag} if self._etag else {}
        wait_s = settings.wait_s if self._etag else 0
        url = f"{settings.url}/v1/policy?wait={wait_s:g}"
        try:
            answer = call("GET", url, settings.token, headers=headers, timeout_s=wait_s + CALL_TIMEOUT_S)
            return self._took(answer)
        except PolicyError as error:
            self._guard.trouble(f"policy refused ({error.code}): {error}")
        except FAILURES as error:
            self._guard.trouble(f"policy not fetched: {error}")
        return False

    def _took(self, answer: Answer) -> bool:
        if answer.status == 304:
            return True
        if answer.status != 200:
            raise ValueError(f"the centre answered {answer.status}")
        self._guard.take(json.loads(answer.body))
        self._etag = answer.headers.get("etag", "")
        return bool(self._etag)

    def _keep_reporting(self) -> None:
        quiet_s = 0.0
        every_s = max(0.1, self._guard.settings.report_every_s)
        while not self._stop.wait(every_s * (0.75 + 0.5 * JITTER.random())):
            quiet_s += every_s
            if self.send_report(only_if_needed=quiet_s < HEARTBEAT_S):
                quiet_s = 0.0

    def send_report(self, *, only_if_needed: bool = False) -> bool:
        """Send one report; what did not arrive is counted into the next. True when one was sent."""
        guard, settings = self._guard, self._guard.settings
        report = guard.report()
        body = {**report, **(self._more() if self._more is not None else {})}
        if only_if_needed and not _worth_sending(body):
            guard.counts.restore(report)
            return False
        try:
            raw = json.dumps(body).encode()
            headers = {"Content-Type": "application/json"}
            answer = call(
                "POST", f"{settings.url}/v1/guards/report", settings.token, body=raw, headers=headers, timeout_s=CALL_TIMEOUT_S
            )
            if answer.status < 300:
                guard.fault = ""
                return True
            guard.trouble(f"report not taken: the centre answered {answer.status}")
        except FAILURES as error:
            guard.trouble(f"report not sent: {error}")
        guard.counts.restore(report)
        return False


def _worth_sending(body: dict[str, Any]) -> bool:
    return bool(body["entries"] or body["refused"] or body["dropped"] or body["expired"] or body["break_glass"] or body["note"])


# ---- tenant_header ----

HEADER = "x-tokenfuse-tenant"
GOOD_FOR_S = 300


class Vouched(NamedTuple):
    tenant: str
    service_tier: str


def sign_tenant(tenant: str, service_tier: str, key: bytes, now_s: float) -> str:
    """The header's value, good for five minutes."""
    signed = f"v1;t={int(now_s)};tier={service_tier};path={quote(tenant)}"
    return f"{signed};sig={hmac.new(key, signed.encode(), hashlib.sha256).hexdigest()}"


def read_tenant(value: str, keys: Keys, now_s: float) -> Vouched | None:
    """Who the gateway says this is, None when the header is forged, stale or broken."""
    signed, found, signature = value.rpartition(";sig=")
    fields = dict(part.partition("=")[::2] for part in signed.split(";")[1:])
    good = False
    for _, key in keys:
        expected = hmac.new(key, signed.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        good |= hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), expected.encode())
    when = fields.get("t", "")
    if not (found and good and signed.startswith("v1;") and when.isdigit() and abs(now_s - int(when)) <= GOOD_FOR_S):
        return None
    return Vouched(unquote(fields.get("path", "")), fields.get("tier", ""))


# ---- tokenizer ----

TIMEOUT_S = 5.0
CHAT_FIELDS = ("model", "messages", "tools", "chat_template", "chat_template_kwargs", "add_generation_prompt")
_Message = MutableMapping[str, Any]


def question(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The /tokenize body for a request, None for a kind of prompt it cannot count."""
    if isinstance(data.get("messages"), list):
        return {name: data[name] for name in CHAT_FIELDS if data.get(name) is not None}
    for name in ("prompt", "input"):
        if isinstance(data.get(name), str) and not data.get("instructions"):
            return {"model": data.get("model"), "prompt": data[name]}
    return None


def tokenize_request(url: str, data: Mapping[str, Any]) -> int | None:
    """Ask a server (blocking); None when it does not tell."""
    asked = question(data)
    if asked is None:
        return None
    request = urllib.request.Request(url, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return _count(answer.read())
    except (OSError, http.client.HTTPException):
        return None


async def tokenize_in_app(app: Callable[..., Awaitable[None]], scope: Mapping[str, Any], data: Mapping[str, Any]) -> int | None:
    """Ask the app behind the guard, without a network; None when it does not tell."""
    asked = question(data)
    if asked is None:
        return None
    raw = json.dumps(asked).encode()
    parts: list[bytes] = []
    status = 0
    left = [{"type": "http.request", "body": raw, "more_body": False}]

    async def receive() -> _Message:
        return left.pop() if left else {"type": "http.disconnect"}

    async def send(message: _Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body") or b"")

    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    inner = {**scope, "path": "/tokenize", "raw_path": b"/tokenize", "query_string": b"", "headers": headers, "state": {}}
    await app(inner, receive, send)
    return _count(b"".join(parts)) if status == 200 else None


def _count(raw: bytes) -> int | None:
    try:
        found = json.loads(raw)["count"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


# ---- truncate ----

MARK = "\n[…]\n"


def truncate(data: dict[str, Any], most_tokens: int) -> bool:
    """Shorten the longest user text of ``data`` (changed in place) until the prompt's bytes fit. False when that cannot do it."""
    for _ in range(len(data.get("messages") or ()) + 1):
        size = bound(data, 0).tokens
        if size is None:
            return False
        if size <= most_tokens:
            return True
        texts = _texts(data)
        if not texts:
            return False
        holder, key = max(texts, key=lambda found: len(found[0][found[1]].encode("utf-8", "surrogatepass")))
        holder[key] = _cut(holder[key], size - most_tokens)
    size = bound(data, 0).tokens
    return size is not None and size <= most_tokens


def _texts(data: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    found: list[tuple[dict[str, Any], str]] = []
    for message in data.get("messages") or ():
        if not isinstance(message, dict) or message.get("role") == "system":
            continue
        content = message.get("content")
        if isinstance(content, str) and content:
            found.append((message, "content"))
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str) and part["text"]:
                found.append((part, "text"))
    if isinstance(data.get("prompt"), str) and data["prompt"]:
        found.append((data, "prompt"))
    return found


def _cut(text: str, surplus_bytes: int) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    keep = len(raw) - surplus_bytes - len(MARK.encode())
    if keep <= 0:
        return ""
    head, tail = raw[: keep // 2], raw[len(raw) - (keep - keep // 2) :]
    return head.decode("utf-8", "ignore") + MARK + tail.decode("utf-8", "ignore")


# ---- journal ----

try:
    import fcntl
except ImportError:  # no file locks on this system: what is not sent is kept in memory, as without a folder
    fcntl = None  # type: ignore[assignment]

PART = ".usage.part"


class Part:
    """One file of a journal. ``waiting`` of its lines are not off our hands; closed and none waiting, it is removed."""

    def __init__(self, folder: str, suffix: str = PART) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self.path = os.path.join(folder, name + suffix)
        self.waiting = 0
        self.closed = False
        hidden = os.path.join(folder, f".new-{name}")
        self.handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        os.rename(hidden, self.path)


class Journal:
    """Parts in ``folder``; "" keeps nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder if fcntl is not None else ""
        self._part: Part | None = None
        self._lock = threading.Lock()

    def keep(self, line: bytes) -> Part | None:
        """Write a payload's line; the part to be told by ``done``, None when nothing is kept. Raises OSError."""
        if not self._folder:
            return None
        with self._lock:
            if self._part is None:
                self._part = Part(self._folder)
            os.write(self._part.handle, line + b"\n")
            self._part.waiting += 1
            return self._part

    def cut(self) -> None:
        """Begin a new part with the next line."""
        with self._lock:
            part, self._part = self._part, None
            if part is not None:
                part.closed = True
                remove_when_done(part)

    def done(self, part: Part | None) -> None:
        """A line of this part is sent, kept elsewhere, or lost and counted."""
        if part is not None:
            with self._lock:
                part.waiting -= 1
                remove_when_done(part)

    def left_behind(self) -> tuple[list[Any], list[str], int]:
        """Payloads of processes that are gone, their files (to remove once those are safe), and the count of torn lines."""
        payloads: list[Any] = []
        paths: list[str] = []
        torn = 0
        for path in files_of(self._folder, PART):
            for line in orphan_lines(path, paths):
                try:
                    payloads.append(json.loads(line))
                except ValueError:
                    torn += 1
        return payloads, paths, torn


def remove_when_done(part: Part) -> None:
    """Unlink and close a part that is closed and of which nothing waits."""
    if part.closed and part.waiting <= 0 and part.handle >= 0:
        try:
            os.unlink(part.path)
        except FileNotFoundError:
            """Somebody cleared the folder."""
        os.close(part.handle)
        part.handle = -1


def files_of(folder: str, suffix: str) -> list[str]:
    """Paths of the folder's files of one kind, oldest first; none where there is no folder."""
    names = sorted(os.listdir(folder)) if folder and os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.endswith(suffix)]


def orphan_lines(path: str, paths: list[str]) -> list[bytes]:
    """The lines of a part whose process is gone, which is then in ``paths``; else none."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return []
    with os.fdopen(handle, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return []
        paths.append(path)
        return file.read().splitlines()


# ---- running_calls ----

RUNNING = ".usage.running"
COMPACT_LINES = 10_000
STOPPED = {"error_class": "GatewayStopped", "error_message": "the gateway's process ended before it logged this call"}


class RunningCalls:
    """Attempts under way by LiteLLM's call id. ``folder`` "" keeps nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder if fcntl is not None else ""
        self._open: dict[str, list[bytes]] = {}
        self._part: Part | None = None
        self._lines = 0
        self._lock = threading.Lock()

    def began(self, call_id: str, payload: dict[str, Any]) -> None:
        """An attempt goes to its upstream; ``payload`` is what to report should nothing more be heard of it. Raises OSError."""
        if not self._folder or not call_id:
            return
        line = json.dumps({"began": call_id, "payload": payload}, default=str).encode()
        with self._lock:
            self._open.setdefault(call_id, []).append(line)
            self._write(line)

    def ended(self, call_id: str, *, every: bool) -> None:
        """An attempt of this call is logged; ``every``: the call is over, whatever LiteLLM never logged of it. Raises OSError."""
        with self._lock:
            attempts = self._open.get(call_id)
            if not attempts:
                return
            attempts.pop(0)
            if every or not attempts:
                del self._open[call_id]
            self._write(json.dumps({"ended": call_id, "every": every}).encode())

    def _write(self, line: bytes) -> None:
        if self._part is None or self._lines >= COMPACT_LINES + 2 * len(self._open):
            self._begin_file()
        else:
            os.write(self._part.handle, line + b"\n")
            self._lines += 1

    def _begin_file(self) -> None:
        """A new file of what is open now; the old one goes."""
        former, self._part = self._part, Part(self._folder, RUNNING)
        held = [line for attempts in self._open.values() for line in attempts]
        os.write(self._part.handle, b"".join(line + b"\n" for line in held))
        self._lines = len(held)
        if former is not None:
            former.closed = True
            remove_when_done(former)

    def left_behind(self, logged: set[str]) -> tuple[list[dict[str, Any]], list[str]]:
        """Payloads of calls that were under way in processes that are gone, but for those ``logged``; and the files."""
        found: list[dict[str, Any]] = []
        paths: list[str] = []
        for path in files_of(self._folder, RUNNING):
            lines = orphan_lines(path, paths)
            found.extend(_stopped(payload, path) for call, payload in _still_open(lines) if call not in logged)
        return found, paths


def _stopped(payload: dict[str, Any], path: str) -> dict[str, Any]:
    """Ended when its process was last heard of; a file's time is coarser than ours and may lie before the call's own."""
    return {**payload, "endTime": max(os.path.getmtime(path), payload["startTime"])}


def _still_open(lines: list[bytes]) -> list[tuple[str, dict[str, Any]]]:
    calls: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue  # torn: its call was begun as the process ended, and never reached an upstream
        if "began" in said:
            calls.setdefault(said["began"], []).append(said["payload"])
        elif said["every"]:
            calls.pop(said["ended"], None)
        else:
            calls.get(said["ended"], [{}]).pop(0)
    return [(call, attempts[-1]) for call, attempts in calls.items() if attempts]


def unheard_of(call_id: str, kind: str, kwargs: Mapping[str, Any], known: Mapping[str, Any], now_s: float) -> dict[str, Any]:
    """A call in the shape of LiteLLM's logging payload, from what is known as it is sent. ``known``: LiteLLM's metadata."""
    model = str(kwargs.get("model") or "")
    owner = {name: value for name, value in known.items() if name.startswith("user_api_key_") and isinstance(value, str)}
    return {
        "id": call_id,
        "litellm_call_id": call_id,
        "call_type": kind,
        "status": "failure",
        "startTime": now_s,
        "model": model,
        "custom_llm_provider": model.partition("/")[0] if "/" in model else "",
        "model_group": known.get("model_group"),
        "api_base": kwargs.get("api_base"),
        "stream": kwargs.get("stream") is True,
        "request_tags": known.get("tags") if isinstance(known.get("tags"), list) else [],
        "metadata": owner,
        "error_information": STOPPED,
    }


# ---- usage_sender ----

BATCH = 200
FLUSH_S = 0.5
SEND_TIMEOUT_S = 15.0
MAX_QUEUE = 20_000
MAX_SPILL_BYTES = 256 * 1024 * 1024
HOPELESS = (400, 404, 405, 415, 422)
SUFFIX = ".usage.json"
ADOPT_EVERY_S = 10.0
"""How often files of processes that are gone are looked for."""


class Kept(dict):  # type: ignore[type-arg]
    """A payload whose line is in the journal, until it is offered."""

    line: bytes
    part: Part | None
    fields: int


class UsageSender:
    """Sends payloads to ``url``. ``folder`` "" keeps what cannot be sent in memory only. ``dropped(n)`` is told of every loss;
    ``before()`` runs in the sending thread ahead of each batch (what others still held may be offered there)."""

    def __init__(
        self, url: str, token: str, folder: str, dropped: Callable[[int], None], *, max_queue: int = MAX_QUEUE,
        max_spill_bytes: int = MAX_SPILL_BYTES, before: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._url, self._token, self._folder, self._dropped = url, token, folder, dropped
        self._max_queue, self._max_spill_bytes, self._before = max_queue, max_spill_bytes, before
        self._journal = Journal(folder)
        self._running = RunningCalls(folder)
        self._adopt_at_s = 0.0
        self._queue: deque[Kept] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures = 0
        self._try_at_s = 0.0
        self.sent = 0
        self.spilled = 0
        self.fault = ""

    def start(self) -> None:
        """Start the thread, which first sends what an earlier process left behind; a second call does nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tokenfuse-usage", daemon=True)
            self._thread.start()

    def began(self, call_id: str, payload: dict[str, Any]) -> None:
        """A call goes to its upstream: should this process be killed before it is logged, the next one reports ``payload``."""
        try:
            self._running.began(call_id, payload)
        except OSError as error:
            self.fault = f"a call not kept on disk: {error}"

    def ended(self, call_id: str, *, every: bool) -> None:
        """An attempt of a call is logged, or (``every``) the call is over."""
        try:
            self._running.ended(call_id, every=every)
        except OSError as error:
            self.fault = f"a call's end not kept on disk: {error}"

    def keep(self, payload: dict[str, Any]) -> Kept:
        """A copy that is safe from now on: should this process be killed, the next one sends it. To be offered when ready."""
        kept = Kept(payload)
        kept.line, kept.fields = json.dumps(payload, default=str).encode(), len(payload)
        try:
            kept.part = self._journal.keep(kept.line)
        except OSError as error:
            kept.part, self.fault = None, f"usage not kept on disk: {error}"
        return kept

    def offer(self, payload: dict[str, Any]) -> bool:
        """Take a payload to send; False (and counted as dropped) when the queue is full. Never waits for the network."""
        kept = payload if isinstance(payload, Kept) else self.keep(payload)
        if len(self._queue) >= self._max_queue:
            self._journal.done(kept.part)
            self._dropped(1)
            return False
        if len(kept) != kept.fields:
            kept.line = json.dumps(kept, default=str).encode()
        self._queue.append(kept)
        if len(self._queue) >= BATCH:
            self._wake.set()
        return True

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread; what is left is sent once or written to a file."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def stats(self) -> dict[str, Any]:
        """Fields for the guard's report."""
        found = {"sent": self.sent, "spilled": self.spilled, "queued": len(self._queue), "files": len(self._files())}
        return {"usage": {**found, "fault": self.fault}}

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(FLUSH_S)
            self._wake.clear()
            self._before()
            self._drain()
            if not self._waiting():
                self._adopt()
                self._resend_one()
        self._drain()

    def _waiting(self) -> bool:
        return time.monotonic() < self._try_at_s

    def _drain(self) -> None:
        self._journal.cut()
        while self._queue:
            if self._waiting() and not self._folder and not self._stop.is_set():
                return
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            lines = [kept.line for kept in batch]
            if self._waiting() or not self._send(lines):
                self._spill(lines, batch)
            for kept in batch:
                self._journal.done(kept.part)

    def _send(self, lines: list[bytes]) -> bool:
        """True when the batch is off our hands: taken, or refused for good (then it is counted as dropped)."""
        raw = gzip.compress(b"[" + b",".join(lines) + b"]", 1)
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        try:
            status = call("POST", self._url, self._token, body=raw, headers=headers, timeout_s=SEND_TIMEOUT_S).status
        except (OSError, http.client.HTTPException) as error:
            return self._failed(f"usage not sent: {error}")
        if status < 300:
            self._failures, self.fault = 0, ""
            self.sent += len(lines)
            return True
        if status == 413 and len(lines) > 1:
            half = len(lines) // 2
            return all([self._send_or_spill(lines[:half]), self._send_or_spill(lines[half:])])
        if status in HOPELESS or status == 413:
            self.fault = f"{len(lines)} usage records refused: the centre answered {status}"
            self._dropped(len(lines))
            return True
        return self._failed(f"usage not taken: the centre answered {status}")

    def _send_or_spill(self, lines: list[bytes]) -> bool:
        if not self._send(lines):
            self._spill(lines)
        return True

    def _failed(self, message: str) -> bool:
        self._failures += 1
        self.fault = message
        self._try_at_s = time.monotonic() + backoff_s(self._failures)
        return False

    def _spill(self, lines: list[bytes], batch: list[Kept] | None = None) -> None:
        """To a file; without a folder back into the queue, as far as it has room."""
        if not self._folder:
            again = batch or [_unkept(line) for line in lines]
            if self._stop.is_set() or len(self._queue) + len(again) > self._max_queue:
                self._dropped(len(again))
            else:
                self._queue.extendleft(reversed(again))
            return
        if self._write(lines):
            self.spilled += len(lines)
        else:
            self._dropped(len(lines))

    def _write(self, lines: list[bytes]) -> bool:
        """One waiting file of these lines; False, with the fault, when there is no room."""
        raw = b"[" + b",".join(lines) + b"]"
        try:
            if self._spill_bytes() + len(raw) > self._max_spill_bytes:
                raise OSError(f"more than {self._max_spill_bytes} bytes are waiting")
            write_atomic(os.path.join(self._folder, f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}{SUFFIX}"), raw)
        except OSError as error:
            self.fault = f"usage not kept on disk: {error}"
            return False
        return True

    def _adopt(self) -> None:
        """Take over what processes that are gone had not sent."""
        if time.monotonic() < self._adopt_at_s:
            return
        self._adopt_at_s = time.monotonic() + ADOPT_EVERY_S
        payloads, paths, torn = self._journal.left_behind()
        if torn:
            self.fault = f"{torn} lines of usage were torn when their process ended"
            self._dropped(torn)
        calls, call_paths = self._running.left_behind({str(payload.get("litellm_call_id")) for payload in payloads})
        lines = [json.dumps(payload).encode() for payload in [*payloads, *calls]]
        if all([self._write(lines[at : at + BATCH]) for at in range(0, len(lines), BATCH)]):
            for path in [*paths, *call_paths]:
                _remove(path)

    def _files(self) -> list[str]:
        """Waiting files, oldest first."""
        if not self._folder or not os.path.isdir(self._folder):
            return []
        return sorted(os.path.join(self._folder, name) for name in os.listdir(self._folder) if name.endswith(SUFFIX))

    def _spill_bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self._files() if os.path.exists(path))

    def _resend_one(self) -> None:
        for path in self._files()[:1]:
            batch = self._read(path)
            if batch is None or self._send([json.dumps(payload).encode() for payload in batch]):
                _remove(path)
                self._wake.set()

    def _read(self, path: str) -> list[dict[str, Any]] | None:
        """A waiting batch, None when another worker has sent it or the file is not one (then its loss is counted)."""
        try:
            with open(path, "rb") as file:
                found = json.load(file)
        except FileNotFoundError:
            return None
        except ValueError as error:
            self.fault = f"{path} is not a batch of usage: {error}"
            self._dropped(1)
            return None
        return found if isinstance(found, list) else None


def _unkept(line: bytes) -> Kept:
    kept = Kept()
    kept.line, kept.part, kept.fields = line, None, 0
    return kept


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        """Another worker has sent it."""


# ---- operations ----

ENDS = "tokenfuse_ends_operation"
SETTLE_S = 2.0
"""LiteLLM logs from a queue: after the caller has its failure, so long is waited for what is still to be logged."""
HOLD_S = 60.0
MAX_HELD = 10_000


class _Operation:
    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.given_up_s: float | None = None
        self.failures: list[dict[str, Any]] = []


class Operations:
    """Calls of which an attempt failed, by LiteLLM's call id. Every method gives the payloads that need not wait any longer."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Operation] = OrderedDict()
        self._lock = threading.Lock()

    def failed(self, call_id: str, payload: dict[str, Any], now_s: float) -> list[dict[str, Any]]:
        """An attempt failed."""
        if not call_id:
            return [payload]
        with self._lock:
            self._of(call_id, now_s).failures.append(payload)
            return self._settled(self._open.popitem(last=False)[1]) if len(self._open) > MAX_HELD else []

    def answered(self, call_id: str) -> list[dict[str, Any]]:
        """The call was answered: every failed attempt of it was followed by another."""
        with self._lock:
            operation = self._open.pop(call_id, None)
        failures = operation.failures if operation else []
        for payload in failures:
            payload[ENDS] = False
        return failures

    def given_up(self, call_id: str, now_s: float) -> None:
        """The caller was given the failure."""
        if call_id:
            with self._lock:
                self._of(call_id, now_s).given_up_s = now_s

    def due(self, now_s: float, everything: bool = False) -> list[dict[str, Any]]:
        """What was waited for long enough: settled where the caller had the failure, else without a word of it."""
        found: list[dict[str, Any]] = []
        with self._lock:
            for call_id, operation in list(self._open.items()):
                settled = operation.given_up_s is not None and now_s - operation.given_up_s >= SETTLE_S
                if everything or settled or now_s - operation.since_s >= HOLD_S:
                    del self._open[call_id]
                    found.extend(self._settled(operation))
        return found

    def _of(self, call_id: str, now_s: float) -> _Operation:
        return self._open.setdefault(call_id, _Operation(now_s))

    @staticmethod
    def _settled(operation: _Operation) -> list[dict[str, Any]]:
        failures = sorted(operation.failures, key=lambda payload: float(payload.get("endTime") or 0))
        if operation.given_up_s is not None:
            for payload in failures:
                payload[ENDS] = payload is failures[-1]
        return failures


# ---- stream_usage ----

MAX_STREAMS = 10_000
"""Streams that LiteLLM never logged are forgotten, oldest first, beyond so many."""


class StreamUsage:
    """Chunks of running streams by LiteLLM's call id."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[str, list[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def watch(self, call_id: str, response: Any) -> None:
        """A response was given to its caller; one that is no stream of chunks is not watched."""
        chunks = getattr(response, "chunks", None)
        if isinstance(chunks, list) and call_id:
            with self._lock:
                self._chunks[call_id] = chunks
                if len(self._chunks) > MAX_STREAMS:
                    self._chunks.popitem(last=False)

    def seen(self, call_id: str, answer_id: str) -> dict[str, Any] | None:
        """What the upstream said of its usage, {} when it said nothing; None when this answer's chunks were not watched."""
        with self._lock:
            chunks = self._chunks.pop(call_id, None)
        if not chunks or (answer_id and all(getattr(chunk, "id", "") != answer_id for chunk in chunks)):
            return None
        found: dict[str, Any] = {}
        for chunk in chunks:
            usage = _plain(getattr(chunk, "usage", None))
            found.update(usage if isinstance(usage, dict) else {})
        return found


def _plain(value: Any) -> Any:
    """As JSON, without what is null: usage on several chunks is cumulative, so of each field the last that is given counts."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {name: plain for name, inner in value.items() if (plain := _plain(inner)) is not None} or None
    return value


# ---- features ----

FEATURES = "tokenfuse_features"
WAITING = 32
"""Calls that may wait; each holds its texts in memory."""
MAX_CHARS = 262_144
MAX_PARTS = 4_096
MAX_WORDS = 8_192
MAX_TOOL_CALLS = 64
MAX_TOOL_NAME = 64
BLOCK_WORDS = 16
GRAM_WORDS = 4
PERMUTATION_COUNT = 64
PRIME = (1 << 61) - 1
LOW_32 = (1 << 32) - 1
REDACTED = "redacted-by-litellm"
TEXT_FIELDS = ("text", "content", "arguments", "output", "name")
BREATH_S = 0.0005
"""Between two slices of work the thread steps back, so that the gateway's event loop never waits for more than a slice."""


class CallTexts(NamedTuple):
    """What the numbers are computed of: LiteLLM's ``messages`` and ``response``, and the tools offered."""

    messages: Any
    response: Any
    offered: Any


def seed(name: str) -> int:
    return int.from_bytes(blake2b(f"tokenfuse/prefix-sketch/1/{name}".encode(), digest_size=16).digest(), "big")


PERMUTED = tuple((1 + seed(f"a{n}") % (PRIME - 1), seed(f"b{n}") % PRIME) for n in range(PERMUTATION_COUNT))


def is_sampled(payload: Mapping[str, Any], percent: int) -> bool:
    """Whether this call is among the ``percent`` computed: by its session where it has one, else by the call."""
    if percent <= 0:
        return False
    name = _session_of(payload) or str(payload.get("trace_id") or payload.get("litellm_call_id") or "")
    return zlib.crc32(name.encode("utf-8", "replace")) % 100 < percent


def _session_of(payload: Mapping[str, Any]) -> str:
    """As the centre reads it."""
    metadata = payload.get("metadata")
    said = metadata.get("requester_metadata") if isinstance(metadata, dict) else None
    return str(payload.get("session_id") or (said.get("session_id") if isinstance(said, dict) else None) or "")


def compute(texts: CallTexts, breathe: Callable[[], None] = lambda: None) -> dict[str, Any] | None:
    """``{"prefix_sketch", "repeat_ratio", "tools"}``: null or left out where unknown; None when LiteLLM hid the texts.

    ``tools`` are the names of the tools the answer called, in order. ``breathe`` is called between slices of work.
    """
    prompt = _prompt_words(texts)
    answer = _words_of(_answer_texts(texts.response))
    if prompt is None or answer is None:
        return None
    found: dict[str, Any] = {"tools": tools_called(texts.response)}
    found["repeat_ratio"] = repeat_ratio(answer)
    breathe()
    sketch = prefix_sketch(prompt, breathe)
    return {**found, "prefix_sketch": sketch} if sketch else found


def repeat_ratio(words: list[str]) -> str | None:
    """Share of the answer's runs of four words that stood in it before, four decimals; None for fewer than four words."""
    runs = len(words) - GRAM_WORDS + 1
    if runs < 1:
        return None
    different = len({tuple(words[n : n + GRAM_WORDS]) for n in range(runs)})
    return f"{(runs - different) / runs:.4f}"


def prefix_sketch(words: list[str], breathe: Callable[[], None] = lambda: None) -> list[int]:
    """MinHash of the prompt's prefixes by blocks of 16 words; empty for a prompt of fewer words."""
    elements, head = [], b""
    for start in range(0, len(words) - BLOCK_WORDS + 1, BLOCK_WORDS):
        block = "\x1f".join(words[start : start + BLOCK_WORDS]).encode("utf-8", "surrogatepass")
        head = blake2b(head + block, digest_size=8).digest()
        elements.append(int.from_bytes(head, "big"))
    found = []
    for number, (a, b) in enumerate(PERMUTED if elements else ()):
        found.append(min([(a * e + b) % PRIME for e in elements]) & LOW_32)
        if number % 4 == 3:
            breathe()
    return found


def tools_called(response: Any) -> list[str]:
    """Names of the tools the (first) answer called: OpenAI chat and responses, Anthropic messages."""
    names: list[Any] = []
    message = _first_message(response)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else [{"function": message.get("function_call")}]:
        function = call.get("function") if isinstance(call, dict) else None
        names.append(function.get("name") if isinstance(function, dict) else None)
    for item in _items(response, "output", "content"):
        if item.get("type") in ("function_call", "tool_use"):
            names.append(item.get("name"))
    good = (name for name in names if isinstance(name, str) and 0 < len(name) <= MAX_TOOL_NAME and name.isprintable())
    return list(islice(good, MAX_TOOL_CALLS))


def _first_message(response: Any) -> dict[str, Any]:
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def _items(response: Any, *names: str) -> Iterator[dict[str, Any]]:
    for name in names:
        found = response.get(name) if isinstance(response, dict) else None
        for item in found if isinstance(found, list) else ():
            if isinstance(item, dict):
                yield item


def _answer_texts(response: Any) -> Iterator[str]:
    if isinstance(response, str):
        yield response
        return
    message = _first_message(response)
    yield from _texts_in(message.get("content"), 0)
    choices = response.get("choices") if isinstance(response, dict) else None
    if isinstance(choices, list) and choices and isinstance(choices[0], dict) and isinstance(choices[0].get("text"), str):
        yield choices[0]["text"]
    for item in _items(response, "output", "content"):
        if item.get("type") in ("message", "text", "output_text"):
            yield from _texts_in(item.get("content", item.get("text")), 0)


def _prompt_words(texts: CallTexts) -> list[str] | None:
    """Tools first, then the messages with their roles: the order in which chat templates put them."""
    offered = json.dumps(texts.offered, sort_keys=True, default=str) if texts.offered else ""
    words = _words_of(_texts_in(texts.messages, 0))
    return None if words is None else (offered[:MAX_CHARS].split() + words)[:MAX_WORDS]


def _texts_in(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)) and depth < 8:
        for item in value:
            yield from _texts_in(item, depth + 1)
    elif isinstance(value, dict) and depth < 8:
        if isinstance(value.get("role"), str):
            yield value["role"]
        for name in TEXT_FIELDS:
            if name in value:
                yield from _texts_in(value[name], depth + 1)
        for call in value.get("tool_calls") or ():
            yield from _texts_in(call.get("function") if isinstance(call, dict) else None, depth + 1)


def _words_of(texts: Iterator[str]) -> list[str] | None:
    """At most ``MAX_WORDS`` words of the first ``MAX_CHARS`` characters; None when LiteLLM put its mark in a text's place."""
    words: list[str] = []
    chars = 0
    for text in islice(texts, MAX_PARTS):
        if text == REDACTED:
            return None
        if chars < MAX_CHARS and len(words) < MAX_WORDS:
            words += text[: MAX_CHARS - chars].split()
            chars += len(text)
    return words[:MAX_WORDS]


class FeatureWorker:
    """Adds ``tokenfuse_features`` to sampled payloads and hands every payload on to ``deliver``, each once."""

    def __init__(self, percent: int, deliver: Callable[[dict[str, Any]], Any], waiting: int = WAITING) -> None:
        self._percent, self._deliver = percent, deliver
        self._queue: queue.Queue[tuple[dict[str, Any], CallTexts] | None] = queue.Queue(waiting)
        self._thread: threading.Thread | None = None
        self.computed = 0
        self.skipped = 0

    def start(self) -> None:
        """Start the thread; a second call, or nothing to sample, does nothing."""
        if self._thread is None and self._percent > 0:
            self._thread = threading.Thread(target=self._run, name="tokenfuse-features", daemon=True)
            self._thread.start()

    def offer(self, payload: dict[str, Any], texts: CallTexts) -> None:
        """Deliver now, or after the numbers are computed. Never blocks and never loses a payload."""
        if self._thread is None or not is_sampled(payload, self._percent):
            self._deliver(payload)
            return
        try:
            self._queue.put_nowait((payload, texts))
        except queue.Full:
            self.skipped += 1
            self._deliver(payload)

    def stop(self, timeout_s: float = 2.0) -> None:
        """End the thread; calls that still wait are delivered without numbers."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        waiting = self._taken()
        self._queue.put(None)
        thread.join(timeout_s)
        for payload in waiting:
            self._deliver(payload)

    def stats(self) -> dict[str, Any]:
        """Fields for the guard's report."""
        return {"features": {"computed": self.computed, "skipped": self.skipped}}

    def _taken(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return found
            if item is not None:
                found.append(item[0])

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            payload, texts = item
            try:
                features = compute(texts, lambda: time.sleep(BREATH_S))
            except Exception:  # a shape nobody thought of must not cost the usage of this call, nor of all later ones
                features = None
                self.skipped += 1
            if features is not None:
                payload[FEATURES] = features
                self.computed += 1
            self._deliver(payload)


# ---- identity ----

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


# ---- call_facts ----

MAX_LABEL, MAX_LABEL_NAME, MAX_TAGS = 64, 48, 100
SECRET_WORDS = ("auth", "cookie", "credential", "password", "secret", "token", "api-key", "api_key", "apikey")
LABELS = ("requester_metadata", "spend_logs_metadata", "user_api_key_auth_metadata")
"""Where LiteLLM keeps labels, the owner's last: it wins."""
NOTHING = ("",)


class CallFacts(NamedTuple):
    """``user`` is the key's owner (LiteLLM's UserAPIKeyAuth), ``labelled`` the metadata LiteLLM itself writes to."""

    user: Any
    data: Mapping[str, Any]
    labelled: Mapping[str, Any]
    model: str
    deployment: str
    default_org: str
    default_tier: str
    key_names: Mapping[str, str]


Reader = Callable[[CallFacts], "tuple[str, ...]"]


def values_of(facts: CallFacts, version: RuleVersion) -> Values:
    """The values of the version's fields."""
    if version.readers is None:
        version.readers = [_READERS[field.partition(".")[0]](field, version.trusts) for field in version.fields]
    return tuple([read(facts) for read in version.readers])


def charge_of(guard: Guard, user: Any, data: Mapping[str, Any], model: str, deployment: str) -> tuple[str, str]:
    """The tenant path and service tier of a call: as the gateway knows them, or as the identity rules in force make it."""
    settings, rules = guard.settings, guard.rules
    tags = tags_of(data) if settings.trust_tags else ()
    said, tier = said_path(user, data, tags, settings.org), service_tier_of(tags, settings.service_tier)
    version = None if rules is None else rules.at(guard.now_s())
    if rules is None or version is None:
        return joined(said), tier
    facts = CallFacts(user, data, labelled(data), model, deployment, settings.org, settings.service_tier, rules.key_names)
    charge = version.charge(said, tier, values_of(facts, version))
    return joined(charge.path), charge.service_tier


Trusts = Callable[[str], bool]


def _owner(part: str, *names: str) -> Callable[[str, Trusts], Reader]:
    def reader(_: str, trusts: Trusts) -> Reader:
        is_trusted, default = trusts(f"tag.{part}"), part == "org"

        def read(facts: CallFacts) -> tuple[str, ...]:
            found = first_of(facts.user, *names) or tag_of(_tags(facts, is_trusted), part)
            return (found or (facts.default_org if default else ""),)

        return read

    return reader


def _user(field: str, trusts: Trusts) -> Reader:
    if trusts(field):
        return lambda facts: (str(facts.data.get("user") or "") or first_of(facts.user, "end_user_id", "user_id"),)
    return lambda facts: (first_of(facts.user, "user_id"),)


def _key_alias(_: str, __: Trusts) -> Reader:
    def read(facts: CallFacts) -> tuple[str, ...]:
        alias = first_of(facts.user, "key_alias")
        return (alias if is_label(alias) else facts.key_names.get(key_id_of(facts.user), ""),)

    return read


def _service_tier(_: str, trusts: Trusts) -> Reader:
    is_trusted = trusts("tag.service_tier")

    def read(facts: CallFacts) -> tuple[str, ...]:
        return (service_tier_of(_tags(facts, is_trusted), facts.default_tier),)

    return read


def _deployed(place: int) -> Callable[[str, Trusts], Reader]:
    def read(facts: CallFacts) -> tuple[str, ...]:
        parts = facts.deployment.split("/", 2)
        return (parts[place] if len(parts) > place else "",)

    return lambda _, __: read


def _tag_values(field: str, trusts: Trusts) -> Reader:
    name, is_trusted = field[len("tag.") :], trusts(field)
    starts = (f"{name}:", f"{name}=")

    def read_one(facts: CallFacts) -> tuple[str, ...]:
        for tag in _kept(_tags(facts, is_trusted)):
            if tag.startswith(starts) and is_label(tag):
                return (tag[len(name) + 1 :].strip(),)
        return NOTHING

    def read_all(facts: CallFacts) -> tuple[str, ...]:
        return tuple([tag for tag in _kept(_tags(facts, is_trusted)) if is_label(tag)]) or NOTHING

    return read_one if name else read_all


def _kept(tags: tuple[str, ...]) -> Sequence[str]:
    """The tags a usage record has room for."""
    return tags if len(tags) <= MAX_TAGS else [tag for tag in tags if is_label(tag)][:MAX_TAGS]


def _header_value(field: str, trusts: Trusts) -> Reader:
    name = field[len("header.") :]
    if not trusts(field) or name != name.lower() or not may_be_kept(name):
        return lambda _: NOTHING
    return lambda facts: (header_of(facts.data, name),)


def _metadata(field: str, trusts: Trusts) -> Reader:
    name, places = field[len("metadata.") :], LABELS if trusts(field) else LABELS[-1:]
    if not may_be_kept(name):
        return lambda _: NOTHING

    def read(facts: CallFacts) -> tuple[str, ...]:
        found: Any = ""
        for place in places:
            labels = facts.labelled.get(place)
            if isinstance(labels, dict) and name in labels:
                found = labels[name]
        return (found if is_label(found) else "",)

    return read


_READERS: dict[str, Callable[[str, Trusts], Reader]] = {
    "org": _owner("org", "organization_alias", "org_id"),
    "team": _owner("team", "team_alias", "team_id"),
    "project": _owner("project", "project_alias", "project_id"),
    "user": _user,
    "key_id": lambda _, __: lambda facts: (key_id_of(facts.user),),
    "key_alias": _key_alias,
    "service_tier": _service_tier,
    "requested_model": lambda _, __: lambda facts: (facts.model,),
    "cluster": _deployed(0),
    "namespace": _deployed(1),
    "model_id": _deployed(2),
    "gateway": lambda _, __: lambda _facts: ("litellm",),
    "tag": _tag_values,
    "header": _header_value,
    "metadata": _metadata,
}


def _tags(facts: CallFacts, is_trusted: bool) -> tuple[str, ...]:
    """The request's tags where they count, else those of the key, its team and project alone."""
    if is_trusted:
        return tags_of(facts.data)
    found: tuple[str, ...] = ()
    for owner in ("metadata", "team_metadata", "project_metadata"):
        labels = getattr(facts.user, owner, None)
        if labels:
            tags = labels.get("tags")
            if isinstance(tags, list):
                found += tuple([tag for tag in tags if isinstance(tag, str)])
    return found


def key_id_of(user: Any) -> str:
    """The hash by which usage knows a key."""
    return first_of(user, "api_key", "token")


def header_of(data: Mapping[str, Any], name: str) -> str:
    """A header of the client's request, '' where there is none, or none that is a label."""
    request = data.get("proxy_server_request")
    headers = request.get("headers") if isinstance(request, dict) else None
    value = headers.get(name) if isinstance(headers, Mapping) else None
    return value if is_label(value) else ""


def logged_headers(guard: Guard, request: Any) -> dict[str, str]:
    """The headers that rules look at, for the usage record: LiteLLM itself logs only those that begin with x-, and these
    only with its enterprise package."""
    rules = guard.rules
    if rules is None or not rules.headers or not isinstance(request, dict):
        return {}
    found = {name: header_of(request, name) for name in rules.headers if may_be_kept(name)}
    return {name: value for name, value in found.items() if value}


def may_be_kept(name: str) -> bool:
    """Whether a header or label of this name may be looked at: nothing that is named like a secret."""
    return is_label(name) and len(name) <= MAX_LABEL_NAME and not any(word in name.lower() for word in SECRET_WORDS)


def is_label(value: Any) -> bool:
    """A short printable text: what a usage record keeps of a label."""
    return isinstance(value, str) and 0 < len(value) <= MAX_LABEL and value.isprintable()


# ---- asgi ----

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
USAGE = re.compile(rb'"total_tokens"\s*:\s*(\d+)')
TAIL_BYTES = 4096


class Body(NamedTuple):
    """What was read of a request. ``whole`` is False when it is larger than the guard reads."""

    raw: bytes
    whole: bool


class GuardMiddleware:
    """Refuses, caps and counts requests to the guarded paths; everything else passes untouched."""

    def __init__(self, app: App, settings: GuardSettings | None = None, guard: Guard | None = None) -> None:
        self._app = app
        self._settings = settings or (guard.settings if guard is not None else from_env(os.environ))
        self.guard = guard or Guard(self._settings)
        self._paths = frozenset(self._settings.paths)
        self._fetcher: Fetcher | None = None

    def start(self) -> None:
        """Start fetching; happens with the first request (or lifespan) of each worker process."""
        if self._fetcher is None:
            self._fetcher = Fetcher(self.guard)
            self._fetcher.start()

    def stop(self) -> None:
        """End fetching; the next request would start it again."""
        if self._fetcher is not None:
            self._fetcher.stop()
            self._fetcher = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._fetcher is None:
            self.start()
        if scope["type"] != "http" or scope["method"] != "POST" or not self._guards(scope):
            await self._app(scope, receive, send)
            return
        posture = self.guard.posture()
        if not posture.obey:
            self.guard.count_posture(posture)
            if posture.refusal is not None:
                await refuse(send, posture.refusal)
            else:
                await self._app(scope, receive, _with_header(send, posture.note))
            return
        await self._obey(scope, receive, send)

    def _guards(self, scope: Scope) -> bool:
        path: str = scope["path"]
        root = scope.get("root_path") or ""
        return path in self._paths or (bool(root) and path.startswith(root) and path[len(root) :] in self._paths)

    async def _obey(self, scope: Scope, receive: Receive, send: Send) -> None:
        facts = self._facts(scope)
        match = self.guard.match(facts)
        policy = self.guard.policy
        by_model = not self._settings.deployment and policy is not None and policy.names_deployments
        if not match.entries and not by_model:
            self.guard.counts.note((), False, 0.0)
            await self._app(scope, receive, send)
            return
        data: dict[str, Any] | None = None
        if match.needs_body or by_model:
            body, receive = await _read(receive, self._settings.max_body_bytes)
            facts, match, data = await self._measure(scope, facts, match, body)
        decision, hold = self.guard.decide(match, facts)
        if decision.refusal is not None:
            await refuse(send, decision.refusal)
            return
        await self._pass(scope, receive, send, Passing(decision, hold, data, facts))

    def _facts(self, scope: Scope) -> RequestFacts:
        """Deployment as configured; tenant and tier only where the gateway vouches for them."""
        settings = self._settings
        facts = RequestFacts(deployment=settings.deployment, service_tier=settings.service_tier)
        value = _header(scope, HEADER.encode()) if settings.tenant_keys else ""
        vouched = read_tenant(value, settings.tenant_keys, self.guard.now_s()) if value else None
        if vouched is None:
            return facts
        return facts._replace(tenant=vouched.tenant, service_tier=vouched.service_tier or settings.service_tier)

    async def _measure(
        self, scope: Scope, facts: RequestFacts, match: Match, body: Body
    ) -> tuple[RequestFacts, Match, dict[str, Any] | None]:
        """Complete the facts from the body: cheaply by its size where that settles the caps, else parsed, else tokenised."""
        settings = self._settings
        readable = body.whole and not _header(scope, b"content-encoding")
        if readable and settings.deployment and match.needs_prompt and not match.needs_fields:
            quick = quick_bound(body.raw, settings.template_allowance_tokens)
            if quick is not None and quick <= match.prompt_cap:
                return RequestFacts(facts.model, facts.deployment, facts.tenant, facts.service_tier, quick), match, None
        data = _parsed(body.raw) if readable else None
        if data is None:
            return facts, match, None
        model = str(data.get("model") or "")
        found = bound(data, settings.template_allowance_tokens, settings.media_tokens)
        facts = facts._replace(
            model=model,
            deployment=settings.deployment_of(model),
            prompt_tokens_at_most=found.tokens,
            max_output_tokens=found.max_output_tokens,
        )
        match = self.guard.match(facts)
        if match.needs_prompt and settings.tokenize and (found.tokens is None or found.tokens > match.prompt_cap):
            facts = facts._replace(prompt_tokens=await self._tokenise(scope, data))
        return facts, match, data

    async def _tokenise(self, scope: Scope, data: dict[str, Any]) -> int | None:
        if self._settings.tokenize == "app":
            return await tokenize_in_app(self._app, scope, data)
        url = self._settings.tokenize
        return await asyncio.get_running_loop().run_in_executor(None, tokenize_request, url, data)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, passing: Passing) -> None:
        decision, hold = passing.decision, passing.hold
        if decision.delay_s:
            await asyncio.sleep(decision.delay_s)
        cap = decision.max_output_tokens
        if cap is not None and passing.data is not None:
            passing.data[output_field(passing.data, scope["path"])] = cap
            scope, receive = _rewritten(scope, receive, passing.data)
            send = _with_header(send, f"max_output_tokens={cap}")
        if not hold.rates and not hold.longs:
            await self._app(scope, receive, send)
            return
        counted = _Counted(send)
        try:
            await self._app(scope, receive, counted.send)
        finally:
            self.guard.meters.settle(hold, counted.tokens(passing.facts), self.guard.now_s())


class Passing(NamedTuple):
    """A request on its way: what was decided, what it holds, and its parsed body where one was needed."""

    decision: Decision
    hold: Hold
    data: dict[str, Any] | None
    facts: RequestFacts


class _Counted:
    """Counts what a metered answer used: its own ``usage`` where it tells, else the prompt's estimate and one token per event."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._tail = b""
        self._parts = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            part = message.get("body") or b""
            self._parts += 1 if part else 0
            self._tail = (self._tail + part[-TAIL_BYTES:])[-TAIL_BYTES:]
        await self._send(message)

    def tokens(self, facts: RequestFacts) -> int:
        told = USAGE.findall(self._tail)
        if told:
            return int(told[-1])
        prompt = facts.prompt_tokens if facts.prompt_tokens is not None else (facts.prompt_tokens_at_most or 0) // 4
        return prompt + self._parts


async def refuse(send: Send, refusal: Refusal) -> None:
    """Answer 503 with the OpenAI error body, and headers that keep clients from retrying at once."""
    raw = json.dumps(refusal.error_body()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(raw)), **refusal.headers()}
    pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 503, "headers": pairs})
    await send({"type": "http.response.body", "body": raw})


async def _read(receive: Receive, most: int) -> tuple[Body, Receive]:
    """Read the body, at most ``most`` bytes, and give back a ``receive`` that starts over."""
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body") or b"")
        if message["type"] != "http.request" or not message.get("more_body") or size > most:
            break
    whole = message["type"] == "http.request" and not message.get("more_body") and size <= most
    waiting = messages[::-1]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    if len(messages) == 1:
        return Body(messages[0].get("body") or b"", whole), replay
    return Body(b"".join(m.get("body") or b"" for m in messages), whole), replay


def _rewritten(scope: Scope, receive: Receive, data: dict[str, Any]) -> tuple[Scope, Receive]:
    raw = json.dumps(data).encode()
    headers = [(n, v) for n, v in scope["headers"] if n not in (b"content-length", b"transfer-encoding")]
    headers.append((b"content-length", str(len(raw)).encode()))
    sent = False

    async def replaced() -> Message:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": raw, "more_body": False}
        message = await receive()
        while message["type"] == "http.request":
            message = await receive()
        return message

    return {**scope, "headers": headers}, replaced


def _with_header(send: Send, note: str) -> Send:
    async def noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            pair = (b"x-tokenfuse-policy", note.encode("latin-1", "replace"))
            message = {**message, "headers": [*message.get("headers", ()), pair]}
        await send(message)

    return noted


def _header(scope: Scope, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return ""


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


# ---- litellm_hook ----

try:
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.proxy._types import ProxyException
except ImportError:  # the rest of the package works without LiteLLM

    class CustomLogger:  # type: ignore[no-redef]
        """Stands in where LiteLLM is not installed."""

    class ProxyException(Exception):  # type: ignore[no-redef]
        """Stands in where LiteLLM is not installed."""

        def __init__(self, message: str, type: str, param: str | None, code: int, headers: dict[str, str]) -> None:
            super().__init__(message)
            self.headers = headers


UNGUARDED_WORDS = ("retrieve", "list", "delete", "cancel", "get", "vector_store", "mcp", "moderation", "skill")
"""A call type that holds one of these runs no model; every other does, also those of a newer LiteLLM."""
TEXTS = frozenset(("messages", "response", "model_map_information", "standard_built_in_tools_params", "guardrail_information"))
"""Left out of what is sent: texts never leave the gateway, and the price table is the same in every payload."""
LONGEST_MODEL = 120
MAX_CALLS = 50_000
FORGET_AFTER_S = 3600.0
"""A call that LiteLLM never logged (a client that left at the wrong moment) frees what it held after this long."""


class Refused(ProxyException):
    """The refusal as LiteLLM's proxy answers it: its error handler writes ``to_dict()`` under "error", with these headers."""

    def __init__(self, refusal: Refusal) -> None:
        body = refusal.error_body()["error"]
        super().__init__(message=body["message"], type=body["type"], param=body["param"], code=503, headers=refusal.headers())
        self._body = body

    def to_dict(self) -> dict[str, Any]:
        return dict(self._body)


class _Call(NamedTuple):
    """What was decided on a call at ``at_s``, until it is logged."""

    hold: Hold
    note: str
    policy: dict[str, Any] | None
    at_s: float


class GuardHandler(CustomLogger):  # type: ignore[misc]
    """One per proxy process."""

    def __init__(self, settings: GuardSettings | None = None, guard: Guard | None = None) -> None:
        super().__init__()
        self._settings = settings or (guard.settings if guard is not None else from_env(os.environ))
        self.guard = guard or Guard(self._settings)
        folder = os.path.join(self._settings.state_dir, USAGE_FOLDER) if self._settings.state_dir else ""
        url = f"{self._settings.url}/v1/usage/litellm"
        self.sender = UsageSender(
            url, self._settings.token, folder, lambda lost: self.guard.counts.add("dropped", lost), before=self._settle
        )
        self._operations = Operations()
        self._streams = StreamUsage()
        self.features = FeatureWorker(self._settings.features_percent, self.sender.offer)
        self._fetcher = Fetcher(self.guard, self._stats)
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._lock = threading.Lock()
        self._started = False

    def start(self) -> None:
        """Start the background threads; a second call does nothing."""
        if self._started or not self._settings.url:
            return
        self._started = True
        self._fetcher.start()
        if self._settings.usage:
            self.sender.start()
            self.features.start()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Refuse (raises), or change ``data`` as the policy says."""
        self.start()
        kind = str(getattr(call_type, "value", call_type))
        if any(word in kind for word in UNGUARDED_WORDS):
            return None
        posture = self.guard.posture()
        if not posture.obey:
            self.guard.count_posture(posture)
            if posture.refusal is not None:
                raise Refused(posture.refusal)
            self._remember(data, _Call(NO_HOLD, posture.note, None, self.guard.now_s()))
            return None
        return await self._obey(user_api_key_dict, data)

    async def _obey(self, user: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        model = str(data.get("model") or "")
        deployment = served_deployment(model, self._settings)
        tenant, tier = charge_of(self.guard, user, data, model, deployment)
        facts = RequestFacts(model=model, deployment=deployment, tenant=tenant, service_tier=tier)
        match = self.guard.match(facts)
        if match.needs_body:
            facts = await self._measured(match, facts, data)
        decision, hold = self.guard.decide(match, facts, can_truncate=self._settings.allow_truncate)
        if decision.refusal is not None:
            self._remember(data, _Call(NO_HOLD, "", _policy_json(decision, self.guard, facts), self.guard.now_s()))
            raise Refused(decision.refusal)
        if not decision.notes and hold is NO_HOLD:
            return None
        return await self._apply(decision, hold, facts, data)

    async def _measured(self, match: Match, facts: RequestFacts, data: dict[str, Any]) -> RequestFacts:
        found = bound(data, self._settings.template_allowance_tokens, self._settings.media_tokens)
        facts = facts._replace(prompt_tokens_at_most=found.tokens, max_output_tokens=found.max_output_tokens)
        if self._settings.tokenize and match.needs_prompt and (found.tokens is None or found.tokens > match.prompt_cap):
            loop = asyncio.get_running_loop()
            exact = await loop.run_in_executor(None, tokenize_request, self._settings.tokenize, data)
            facts = facts._replace(prompt_tokens=exact)
        return facts

    async def _apply(self, decision: Decision, hold: Hold, facts: RequestFacts, data: dict[str, Any]) -> dict[str, Any]:
        said: list[str] = []
        if decision.delay_s:
            said.append(f"delayed_s={decision.delay_s:g}")
            await asyncio.sleep(decision.delay_s)
        if decision.max_output_tokens is not None:
            data[output_field(data, "")] = decision.max_output_tokens
            said.append(f"max_output_tokens={decision.max_output_tokens}")
        if decision.truncate_to_tokens is not None:
            left = decision.truncate_to_tokens - self._settings.template_allowance_tokens
            if not truncate(data, left):
                self.guard.trouble("a prompt could not be cut to its limit and was passed whole")
            said.append(f"truncated_to={decision.truncate_to_tokens}")
        if decision.reroute_to:
            data["model"] = decision.reroute_to
            said.append(f"rerouted_to={decision.reroute_to}")
        self._remember(data, _Call(hold, "; ".join(said), _policy_json(decision, self.guard, facts), self.guard.now_s()))
        return data

    def _remember(self, data: Mapping[str, Any], call: _Call) -> None:
        call_id = str(data.get("litellm_call_id") or "")
        if not call_id:
            self.guard.meters.settle(call.hold, 0, self.guard.now_s())
            return
        with self._lock:
            self._calls[call_id] = call
            gone = []
            while self._calls:
                oldest = next(iter(self._calls.values()))
                if len(self._calls) <= MAX_CALLS and call.at_s - oldest.at_s <= FORGET_AFTER_S:
                    break
                gone.append(self._calls.popitem(last=False)[1])
        for old in gone:
            self.guard.meters.settle(old.hold, 0, self.guard.now_s())

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Vouch for the tenant towards an engine of ours, whose own guard then obeys tenant scopes; never towards a vendor."""
        known = labelled(kwargs)
        if self._settings.usage and self._settings.url:
            call_id = str(kwargs.get("litellm_call_id") or "")
            kind = str(getattr(call_type, "value", call_type))
            self.sender.began(call_id, unheard_of(call_id, kind, kwargs, known, self.guard.now_s()))
        keys = self._settings.tenant_keys
        if not keys or not is_self_hosted(str(kwargs.get("model") or "")):
            return None
        model = str(known.get("original_model_group") or known.get("model_group") or "")
        tenant, tier = charge_of(self.guard, key_of(known), kwargs, model, served_deployment(model, self._settings))
        if not tenant:
            return None
        signed = sign_tenant(tenant, tier, keys[0][1], self.guard.now_s())
        return {**kwargs, "extra_headers": {**(kwargs.get("extra_headers") or {}), HEADER: signed}}

    async def async_post_call_response_headers_hook(
        self, data: dict[str, Any], user_api_key_dict: Any = None, response: Any = None, **_: Any
    ) -> dict[str, str] | None:
        """Tell the client what was done to its request; note what it is given, a stream to look through or a failure."""
        call_id = str(data.get("litellm_call_id") or "")
        if response is None:
            self._operations.given_up(call_id, self.guard.now_s())
            self.sender.ended(call_id, every=True)
        else:
            self._streams.watch(call_id, response)
        call = self._calls.get(call_id)
        return {"x-tokenfuse-policy": call.note} if call is not None and call.note else None

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._log(kwargs)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._log(kwargs)

    def _log(self, kwargs: Any) -> None:
        """Hand the payload to the sender and free what the call held."""
        payload = kwargs.get("standard_logging_object")
        if not isinstance(payload, dict):
            self.guard.counts.add("dropped")
            self.guard.trouble("LiteLLM logged a call without a standard logging payload")
            return
        with self._lock:
            call = self._calls.pop(str(payload.get("litellm_call_id") or ""), None)
        if call is not None:
            self.guard.meters.settle(call.hold, int(payload.get("total_tokens") or 0), self.guard.now_s())
        if self._settings.usage and self._settings.url:
            found = {name: value for name, value in payload.items() if name not in TEXTS}
            if call is not None and call.policy is not None:
                found["tokenfuse_policy"] = call.policy
            self.start()
            self._hand_over(self.sender.keep(self._explained(found, kwargs)), payload)

    def _explained(self, found: dict[str, Any], kwargs: Any) -> dict[str, Any]:
        """With what LiteLLM's payload leaves out: the model the caller named, a header that identity rules look at, and a
        stream's usage as the upstream sent it."""
        headers = logged_headers(self.guard, kwargs.get("litellm_params"))
        if headers:
            metadata = found.get("metadata") or {}
            known = metadata.get("requester_custom_headers") or {}
            found["metadata"] = {**metadata, "requester_custom_headers": {**known, **headers}}
        asked = ((kwargs.get("litellm_params") or {}).get("proxy_server_request") or {}).get("body") or {}
        if isinstance(asked.get("model"), str) and len(asked["model"]) <= LONGEST_MODEL:
            found["tokenfuse_requested_model"] = asked["model"]
        seen = self._streams.seen(str(found.get("litellm_call_id") or ""), str(found.get("id") or ""))
        if seen is not None and found.get("status") == "success":
            found["tokenfuse_upstream_usage"] = seen
        return found

    def _hand_over(self, kept: Kept, payload: dict[str, Any]) -> None:
        """Failures wait until it is known whether another attempt followed."""
        call_id = str(payload.get("litellm_call_id") or "")
        if payload.get("status") == "failure":
            self.sender.ended(call_id, every=False)
            ready = self._operations.failed(call_id, kept, self.guard.now_s())
        else:
            self.sender.ended(call_id, every=True)
            ready = self._operations.answered(call_id)
            offered = (payload.get("model_parameters") or {}).get("tools")
            self.features.offer(kept, CallTexts(payload.get("messages"), payload.get("response"), offered))
        for failure in ready:
            self.sender.offer(failure)

    def _settle(self) -> None:
        for failure in self._operations.due(self.guard.now_s()):
            self.sender.offer(failure)

    def _stats(self) -> dict[str, Any]:
        return {**self.sender.stats(), **self.features.stats(), **self.guard.meters.overshoots(self.guard.now_s())}

    def stop(self) -> None:
        """Send or keep what is left."""
        self.features.stop()
        for failure in self._operations.due(self.guard.now_s(), everything=True):
            self.sender.offer(failure)
        self.sender.stop()
        self._fetcher.stop()


def _policy_json(decision: Decision, guard: Guard, facts: RequestFacts) -> dict[str, Any] | None:
    """What the usage record's ``policy`` says: the first acting entry's breaker, the policy's version, what was done."""
    acted = next(((entry, what) for entry, what in decision.notes if not what.startswith("would_")), None)
    if acted is None or guard.policy is None:
        return None
    entry, what = acted
    before = facts.prompt_tokens if facts.prompt_tokens is not None else facts.prompt_tokens_at_most
    return {"breaker": entry.breaker, "version": guard.policy.version, "action": what, "prompt_tokens_before": before}


_HANDLERS: dict[str, GuardHandler] = {}


def __getattr__(name: str) -> Any:
    """``handler``: made from the environment when LiteLLM asks for it, and fetching at once: the first request meets a policy."""
    if name != "handler":
        raise AttributeError(name)
    if name not in _HANDLERS:
        _HANDLERS[name] = GuardHandler()
        _HANDLERS[name].start()
    return _HANDLERS[name]

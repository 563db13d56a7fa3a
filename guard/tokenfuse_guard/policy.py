"""The signed policy: verified, compiled into dict look-ups by scope, and decided on per request.

Document: ``{"body": "<canonical JSON text>", "signatures": [{"key_id", "hmac_sha256"}]}``; a signature is the lower-case hex
HMAC-SHA256 of the body's UTF-8 bytes as received. What an entry means is written at ``Policy.decide``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tokenfuse_guard.entries import NO_MATCH, PASS, Decision, Entry, Match, Refusal, RequestFacts, refusal
from tokenfuse_guard.settings import Keys

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

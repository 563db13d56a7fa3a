"""The values a decision is made of: facts of a request, entries of a policy, refusals."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

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

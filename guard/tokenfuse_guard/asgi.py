"""The guard as ASGI middleware: ``vllm serve … --middleware tokenfuse_guard.asgi.GuardMiddleware``, or in any Starlette app.

Configured by the environment (see the package's README). A request's body is read only when an entry in force needs it, and is
replayed downstream; answers are passed on as they come.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Awaitable, MutableMapping
from typing import Any, Callable, NamedTuple

from tokenfuse_guard.entries import Decision, Match, Refusal, RequestFacts
from tokenfuse_guard.fetch import Fetcher
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.meters import Hold
from tokenfuse_guard.prompt import bound, output_field, quick_bound
from tokenfuse_guard.settings import GuardSettings, from_env
from tokenfuse_guard.tenant_header import HEADER, read_tenant
from tokenfuse_guard.tokenizer import tokenize_in_app, tokenize_request

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

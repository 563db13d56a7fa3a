"""The middleware around a real ASGI app: what is refused, what is read, what is passed on untouched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from guard_clock import Clock
from guard_servers import KEY, KEY_ID, limit, reject, signed
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from test_guard_state import at, break_glass

from tokenfuse_guard.asgi import GuardMiddleware
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.settings import GuardSettings
from tokenfuse_guard.tenant_header import HEADER, sign_tenant

CHAT = "/v1/chat/completions"


class Engine:
    """An app that remembers the bodies it got; /tokenize counts words."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.gate: asyncio.Event | None = None
        routes = [Route(CHAT, self.chat, methods=["POST"]), Route("/tokenize", self.tokenize, methods=["POST"])]
        self.app = Starlette(routes=[*routes, Route("/health", self.health)])

    async def chat(self, request: Request) -> Any:
        self.bodies.append(await request.body())
        if self.gate is not None:
            await self.gate.wait()
        if b'"stream": true' in self.bodies[-1]:
            return StreamingResponse(self.events(), media_type="text/event-stream")
        return JSONResponse({"id": "x", "usage": {"prompt_tokens": 8, "completion_tokens": 3, "total_tokens": 11}})

    @staticmethod
    async def events() -> AsyncIterator[bytes]:
        for word in (b"one", b"two", b"[DONE]"):
            yield b"data: " + word + b"\n\n"

    @staticmethod
    async def tokenize(request: Request) -> JSONResponse:
        text = json.dumps((await request.json())["messages"])
        return JSONResponse({"count": len(text.split())})

    @staticmethod
    async def health(_: Request) -> JSONResponse:
        return JSONResponse({})


@pytest.fixture
def engine() -> Engine:
    return Engine()


Post = Callable[..., httpx.Response]


@pytest.fixture
def post(engine: Engine, settings: GuardSettings, clock: Clock) -> Post:
    """Obey these entries and post a chat request; ``change`` alters the settings."""

    def call(
        entries: list[dict[str, Any]], text: str = "hi", *, change: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None, raw: bytes | None = None, path: str = CHAT, **more: Any,
    ) -> httpx.Response:  # fmt: skip
        guard = Guard(settings._replace(**(change or {})), clock)
        guard.take(signed(entries, now=at(clock)))
        body = raw or json.dumps({"model": "tiny", "messages": [{"role": "user", "content": text}], **more}).encode()
        return asyncio.run(send(GuardMiddleware(engine.app, guard=guard), body, headers or {}, path))

    return call


async def send(app: GuardMiddleware, body: bytes, headers: dict[str, str], path: str = CHAT) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
        return await client.post(path, content=body, headers={"content-type": "application/json", **headers})


def test_a_refusal_is_503_with_the_openai_body_and_says_not_to_retry(post: Post, engine: Engine) -> None:
    answer = post([reject("deployment:eu/prod/tiny", retry_after_s=40)])
    assert answer.status_code == 503
    assert answer.json()["error"] == {
        "message": "Tokenfuse: refused by a cost policy (deployment:eu/prod/tiny: 95 % of the cap is spent)",
        "type": "tokenfuse_policy",
        "param": None,
        "code": "budget_exceeded",
    }
    assert answer.headers["x-should-retry"] == "false"
    assert 40 <= int(answer.headers["retry-after"]) <= 50
    assert engine.bodies == []


def test_other_paths_are_none_of_its_business(post: Post) -> None:
    assert post([reject("platform")], path="/tokenize").status_code == 200


def test_a_tenant_scope_needs_a_header_the_gateway_signed(post: Post, clock: Clock) -> None:
    entries, known = [reject("tenant:acme")], {"tenant_keys": ((KEY_ID, KEY),)}
    vouched = {HEADER: sign_tenant("acme/search", "P1", KEY, clock())}
    assert post(entries, change=known, headers=vouched).status_code == 503
    assert post(entries, change=known, headers={HEADER: "acme/search"}).status_code == 200
    assert post(entries, change=known).status_code == 200
    assert post(entries, headers=vouched).status_code == 200


@pytest.mark.parametrize(
    ("text", "status"), [("x" * 400, 200), ("x" * 1100, 503), ("ä" * 500, 503), ("\\n" * 300, 200)],
    ids=["under", "over", "two bytes each", "escapes count as what they stand for"],
)  # fmt: skip
def test_a_prompt_cap_counts_utf8_bytes(post: Post, text: str, status: int) -> None:
    answer = post([limit("platform", {"max_prompt_tokens": 1000})], text)
    assert answer.status_code == status
    if status == 503:
        assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("prompt_too_long", "messages")


def test_above_the_bytes_the_engines_own_tokenizer_decides(post: Post) -> None:
    entries, tokenize = [limit("platform", {"max_prompt_tokens": 1000})], {"tokenize": "app"}
    assert post(entries, "word " * 900, change=tokenize).status_code == 200
    assert post(entries, "word " * 1100, change=tokenize).status_code == 503


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff", b'{"messages": 1'])
def test_what_cannot_be_read_is_refused_under_a_cap_and_passed_without(post: Post, raw: bytes) -> None:
    over = b" " * 2000
    assert post([limit("platform", {"max_prompt_tokens": 1000})], raw=raw + over).status_code == 503
    assert post([], raw=raw).status_code == 200


def test_a_body_larger_than_it_reads_is_refused_under_a_cap_and_whole_without(post: Post, engine: Engine) -> None:
    small = {"max_body_bytes": 1000}
    assert post([limit("platform", {"max_prompt_tokens": 100_000})], "x" * 5000, change=small).status_code == 503
    assert post([limit("platform", {"max_output_tokens": 10})], "x" * 5000, change=small).status_code == 200
    assert len(engine.bodies[-1]) > 5000


def test_an_output_cap_rewrites_the_request_and_says_so(post: Post, engine: Engine) -> None:
    answer = post([limit("platform", {"max_output_tokens": 64})], "söme text", max_tokens=500, temperature=0.5)
    assert answer.headers["x-tokenfuse-policy"] == "max_output_tokens=64"
    sent = json.loads(engine.bodies[-1])
    assert (sent["max_tokens"], sent["temperature"], sent["messages"][0]["content"]) == (64, 0.5, "söme text")


def test_an_untouched_request_arrives_byte_for_byte(post: Post, engine: Engine) -> None:
    raw = b'{ "model":"tiny",  "messages": [{"role":"user","content":"\\u00e4"}] }'
    post([limit("platform", {"max_prompt_tokens": 1000, "max_output_tokens": 9}, mode="warn")], raw=raw)
    assert engine.bodies == [raw]


def test_streams_pass_as_they_come(post: Post) -> None:
    answer = post([limit("platform", {"max_output_tokens": 64})], stream=True)
    assert answer.text == "data: one\n\ndata: two\n\ndata: [DONE]\n\n"


def test_models_by_body_where_no_deployment_is_set(post: Post) -> None:
    free = {"deployment": ""}
    assert post([reject("deployment:default/default/tiny")], change=free).status_code == 503
    assert post([reject("deployment:default/default/large")], change=free).status_code == 200
    mapped = {"deployment": "", "deployments": {"tiny": "eu/prod/org/tiny"}}
    assert post([reject("deployment:eu/prod/org/tiny")], change=mapped).status_code == 503


def test_an_expired_policy_is_said_in_a_header_when_open_and_refuses_when_closed(
    engine: Engine, settings: GuardSettings, clock: Clock
) -> None:
    for mode, status in (("open", 200), ("closed", 503)):
        guard = Guard(settings._replace(on_expiry=mode, state_dir=""), clock)
        guard.take(signed([], version=3, lives_s=1, now=at(clock)))
        clock.at_s += 2
        answer = asyncio.run(send(GuardMiddleware(engine.app, guard=guard), b"{}", {}))
        assert answer.status_code == status
        assert answer.headers["x-tokenfuse-policy"] == ("policy_expired; open; version=3" if mode == "open" else "policy_expired")


def test_a_broken_glass_passes_everything_and_says_so(post: Post, settings: GuardSettings, clock: Clock) -> None:
    break_glass(settings, at(clock).replace(year=2099))
    answer = post([reject("platform")])
    assert (answer.status_code, answer.headers["x-tokenfuse-policy"]) == (200, "break-glass")


def test_requests_in_flight_finish_when_the_breaker_opens(engine: Engine, guard: Guard, clock: Clock) -> None:
    async def run() -> tuple[int, int]:
        engine.gate = asyncio.Event()
        app = GuardMiddleware(engine.app, guard=guard)
        guard.take(signed([], version=1, now=at(clock)))
        running = asyncio.create_task(send(app, b"{}", {}))
        while not engine.bodies:
            await asyncio.sleep(0.001)
        guard.take(signed([reject("platform")], version=2, now=at(clock)))
        late = await send(app, b"{}", {})
        engine.gate.set()
        return (await running).status_code, late.status_code

    assert asyncio.run(run()) == (200, 503)


def test_metered_answers_are_charged_by_their_usage(engine: Engine, guard: Guard, clock: Clock) -> None:
    guard.take(signed([limit("platform", {"tokens_per_min": 11})], now=at(clock)))
    app = GuardMiddleware(engine.app, guard=guard)
    assert asyncio.run(send(app, b"{}", {})).status_code == 200
    refused = asyncio.run(send(app, b"{}", {}))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "tokens_per_min")
    clock.at_s += 60
    assert asyncio.run(send(app, b"{}", {})).status_code == 200


def test_it_is_added_the_way_vllm_adds_it(engine: Engine) -> None:
    engine.app.add_middleware(GuardMiddleware)
    answer = asyncio.run(_through(engine.app))
    assert (answer.status_code, answer.headers["x-tokenfuse-policy"]) == (200, "no_policy; open")


async def _through(app: Starlette) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
        return await client.post(CHAT, content=b"{}")

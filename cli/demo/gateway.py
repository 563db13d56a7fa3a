"""A stand-in for a gateway with one engine behind it, so that the demo has something to refuse.

Only the engine is simulated (it answers with made-up text at a stated speed); the guard, its policy and the usage it reports are
the real ones. Teams sign in with the key ``demo-TEAM``.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from cli.demo.history import CHAT_POOL
from tokenfuse_guard.asgi import GuardMiddleware
from tokenfuse_guard.settings import GuardSettings
from tokenfuse_guard.tenant_header import HEADER, sign_tenant
from tokenfuse_guard.usage_sender import UsageSender

GATEWAY_FILE = "demo-gateway.json"
BYTES_PER_TOKEN = 4
TOKEN_MS = 2
MAX_OUTPUT = 4096
Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]


class ProvesTenant:
    """The gateway's part: turns the caller's key into a signed tenant header the guard may believe."""

    def __init__(self, app: Asgi, key: bytes) -> None:
        self._app, self._key = app, key

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(name, value) for name, value in scope["headers"] if name != HEADER.encode()]
            team = team_of(dict(headers).get(b"authorization", b"").decode("latin-1"))
            if team:
                headers.append((HEADER.encode(), sign_tenant(f"demo/{team}", "P1", self._key, time.time()).encode()))
            scope = {**scope, "headers": headers, "team": team}
        await self._app(scope, receive, send)


def team_of(authorization: str) -> str:
    """``Bearer demo-TEAM`` → TEAM; '' for anything else."""
    key = authorization.removeprefix("Bearer ").strip()
    return key.removeprefix("demo-") if key.startswith("demo-") else ""


def create_gateway(settings: GuardSettings, sender: UsageSender) -> Asgi:
    """The application: key → signed tenant → guard → simulated engine → usage record."""
    app = FastAPI(title="Tokenfuse demo gateway", docs_url=None, redoc_url=None)

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> JSONResponse:
        team = request.scope["team"]
        if not team:
            return JSONResponse({"error": {"message": "use the key demo-TEAM", "type": "authentication_error"}}, 401)
        started = datetime.now(UTC)
        body = await request.json()
        prompt = max(1, len(json.dumps(body.get("messages", [])).encode()) // BYTES_PER_TOKEN)
        output = min(int(body.get("max_tokens") or 64), MAX_OUTPUT)
        await asyncio.sleep(min(output * TOKEN_MS, 2000) / 1000)
        answer_id = f"chatcmpl-{uuid.uuid4().hex}"
        sender.offer(_usage(answer_id, team, started, prompt, output))
        return JSONResponse(_answer(answer_id, prompt, output))

    guarded: Asgi = GuardMiddleware(app, settings)
    return ProvesTenant(guarded, settings.tenant_keys[0][1])


def write_credentials(run_dir: Path, guard: str, token: str, key: dict[str, str]) -> None:
    """What the stand-in gateway needs of the centre, readable by its owner only."""
    file = run_dir / GATEWAY_FILE
    file.touch(mode=0o600)
    file.write_text(json.dumps({"name": guard, "token": token, "key": key, "tenant_secret": secrets.token_hex(32)}))


def read_credentials(run_dir: Path, api_url: str) -> tuple[GuardSettings, UsageSender]:
    """The guard's settings and the way its usage goes."""
    given = json.loads((run_dir / GATEWAY_FILE).read_text())
    state = run_dir / "demo-gateway"
    state.mkdir(exist_ok=True)
    guard = GuardSettings(
        url=api_url,
        token=given["token"],
        name=given["name"],
        keys=((given["key"]["key_id"], given["key"]["secret"].encode()),),
        state_dir=str(state),
        deployment=str(CHAT_POOL),
        tenant_keys=(("demo", given["tenant_secret"].encode()),),
    )
    return guard, UsageSender(f"{api_url}/v1/usage", given["token"], str(state), lambda _lost: None)


def _usage(answer_id: str, team: str, started: datetime, prompt: int, output: int) -> dict[str, Any]:
    finished = datetime.now(UTC)
    return {
        "schema": "usage/1",
        "request_id": answer_id,
        "started_at": started.isoformat(),
        "first_token_at": (started + timedelta(milliseconds=1)).isoformat(),
        "finished_at": finished.isoformat(),
        "deployment": {"cluster": CHAT_POOL.cluster, "namespace": CHAT_POOL.namespace, "model_id": CHAT_POOL.model_id},
        "tenant": {"org": "demo", "team": team, "user": "you"},
        "tokens": {"input_uncached": prompt, "output": output},
        "http_status": 200,
        "finish_reason": "length",
    }


def _answer(answer_id: str, prompt: int, output: int) -> dict[str, Any]:
    return {
        "id": answer_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": CHAT_POOL.model_id,
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "(a simulated answer)"}, "finish_reason": "length"},
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output},
    }

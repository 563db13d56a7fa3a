"""The package alone, on the oldest Python it supports: in guard/, ``PYTHONPATH=. python3.9 -m unittest discover -s tests``."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import tempfile
import time
import unittest
from typing import Any

from tokenfuse_guard.asgi import GuardMiddleware
from tokenfuse_guard.counts import rfc3339
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.policy import PolicyError
from tokenfuse_guard.settings import GuardSettings

SECRET = b"s" * 32
SETTINGS = GuardSettings(name="edge", keys=(("k1", SECRET),), deployment="eu/prod/tiny")


def document(entries: list[dict[str, Any]], secret: bytes = SECRET) -> dict[str, Any]:
    now = time.time()
    times = {"issued_at": rfc3339(now), "expires_at": rfc3339(now + 900)}
    body = json.dumps({"version": 1, "guard": "edge", "on_expiry": "open", "entries": entries, **times})
    made = hmac.new(secret, body.encode(), hashlib.sha256).hexdigest()
    return {"body": body, "signatures": [{"key_id": "k1", "hmac_sha256": made}]}


def post(guard: Guard, body: bytes) -> tuple[int, bytes]:
    """One request through the middleware: the status and the answer's body."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": (await receive())["body"]})

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    asyncio.run(GuardMiddleware(app, guard=guard)(scope, receive, send))
    return sent[0]["status"], sent[1]["body"]


class Standalone(unittest.TestCase):
    def test_an_open_breaker_refuses_and_a_restart_still_does(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            settings = SETTINGS._replace(state_dir=folder)
            Guard(settings).take(document([{"id": "b", "scope": "deployment:eu/prod/tiny", "tier": 3, "action": "reject"}]))
            status, answer = post(Guard(settings), b"{}")
            self.assertEqual((status, json.loads(answer)["error"]["code"]), (503, "budget_exceeded"))

    def test_an_output_cap_is_written_into_the_body(self) -> None:
        guard = Guard(SETTINGS)
        guard.take(document([{"id": "l", "scope": "platform", "action": "limit", "limits": {"max_output_tokens": 5}}]))
        status, answer = post(guard, b'{"prompt": "x", "max_tokens": 9}')
        self.assertEqual((status, json.loads(answer)["max_tokens"]), (200, 5))

    def test_a_forged_policy_is_refused(self) -> None:
        with self.assertRaises(PolicyError):
            Guard(SETTINGS).take(document([], b"f" * 32))


if __name__ == "__main__":
    unittest.main()

"""Exact prompt length by vLLM's ``POST /tokenize``: of another server by URL, or of the very app the guard stands in."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Awaitable, Mapping, MutableMapping
from typing import Any, Callable

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

"""One GET of a JSON document, and in plain words why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

MAX_BYTES = 4 * 1024 * 1024
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """``body`` None: there is none, and ``why`` says so. ``status`` 0: nothing answered."""

    status: int
    body: Any = None
    why: str = ""


def new_client(headers: Mapping[str, str] | None = None, transport: httpx.BaseTransport | None = None) -> httpx.Client:
    return httpx.Client(
        follow_redirects=False, trust_env=False, timeout=TIMEOUT_S, headers=dict(headers or {}), transport=transport
    )  # fmt: skip


def get_json(client: httpx.Client, url: str) -> Answer:
    """Never raises for what the other side does; at most ``MAX_BYTES`` are read."""
    try:
        with client.stream("GET", url) as answer:
            body = bytearray()
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    return Answer(answer.status_code, why="answers too much")
            status = answer.status_code
    except httpx.TimeoutException:
        return Answer(0, why=f"does not answer within {TIMEOUT_S:g} s")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Answer(0, why=f"does not answer: {str(error) or type(error).__name__}")
    if status != 200:
        return Answer(status, _parsed(bytes(body)), f"answers {status}")
    found = _parsed(bytes(body))
    return Answer(status, found, "" if found is not None else "does not answer in JSON")


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None

"""Real HTTP servers the guard's tests talk to: a centre (policy, reports, usage) and a vLLM-shaped upstream."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = bytes.fromhex("11" * 32)
KEY_ID = "k1"


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def signed(
    entries: list[dict[str, Any]],
    *,
    version: int = 1,
    guard: str = "edge",
    on_expiry: str = "open",
    lives_s: float = 900,
    keys: dict[str, bytes] | None = None,
    now: datetime | None = None,
    identity: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A policy document as the centre signs it (docs/contracts.md)."""
    issued = now or datetime.now(UTC)
    body = json.dumps(
        {
            "version": version,
            "issued_at": stamp(issued),
            "expires_at": stamp(issued + timedelta(seconds=lives_s)),
            "guard": guard,
            "on_expiry": on_expiry,
            "entries": entries,
            **({} if identity is None else {"identity": identity}),
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    made = [
        {"key_id": key_id, "hmac_sha256": hmac.new(key, body.encode(), hashlib.sha256).hexdigest()}
        for key_id, key in (keys or {KEY_ID: KEY}).items()
    ]
    return {"body": body, "signatures": made}


def reject(scope: str, **more: Any) -> dict[str, Any]:
    return {"id": f"open:{scope}", "scope": scope, "tier": 3, "action": "reject", "reason": "95 % of the cap is spent", **more}


def limit(scope: str, limits: dict[str, int], **more: Any) -> dict[str, Any]:
    return {"id": f"limit:{scope}", "scope": scope, "tier": 0, "action": "limit", "limits": limits, "mode": "enforce", **more}


class Server:
    """One threading HTTP server on a free port, stopped by ``close``."""

    def __init__(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.get(self)

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.post(self, gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw)

            def do_PATCH(self) -> None:
                outer.patch(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def get(self, http: BaseHTTPRequestHandler) -> None:
        answer(http, 404, {"error": "no such page"})

    def post(self, http: BaseHTTPRequestHandler, raw: bytes) -> None:
        answer(http, 404, {"error": "no such page"})

    def patch(self, http: BaseHTTPRequestHandler, raw: bytes) -> None:
        answer(http, 405, {"error": "no such method"})


def answer(http: BaseHTTPRequestHandler, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    raw = b"" if status == 304 else json.dumps(body).encode()
    http.send_response(status)
    http.send_header("Content-Type", "application/json")
    http.send_header("Content-Length", str(len(raw)))
    for name, value in (headers or {}).items():
        http.send_header(name, value)
    http.end_headers()
    http.wfile.write(raw)


class Centre(Server):
    """The policy, report and usage routes. Set ``status`` to make every call fail with it."""

    def __init__(self, token: str = "tf_test_secret") -> None:
        self.token, self.status = token, 200
        self.reports: list[dict[str, Any]] = []
        self.usage: list[dict[str, Any]] = []
        self.bodies: list[tuple[dict[str, str], str]] = []
        self._document: dict[str, Any] = {}
        self._changed = threading.Condition()
        super().__init__()

    def publish(self, document: dict[str, Any]) -> None:
        with self._changed:
            self._document = document
            self._changed.notify_all()

    def get(self, http: BaseHTTPRequestHandler) -> None:
        if not self._let_in(http):
            return None
        path, _, query = http.path.partition("?")
        if path != "/v1/policy":
            return answer(http, 404, {"error": "no such page"})
        wait_s = float(query.partition("wait=")[2] or 0)
        with self._changed:
            self._changed.wait_for(lambda: self._etag() not in ("", http.headers.get("If-None-Match")), min(wait_s, 25))
            document, etag = self._document, self._etag()
        if not document or etag == http.headers.get("If-None-Match"):
            return answer(http, 304, None, {"ETag": etag})
        return answer(http, 200, document, {"ETag": etag})

    def _etag(self) -> str:
        return f'"{json.loads(self._document["body"])["version"]}"' if self._document else ""

    def post(self, http: BaseHTTPRequestHandler, raw: bytes) -> None:
        if not self._let_in(http):
            return None
        if http.path == "/v1/guards/report":
            self.reports.append(json.loads(raw))
            return answer(http, 200, {})
        if http.path == "/v1/usage/litellm":
            self.bodies.append((dict(http.headers.items()), raw.decode()))
            parsed = json.loads(raw)
            self.usage.extend(parsed if isinstance(parsed, list) else [parsed])
            return answer(http, 202, {"accepted": len(parsed), "duplicate": 0, "quarantined": 0, "verdicts": []})
        return answer(http, 404, {"error": "no such page"})

    def _let_in(self, http: BaseHTTPRequestHandler) -> bool:
        if self.status != 200:
            answer(http, self.status, {"error": {"code": "unavailable"}})
        elif http.headers.get("Authorization") != f"Bearer {self.token}":
            answer(http, 401, {"error": {"code": "unauthorized"}})
        else:
            return True
        return False


class Upstream(Server):
    """vLLM-shaped chat completions: plain and streamed, ``usage`` with cached tokens; a model named "failing*" answers 500."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        super().__init__()

    def get(self, http: BaseHTTPRequestHandler) -> None:
        answer(http, 200, {"object": "list", "data": [{"id": "deepseek-tiny", "object": "model"}]})

    def post(self, http: BaseHTTPRequestHandler, raw: bytes) -> None:
        request = json.loads(raw)
        self.seen.append(request)
        self.headers.append({name.lower(): value for name, value in http.headers.items()})
        if str(request.get("model", "")).startswith("failing"):
            return answer(http, 500, {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}})
        if request.get("stream"):
            return self._stream(http, request)
        return answer(http, 200, self._answer(request, len(self.seen)))

    @staticmethod
    def _usage(request: dict[str, Any]) -> dict[str, Any]:
        words = sum(len(str(m.get("content", "")).split()) for m in request.get("messages", []))
        cached = {"cached_tokens": min(16, words)}
        return {
            "prompt_tokens": words + 4,
            "completion_tokens": 3,
            "total_tokens": words + 7,
            "prompt_tokens_details": cached,
        }

    def _answer(self, request: dict[str, Any], number: int) -> dict[str, Any]:
        message = {"role": "assistant", "content": "one two three", "reasoning_content": None, "tool_calls": []}
        return {
            "id": f"chatcmpl-mock{number:08d}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": request["model"],
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}],
            "usage": self._usage(request),
            "prompt_logprobs": None,
        }

    def _stream(self, http: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        http.send_response(200)
        http.send_header("Content-Type", "text/event-stream")
        http.send_header("Connection", "close")
        http.end_headers()
        base = {"id": f"chatcmpl-mock{len(self.seen):08d}", "object": "chat.completion.chunk", "created": int(time.time())}
        base["model"] = request["model"]
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"content": "one"}, {"content": " two"}]
        for delta in deltas:
            self._event(http, {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self._event(http, {**base, "choices": [{"index": 0, "delta": {"content": " three"}, "finish_reason": "stop"}]})
        if (request.get("stream_options") or {}).get("include_usage"):
            self._event(http, {**base, "choices": [], "usage": self._usage(request)})
        http.wfile.write(b"data: [DONE]\n\n")
        http.close_connection = True

    @staticmethod
    def _event(http: BaseHTTPRequestHandler, chunk: dict[str, Any]) -> None:
        http.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        http.wfile.flush()

"""An OpenAI-compatible server that does what each request's first message tells it to, and keeps its own account of it."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "guard"))
from guard_servers import Server, answer

MODELS = ("tiny-8b", "backup-8b", "broken-8b", "embed-8b")


@dataclass(frozen=True)
class Told:
    """What a request tells the server to do. ``usage``: where a stream's usage stands (final chunk by itself, ``on_choices``: on
    a last chunk whose choices are not empty, ``running``: a growing one on each chunk, ``both``: on the finish chunk and again
    by itself, ``ignored``: never, whatever was asked; also of a buffered answer). ``fail``: statuses of the first attempts."""

    case: str
    prompt: int = 120
    completion: int = 30
    cached: int = 0
    reasoning: int = 0
    usage: str = "final"
    details: bool = True
    chunks: int = 5
    every_s: float = 0.0
    wait_s: float = 0.0
    fail: tuple[int, ...] = ()
    cut_after: int | None = None
    answers: int = 1

    def text(self) -> str:
        """The prompt that says it."""
        return json.dumps({name: value for name, value in vars(self).items() if value != getattr(Told, name, None)})


@dataclass
class Served:
    """One attempt as the server knows it. ``outcome``: ok, error, or left (the caller went away)."""

    told: Told
    model: str
    path: str
    stream: bool
    response_id: str
    usage_given: bool = False
    outcome: str = "ok"
    sent_tokens: int = 0


@dataclass
class Account:
    served: list[Served] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, case: str) -> list[Served]:
        with self.lock:
            return [one for one in self.served if one.told.case == case]


class TruthUpstream(Server):
    """Chat completions, responses (also read back), embeddings."""

    def __init__(self) -> None:
        self.account = Account()
        self.requests: list[dict[str, Any]] = []
        self.reads: Counter[str] = Counter()
        self._attempts: Counter[str] = Counter()
        self._stored: dict[str, dict[str, Any]] = {}
        super().__init__()

    def get(self, http: BaseHTTPRequestHandler) -> None:
        read = http.path.rpartition("/")[2].partition("?")[0]
        if read in self._stored:
            self.reads[read] += 1
            return answer(http, 200, self._stored[read])
        return answer(http, 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})

    def post(self, http: BaseHTTPRequestHandler, raw: bytes) -> None:
        request = json.loads(raw)
        told = told_in(request)
        with self.account.lock:
            self.requests.append(request)
            number = len(self.account.served)
            tried = self._attempts[told.case + request["model"]]
            self._attempts[told.case + request["model"]] += 1
            one = Served(told, request["model"], http.path, bool(request.get("stream")), f"{told.case}-{number:06d}")
            self.account.served.append(one)
        time.sleep(told.wait_s)
        status = 500 if request["model"].startswith("broken") else dict(enumerate(told.fail)).get(tried, 200)
        try:
            if status != 200:
                one.outcome = "error"
                return answer(http, status, {"error": {"message": "the engine failed", "type": "server_error", "code": status}})
            return self._serve(http, request, one)
        except OSError:
            one.outcome = "left"
            http.close_connection = True

    def _serve(self, http: BaseHTTPRequestHandler, request: dict[str, Any], one: Served) -> None:
        if http.path.endswith("/embeddings"):
            one.usage_given = True
            return answer(http, 200, embedding(one))
        if http.path.endswith("/responses"):
            one.usage_given = True
            self._stored[one.response_id] = response_object(one)
            return self._stream_response(http, one) if one.stream else answer(http, 200, self._stored[one.response_id])
        if one.stream:
            return self._stream(http, request, one)
        one.usage_given, one.sent_tokens = one.told.usage != "ignored", one.told.completion
        return answer(http, 200, completion(one))

    def _stream_response(self, http: BaseHTTPRequestHandler, one: Served) -> None:
        _begin_events(http)
        begun = {**self._stored[one.response_id], "status": "in_progress", "usage": None, "output": []}
        events = [
            {"type": "response.created", "response": begun},
            {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": "word "},
            {"type": "response.completed", "response": self._stored[one.response_id]},
        ]
        for number, event in enumerate(events):
            text = json.dumps({**event, "sequence_number": number})
            http.wfile.write(f"event: {event['type']}\ndata: {text}\n\n".encode())
            http.wfile.flush()

    def _stream(self, http: BaseHTTPRequestHandler, request: dict[str, Any], one: Served) -> None:
        _begin_events(http)
        asked = bool((request.get("stream_options") or {}).get("include_usage"))
        for chunk, given, sent in stream_chunks(one, asked):
            if one.told.cut_after is not None and sent > one.told.cut_after:
                one.outcome = "error"
                http.connection.close()
                return
            time.sleep(one.told.every_s)
            http.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            http.wfile.flush()
            one.usage_given, one.sent_tokens = one.usage_given or given, sent
        http.wfile.write(b"data: [DONE]\n\n")


def _begin_events(http: BaseHTTPRequestHandler) -> None:
    http.send_response(200)
    http.send_header("Content-Type", "text/event-stream")
    http.send_header("Connection", "close")
    http.end_headers()
    http.close_connection = True


def told_in(request: dict[str, Any]) -> Told:
    """The directive in the request's text."""
    text: Any = request.get("input") or request["messages"][0]["content"]
    while not isinstance(text, str):
        text = text[0] if isinstance(text, list) else text.get("text") or text.get("content")
    said = json.loads(text)
    return Told(**{name: tuple(value) if isinstance(value, list) else value for name, value in said.items()})


def usage_object(one: Served, completion_tokens: int | None = None) -> dict[str, Any]:
    told = one.told
    out = told.completion if completion_tokens is None else completion_tokens
    found: dict[str, Any] = {"prompt_tokens": told.prompt, "completion_tokens": out, "total_tokens": told.prompt + out}
    found["prompt_tokens_details"] = {"cached_tokens": told.cached} if told.details else None
    if told.reasoning:
        found["completion_tokens_details"] = {"reasoning_tokens": told.reasoning}
    return found


def completion(one: Served) -> dict[str, Any]:
    choices = [
        {"index": index, "message": {"role": "assistant", "content": "some words"}, "finish_reason": "stop"}
        for index in range(one.told.answers)
    ]
    base = {"id": f"chatcmpl-{one.response_id}", "object": "chat.completion", "created": int(time.time()), "model": one.model}
    usage = {} if one.told.usage == "ignored" else {"usage": usage_object(one)}
    return {**base, "choices": choices, **usage}


def embedding(one: Served) -> dict[str, Any]:
    usage = {"prompt_tokens": one.told.prompt, "total_tokens": one.told.prompt, "completion_tokens": 0}
    data = [{"object": "embedding", "index": 0, "embedding": [0.0, 1.0]}]
    return {"id": f"embd-{one.response_id}", "object": "list", "model": one.model, "data": data, "usage": usage}


def response_object(one: Served) -> dict[str, Any]:
    told = one.told
    usage = {
        "input_tokens": told.prompt,
        "input_tokens_details": {"cached_tokens": told.cached},
        "output_tokens": told.completion,
        "output_tokens_details": {"reasoning_tokens": told.reasoning},
        "total_tokens": told.prompt + told.completion,
    }
    content = [{"type": "output_text", "text": "some words", "annotations": []}]
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}
    return {
        "id": one.response_id, "object": "response", "created_at": int(time.time()), "status": "completed", "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "model": one.model, "output": [message],
        "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": usage,
    }  # fmt: skip


def stream_chunks(one: Served, asked: bool) -> list[tuple[dict[str, Any], bool, int]]:
    """(chunk, whether it holds the whole usage, tokens generated so far)."""
    told = one.told
    base = {
        "id": f"chatcmpl-{one.response_id}", "object": "chat.completion.chunk", "created": int(time.time()), "model": one.model,
    }  # fmt: skip
    tells = (asked and told.usage != "ignored") or told.usage == "running"
    found: list[tuple[dict[str, Any], bool, int]] = []
    for number in range(1, told.chunks + 1):
        sent = told.completion * number // told.chunks
        reason = "stop" if number == told.chunks else None
        name = "reasoning_content" if told.reasoning and number < told.chunks else "content"
        for index in range(told.answers):
            chunk: dict[str, Any] = {**base, "choices": [{"index": index, "delta": {name: "word "}, "finish_reason": reason}]}
            last = number == told.chunks and index == told.answers - 1
            if tells:
                on_finish = told.usage == "both" and last
                chunk["usage"] = usage_object(one, sent) if told.usage == "running" or on_finish else None
            found.append((chunk, tells and told.usage in ("running", "both") and last, sent))
    if tells and told.usage in ("final", "both"):
        found.append(({**base, "choices": [], "usage": usage_object(one)}, True, told.completion))
    if tells and told.usage == "on_choices":
        choice = {"index": 0, "delta": {}, "finish_reason": None}
        found.append(({**base, "choices": [choice], "usage": usage_object(one)}, True, told.completion))
    return found

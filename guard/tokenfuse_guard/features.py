"""Numbers of a call's texts, computed in the gateway after the answer: prefix sketch, repetition, tools called. No text leaves.

One thread takes sampled calls from a short queue; when the queue is full, or a call is not sampled, its usage goes on without
them. A session is sampled whole or not at all, so that its chain of tools has no holes. The definition of the sketch is that of
Tokenfuse's ``core/minhash.py`` (a test compares both).
"""

from __future__ import annotations

import json
import queue
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any, Callable, NamedTuple

FEATURES = "tokenfuse_features"
WAITING = 32
"""Calls that may wait; each holds its texts in memory."""
MAX_CHARS = 262_144
MAX_PARTS = 4_096
MAX_WORDS = 8_192
MAX_TOOL_CALLS = 64
MAX_TOOL_NAME = 64
BLOCK_WORDS = 16
GRAM_WORDS = 4
PERMUTATION_COUNT = 64
PRIME = (1 << 61) - 1
LOW_32 = (1 << 32) - 1
REDACTED = "redacted-by-litellm"
TEXT_FIELDS = ("text", "content", "arguments", "output", "name")
BREATH_S = 0.0005
"""Between two slices of work the thread steps back, so that the gateway's event loop never waits for more than a slice."""


class CallTexts(NamedTuple):
    """What the numbers are computed of: LiteLLM's ``messages`` and ``response``, and the tools offered."""

    messages: Any
    response: Any
    offered: Any


def seed(name: str) -> int:
    return int.from_bytes(blake2b(f"tokenfuse/prefix-sketch/1/{name}".encode(), digest_size=16).digest(), "big")


PERMUTED = tuple((1 + seed(f"a{n}") % (PRIME - 1), seed(f"b{n}") % PRIME) for n in range(PERMUTATION_COUNT))


def is_sampled(payload: Mapping[str, Any], percent: int) -> bool:
    """Whether this call is among the ``percent`` computed: by its session where it has one, else by the call."""
    if percent <= 0:
        return False
    name = _session_of(payload) or str(payload.get("trace_id") or payload.get("litellm_call_id") or "")
    return zlib.crc32(name.encode("utf-8", "replace")) % 100 < percent


def _session_of(payload: Mapping[str, Any]) -> str:
    """As the centre reads it."""
    metadata = payload.get("metadata")
    said = metadata.get("requester_metadata") if isinstance(metadata, dict) else None
    return str(payload.get("session_id") or (said.get("session_id") if isinstance(said, dict) else None) or "")


def compute(texts: CallTexts, breathe: Callable[[], None] = lambda: None) -> dict[str, Any] | None:
    """``{"prefix_sketch", "repeat_ratio", "tools"}``: null or left out where unknown; None when LiteLLM hid the texts.

    ``tools`` are the names of the tools the answer called, in order. ``breathe`` is called between slices of work.
    """
    prompt = _prompt_words(texts)
    answer = _words_of(_answer_texts(texts.response))
    if prompt is None or answer is None:
        return None
    found: dict[str, Any] = {"tools": tools_called(texts.response)}
    found["repeat_ratio"] = repeat_ratio(answer)
    breathe()
    sketch = prefix_sketch(prompt, breathe)
    return {**found, "prefix_sketch": sketch} if sketch else found


def repeat_ratio(words: list[str]) -> str | None:
    """Share of the answer's runs of four words that stood in it before, four decimals; None for fewer than four words."""
    runs = len(words) - GRAM_WORDS + 1
    if runs < 1:
        return None
    different = len({tuple(words[n : n + GRAM_WORDS]) for n in range(runs)})
    return f"{(runs - different) / runs:.4f}"


def prefix_sketch(words: list[str], breathe: Callable[[], None] = lambda: None) -> list[int]:
    """MinHash of the prompt's prefixes by blocks of 16 words; empty for a prompt of fewer words."""
    elements, head = [], b""
    for start in range(0, len(words) - BLOCK_WORDS + 1, BLOCK_WORDS):
        block = "\x1f".join(words[start : start + BLOCK_WORDS]).encode("utf-8", "surrogatepass")
        head = blake2b(head + block, digest_size=8).digest()
        elements.append(int.from_bytes(head, "big"))
    found = []
    for number, (a, b) in enumerate(PERMUTED if elements else ()):
        found.append(min([(a * e + b) % PRIME for e in elements]) & LOW_32)
        if number % 4 == 3:
            breathe()
    return found


def tools_called(response: Any) -> list[str]:
    """Names of the tools the (first) answer called: OpenAI chat and responses, Anthropic messages."""
    names: list[Any] = []
    message = _first_message(response)
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else [{"function": message.get("function_call")}]:
        function = call.get("function") if isinstance(call, dict) else None
        names.append(function.get("name") if isinstance(function, dict) else None)
    for item in _items(response, "output", "content"):
        if item.get("type") in ("function_call", "tool_use"):
            names.append(item.get("name"))
    good = (name for name in names if isinstance(name, str) and 0 < len(name) <= MAX_TOOL_NAME and name.isprintable())
    return list(islice(good, MAX_TOOL_CALLS))


def _first_message(response: Any) -> dict[str, Any]:
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def _items(response: Any, *names: str) -> Iterator[dict[str, Any]]:
    for name in names:
        found = response.get(name) if isinstance(response, dict) else None
        for item in found if isinstance(found, list) else ():
            if isinstance(item, dict):
                yield item


def _answer_texts(response: Any) -> Iterator[str]:
    if isinstance(response, str):
        yield response
        return
    message = _first_message(response)
    yield from _texts_in(message.get("content"), 0)
    choices = response.get("choices") if isinstance(response, dict) else None
    if isinstance(choices, list) and choices and isinstance(choices[0], dict) and isinstance(choices[0].get("text"), str):
        yield choices[0]["text"]
    for item in _items(response, "output", "content"):
        if item.get("type") in ("message", "text", "output_text"):
            yield from _texts_in(item.get("content", item.get("text")), 0)


def _prompt_words(texts: CallTexts) -> list[str] | None:
    """Tools first, then the messages with their roles: the order in which chat templates put them."""
    offered = json.dumps(texts.offered, sort_keys=True, default=str) if texts.offered else ""
    words = _words_of(_texts_in(texts.messages, 0))
    return None if words is None else (offered[:MAX_CHARS].split() + words)[:MAX_WORDS]


def _texts_in(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)) and depth < 8:
        for item in value:
            yield from _texts_in(item, depth + 1)
    elif isinstance(value, dict) and depth < 8:
        if isinstance(value.get("role"), str):
            yield value["role"]
        for name in TEXT_FIELDS:
            if name in value:
                yield from _texts_in(value[name], depth + 1)
        for call in value.get("tool_calls") or ():
            yield from _texts_in(call.get("function") if isinstance(call, dict) else None, depth + 1)


def _words_of(texts: Iterator[str]) -> list[str] | None:
    """At most ``MAX_WORDS`` words of the first ``MAX_CHARS`` characters; None when LiteLLM put its mark in a text's place."""
    words: list[str] = []
    chars = 0
    for text in islice(texts, MAX_PARTS):
        if text == REDACTED:
            return None
        if chars < MAX_CHARS and len(words) < MAX_WORDS:
            words += text[: MAX_CHARS - chars].split()
            chars += len(text)
    return words[:MAX_WORDS]


class FeatureWorker:
    """Adds ``tokenfuse_features`` to sampled payloads and hands every payload on to ``deliver``, each once."""

    def __init__(self, percent: int, deliver: Callable[[dict[str, Any]], Any], waiting: int = WAITING) -> None:
        self._percent, self._deliver = percent, deliver
        self._queue: queue.Queue[tuple[dict[str, Any], CallTexts] | None] = queue.Queue(waiting)
        self._thread: threading.Thread | None = None
        self.computed = 0
        self.skipped = 0

    def start(self) -> None:
        """Start the thread; a second call, or nothing to sample, does nothing."""
        if self._thread is None and self._percent > 0:
            self._thread = threading.Thread(target=self._run, name="tokenfuse-features", daemon=True)
            self._thread.start()

    def offer(self, payload: dict[str, Any], texts: CallTexts) -> None:
        """Deliver now, or after the numbers are computed. Never blocks and never loses a payload."""
        if self._thread is None or not is_sampled(payload, self._percent):
            self._deliver(payload)
            return
        try:
            self._queue.put_nowait((payload, texts))
        except queue.Full:
            self.skipped += 1
            self._deliver(payload)

    def stop(self, timeout_s: float = 2.0) -> None:
        """End the thread; calls that still wait are delivered without numbers."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        waiting = self._taken()
        self._queue.put(None)
        thread.join(timeout_s)
        for payload in waiting:
            self._deliver(payload)

    def stats(self) -> dict[str, Any]:
        """Fields for the guard's report."""
        return {"features": {"computed": self.computed, "skipped": self.skipped}}

    def _taken(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return found
            if item is not None:
                found.append(item[0])

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            payload, texts = item
            try:
                features = compute(texts, lambda: time.sleep(BREATH_S))
            except Exception:  # a shape nobody thought of must not cost the usage of this call, nor of all later ones
                features = None
                self.skipped += 1
            if features is not None:
                payload[FEATURES] = features
                self.computed += 1
            self._deliver(payload)

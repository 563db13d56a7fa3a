"""Numbers of a call's texts, computed by the hook inside a real LiteLLM proxy after the answer."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from litellm_world import Proxy, wait_for

from core.minhash import matches, places_needed
from ingest.usage.litellm_features import call_features

pytestmark = pytest.mark.litellm


def session(sampled: bool) -> str:
    names = (f"session-{n}" for n in range(10_000))
    return next(name for name in names if (zlib.crc32(name.encode()) % 100 < 10) == sampled)


def of_session(proxy: Proxy, name: str, number: int) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]]:
        return [p for p in proxy.centre.usage if p["metadata"]["requester_metadata"].get("session_id") == name]

    wait_for(lambda: len(found()) >= number)
    return found()


def test_a_sampled_session_brings_sketches_and_no_text(proxy: Proxy) -> None:
    name, long = session(True), "the quick brown fox jumps over the lazy dog " * 30
    for ending in ("one", "two"):
        assert proxy.chat(text=f"{long}{ending}", metadata={"session_id": name}).status == 200
    first, second = (call_features(payload) for payload in of_session(proxy, name, 2))
    assert len(first.prefix_sketch) == 64
    assert places_needed(70) <= matches(first.prefix_sketch, second.prefix_sketch) < 64, "the same head, another last word"
    assert "quick brown" not in json.dumps(of_session(proxy, name, 2))


def test_a_session_that_is_not_sampled_brings_none(proxy: Proxy) -> None:
    name = session(False)
    assert proxy.chat(text="word " * 100, metadata={"session_id": name}).status == 200
    (payload,) = of_session(proxy, name, 1)
    assert "tokenfuse_features" not in payload

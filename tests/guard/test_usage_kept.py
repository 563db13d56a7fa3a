"""Usage survives its process: files of processes that are gone are sent, calls under way reported, living ones left alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from guard_servers import Centre
from test_fetch import wait_for

from tokenfuse_guard.journal import Journal
from tokenfuse_guard.operations import ENDS, HOLD_S, SETTLE_S, Operations
from tokenfuse_guard.running_calls import RunningCalls
from tokenfuse_guard.stream_usage import StreamUsage
from tokenfuse_guard.usage_sender import UsageSender

TOKEN = "tf_test_secret"


def write_and_be_killed(folder: str) -> None:
    """A gateway's process: one call logged, one answered and logged, two under way, when it is killed."""
    sender = UsageSender("http://127.0.0.1:9", TOKEN, folder, lambda _: None)
    for call in ("done", "tried", "open"):
        sender.began(call, {"litellm_call_id": call, "startTime": 1.0})
    sender.began("tried", {"litellm_call_id": "tried", "startTime": 2.0})
    sender.keep({"litellm_call_id": "done", "prompt_tokens": 7})
    sender.ended("done", every=True)
    sender.ended("tried", every=False)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    folder = tmp_path / "usage"
    process = multiprocessing.get_context("spawn").Process(target=write_and_be_killed, args=(str(folder),))
    process.start()
    process.join()
    return folder


def test_the_next_process_sends_what_a_killed_one_knew(killed: Path, centre: Centre) -> None:
    lost: list[int] = []
    sender = UsageSender(f"{centre.url}/v1/usage/litellm", TOKEN, str(killed), lost.append)
    sender.start()
    wait_for(lambda: len(centre.usage) == 3)
    sender.stop()
    by_call = {payload["litellm_call_id"]: payload for payload in centre.usage}
    assert by_call["done"] == {"litellm_call_id": "done", "prompt_tokens": 7}
    assert by_call["tried"]["startTime"] == 2.0
    assert by_call["open"]["endTime"] >= by_call["open"]["startTime"]
    assert (lost, list(killed.iterdir())) == ([], [])


def test_files_of_a_living_process_are_left_alone(tmp_path: Path) -> None:
    mine, calls = Journal(str(tmp_path)), RunningCalls(str(tmp_path))
    part = mine.keep(b'{"n": 1}')
    calls.began("c", {"startTime": 1.0})
    assert Journal(str(tmp_path)).left_behind() == ([], [], 0)
    assert RunningCalls(str(tmp_path)).left_behind(set()) == ([], [])
    mine.cut()
    mine.done(part)
    assert Journal(str(tmp_path)).left_behind() == ([], [], 0)


def test_a_torn_line_is_counted_and_the_whole_ones_are_kept(tmp_path: Path) -> None:
    (tmp_path / "1.usage.part").write_bytes(b'{"n": 1}\n{"n": ')
    payloads, paths, torn = Journal(str(tmp_path)).left_behind()
    assert (payloads, [Path(path).name for path in paths], torn) == ([{"n": 1}], ["1.usage.part"], 1)


def test_a_call_logged_at_the_last_moment_is_not_reported_as_under_way(tmp_path: Path) -> None:
    (tmp_path / "1.usage.running").write_bytes(b'{"began": "a", "payload": {"startTime": 1.0}}\n')
    assert RunningCalls(str(tmp_path)).left_behind({"a"})[0] == []


def test_the_file_of_calls_under_way_does_not_grow_with_the_calls_made(tmp_path: Path) -> None:
    calls = RunningCalls(str(tmp_path))
    calls.began("long", {"startTime": 0.0})
    for number in range(20_000):
        calls.began(str(number), {"startTime": 1.0})
        calls.ended(str(number), every=True)
    (file,) = tmp_path.iterdir()
    assert file.read_bytes().count(b"\n") <= 10_100
    assert b'"began": "long"' in file.read_bytes()


def failure(end_s: float) -> dict[str, Any]:
    return {"status": "failure", "endTime": end_s}


def test_failed_attempts_wait_for_what_followed_them() -> None:
    waiting = Operations()
    assert waiting.failed("a", failure(1), 0) + waiting.failed("a", failure(2), 0) + waiting.due(1) == []
    assert waiting.answered("a") == [{**failure(1), ENDS: False}, {**failure(2), ENDS: False}]


@pytest.mark.parametrize("told_first", [True, False])
def test_the_last_failure_ended_the_operation_when_the_caller_was_given_it(told_first: bool) -> None:
    waiting = Operations()
    steps = [lambda: waiting.given_up("a", 0), lambda: [waiting.failed("a", failure(n), 0) for n in (2, 1)]]
    for step in steps if told_first else reversed(steps):
        step()
    assert waiting.due(SETTLE_S - 0.1) == []
    assert waiting.due(SETTLE_S) == [{**failure(1), ENDS: False}, {**failure(2), ENDS: True}]
    assert waiting.due(HOLD_S * 2) == []


def test_a_failure_nobody_speaks_of_again_goes_on_without_a_word() -> None:
    waiting = Operations()
    waiting.failed("a", failure(1), 0)
    assert waiting.due(HOLD_S - 1) == []
    assert waiting.due(HOLD_S) == [failure(1)]


class Chunk:
    def __init__(self, usage: dict[str, Any] | None, answer: str = "r1") -> None:
        self.id, self.usage = answer, usage


class Response:
    def __init__(self, *chunks: Chunk) -> None:
        self.chunks = list(chunks)


@pytest.mark.parametrize(
    ("chunks", "seen"),
    [
        ([Chunk(None), Chunk({"prompt_tokens": 9, "prompt_tokens_details": None})], {"prompt_tokens": 9}),
        ([Chunk({"tokens": 1}), Chunk({"tokens": 5}), Chunk({"tokens": None})], {"tokens": 5}),
        ([Chunk(None), Chunk(None)], {}),
        ([], None),
        ([Chunk({"prompt_tokens": 9}, "another")], None),
    ],
    ids=["last chunk", "cumulative: the last given counts", "none", "not watched", "a fallback's answer"],
)  # fmt: skip
def test_b01_b02_what_a_streams_chunks_say_of_usage(chunks: list[Chunk], seen: dict[str, Any] | None) -> None:
    streams = StreamUsage()
    streams.watch("call", Response(*chunks))
    assert streams.seen("call", "r1") == seen
    assert streams.seen("call", "r1") is None

"""Usage on its way: nothing is lost while there is room, every loss is counted, a restart sends what was left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guard_servers import Centre
from test_fetch import wait_for

from tokenfuse_guard.usage_sender import UsageSender

TOKEN = "tf_test_secret"


class Lost:
    def __init__(self) -> None:
        self.number = 0

    def __call__(self, number: int) -> None:
        self.number += number


@pytest.fixture
def lost() -> Lost:
    return Lost()


@pytest.fixture
def sender(centre: Centre, tmp_path: Path, lost: Lost) -> Iterator[UsageSender]:
    made = UsageSender(f"{centre.url}/v1/usage/litellm", TOKEN, str(tmp_path / "usage"), lost)
    yield made
    made.stop()


def payloads(first: int, after: int) -> list[dict[str, Any]]:
    return [{"litellm_call_id": f"c{i}", "prompt_tokens": i} for i in range(first, after)]


def offer(sender: UsageSender, first: int, after: int) -> None:
    for payload in payloads(first, after):
        sender.offer(payload)


def ids(centre: Centre) -> list[str]:
    return [payload["litellm_call_id"] for payload in centre.usage]


def test_everything_arrives_once_in_batches(sender: UsageSender, centre: Centre, lost: Lost) -> None:
    sender.start()
    offer(sender, 0, 450)
    wait_for(lambda: len(centre.usage) == sender.stats()["usage"]["sent"] == 450)
    assert sorted(ids(centre), key=lambda i: int(i[1:])) == [f"c{i}" for i in range(450)]
    assert len(centre.bodies) <= 5
    assert (sender.stats()["usage"]["sent"], lost.number) == (450, 0)


@pytest.mark.parametrize("status", [500, 503, 429, 401, 507])
def test_an_outage_spills_to_files_which_are_sent_later(sender: UsageSender, centre: Centre, lost: Lost, status: int) -> None:
    centre.status = status
    sender.start()
    offer(sender, 0, 30)
    wait_for(lambda: sender.stats()["usage"]["files"])
    assert str(status) in sender.fault
    centre.status = 200
    wait_for(lambda: len(set(ids(centre))) == 30)
    wait_for(lambda: not sender.stats()["usage"]["files"])
    assert lost.number == 0


def test_a_restart_sends_what_an_earlier_process_left_behind(
    sender: UsageSender, centre: Centre, tmp_path: Path, lost: Lost
) -> None:
    centre.status = 503
    offer(sender, 0, 10)
    sender.start()
    sender.stop()
    centre.status = 200
    again = UsageSender(f"{centre.url}/v1/usage/litellm", TOKEN, str(tmp_path / "usage"), lost)
    again.start()
    wait_for(lambda: len(set(ids(centre))) == 10)
    again.stop()
    assert lost.number == 0


def test_stopping_sends_what_is_queued(sender: UsageSender, centre: Centre) -> None:
    offer(sender, 0, 7)
    sender.start()
    sender.stop()
    assert len(ids(centre)) == 7


def test_a_full_queue_drops_the_newest_and_counts_it(centre: Centre, lost: Lost) -> None:
    sender = UsageSender(f"{centre.url}/v1/usage/litellm", TOKEN, "", lost, max_queue=5)
    offer(sender, 0, 8)
    assert lost.number == 3


def test_without_a_folder_an_outage_is_waited_out_in_memory(centre: Centre, lost: Lost) -> None:
    sender = UsageSender(f"{centre.url}/v1/usage/litellm", TOKEN, "", lost)
    centre.status = 503
    sender.start()
    offer(sender, 0, 10)
    wait_for(lambda: sender.fault)
    centre.status = 200
    wait_for(lambda: len(ids(centre)) == 10)
    sender.stop()
    assert lost.number == 0


def test_full_spill_files_drop_and_count(centre: Centre, tmp_path: Path, lost: Lost) -> None:
    sender = UsageSender(f"{centre.url}/v1/usage/litellm", TOKEN, str(tmp_path), lost, max_spill_bytes=10)
    centre.status = 503
    sender.start()
    offer(sender, 0, 10)
    wait_for(lambda: lost.number == 10)
    sender.stop()


@pytest.mark.parametrize("status", [400, 404, 415, 422])
def test_what_the_centre_will_never_take_is_counted_not_retried(
    sender: UsageSender, centre: Centre, lost: Lost, status: int
) -> None:
    centre.status = status
    sender.start()
    offer(sender, 0, 4)
    wait_for(lambda: lost.number == 4)
    assert sender.stats()["usage"]["files"] == 0


def test_a_batch_too_large_is_halved_down_to_the_record_that_is(sender: UsageSender, centre: Centre, lost: Lost) -> None:
    centre.status = 413
    sender.start()
    offer(sender, 0, 4)
    wait_for(lambda: lost.number == 4)


def test_a_damaged_file_is_counted_and_does_not_block_the_next(
    sender: UsageSender, centre: Centre, tmp_path: Path, lost: Lost
) -> None:
    folder = tmp_path / "usage"
    folder.mkdir()
    (folder / "0.usage.json").write_text("[{")
    (folder / "1.usage.json").write_text('[{"litellm_call_id": "c1"}]')
    sender.start()
    wait_for(lambda: ids(centre) == ["c1"])
    assert lost.number == 1

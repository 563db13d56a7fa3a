"""Policy and reports over real HTTP: long poll, outages, forgeries, what is reported once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from guard_servers import KEY_ID, Centre, reject, signed

from tokenfuse_guard.fetch import MAX_BACKOFF_S, Fetcher, backoff_s
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.settings import GuardSettings


def wait_for(true: Callable[[], Any], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def live(settings: GuardSettings, centre: Centre) -> Guard:
    return Guard(settings._replace(url=centre.url, wait_s=5.0, report_every_s=0.2))


def version(guard: Guard) -> int:
    return 0 if guard.policy is None else guard.policy.version


def test_a_new_policy_arrives_through_the_open_poll(live: Guard, centre: Centre) -> None:
    centre.publish(signed([], version=1))
    fetcher = Fetcher(live)
    fetcher.start()
    wait_for(lambda: version(live) == 1)
    centre.publish(signed([reject("platform")], version=2))
    wait_for(lambda: version(live) == 2)
    fetcher.stop()


@pytest.mark.parametrize("status", [500, 503, 401, 302])
def test_an_outage_keeps_the_last_good_policy_and_is_said(live: Guard, centre: Centre, status: int) -> None:
    centre.publish(signed([reject("platform")], version=1))
    fetcher = Fetcher(live)
    assert fetcher.fetch_once()
    centre.status = status
    assert not fetcher.fetch_once()
    assert version(live) == 1
    assert str(status) in live.fault


def test_a_centre_that_is_gone_keeps_the_last_good_policy(live: Guard, centre: Centre) -> None:
    centre.publish(signed([], version=1))
    fetcher = Fetcher(live)
    fetcher.fetch_once()
    centre.close()
    assert not fetcher.fetch_once()
    assert version(live) == 1


@pytest.mark.parametrize(
    "document",
    [
        signed([], version=9, keys={KEY_ID: b"x" * 32}),
        signed([], version=9, guard="another"),
        signed([], version=9, lives_s=-1),
        signed([], version=1),
    ],
    ids=["forged", "another guard's", "expired", "rolled back"],
)
def test_a_bad_policy_is_refused_and_the_old_one_obeyed(live: Guard, centre: Centre, document: dict[str, Any]) -> None:
    centre.publish(signed([reject("platform")], version=2))
    fetcher = Fetcher(live)
    fetcher.fetch_once()
    centre.publish(document)
    assert not fetcher.fetch_once()
    assert version(live) == 2
    assert "policy refused" in live.fault


def test_reports_arrive_once_and_carry_other_parts_fields(live: Guard, centre: Centre) -> None:
    live.counts.add("refused", 3)
    fetcher = Fetcher(live, lambda: {"usage": {"sent": 4}})
    centre.status = 503
    assert not fetcher.send_report()
    centre.status = 200
    assert fetcher.send_report()
    assert fetcher.send_report()
    assert [report["refused"] for report in centre.reports] == [3, 0]
    assert centre.reports[0]["usage"] == {"sent": 4}


def test_a_quiet_guard_reports_only_as_a_heartbeat(live: Guard, centre: Centre) -> None:
    fetcher = Fetcher(live)
    assert not fetcher.send_report(only_if_needed=True)
    live.counts.add("dropped")
    assert fetcher.send_report(only_if_needed=True)
    assert len(centre.reports) == 1


def test_without_a_centre_nothing_is_started(settings: GuardSettings) -> None:
    Fetcher(Guard(settings)).start()


def test_the_backoff_grows_with_jitter_to_half_a_minute() -> None:
    assert all(0 < backoff_s(1) <= 0.5 for _ in range(50))
    assert all(backoff_s(1000) <= MAX_BACKOFF_S for _ in range(50))
    assert len({round(backoff_s(8), 3) for _ in range(50)}) > 10

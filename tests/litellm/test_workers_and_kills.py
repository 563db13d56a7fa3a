"""Four LiteLLM workers that share a folder, killed while the centre is away: what was answered is counted, once each.

They run as ``deploy/litellm`` recommends: by ``always_include_stream_usage`` streams are exact that nobody asked usage for.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import pytest
from exact_world import booked, counts_of, environment, set_up, settle
from litellm_world import litellm, wait_for
from sqlalchemy import Engine
from tokenfuse_api import Api, Junction, serving
from truth_cases import UNASKED, Case, Client
from truth_upstream import Told, TruthUpstream

from core.usage import UsageRecord

pytestmark = pytest.mark.litellm
FIRST = tuple(Case(Told(f"first{n}", prompt=100 + n, completion=10 + n, cached=n), UNASKED if n % 2 else {}) for n in range(40))
AWAY = tuple(Case(Told(f"away{n}", prompt=500 + n, completion=50 + n, cached=n), UNASKED if n % 2 else {}) for n in range(24))
UNDER_WAY = tuple(Case(Told(f"underway{n}", wait_s=30)) for n in range(3))
AFTER = tuple(Case(Told(f"after{n}", prompt=900 + n, completion=90 + n)) for n in range(4))


@dataclass
class Story:
    """What was booked before the kill and at the end."""

    upstream: TruthUpstream
    before: list[UsageRecord]
    after: list[UsageRecord] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    left_on_disk: int = 0


def kept_calls(folder: Path) -> int:
    """Logged calls that lie on disk."""
    found: set[str] = set()
    for path in (folder / "state" / "usage").glob("*.usage.*"):
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            continue
        if not path.name.endswith(".running"):
            found |= set(re.findall(rb'"litellm_call_id": "([^"]+)"', raw))
    return len(found)


def run(cases: tuple[Case, ...], url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda case: case.run(Client(url)), cases))


def give_up(case: Case, url: str) -> None:
    """A caller whose gateway dies."""
    with suppress(OSError, HTTPException):
        case.run(Client(url))


def kill(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def story(engine: Engine, token: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("workers")
    upstream = TruthUpstream()
    set_up(folder, upstream, "tokenfuse_guard.handler", asks="true")
    with ExitStack() as stack:
        api: Api = stack.enter_context(serving(engine, folder / "api"))
        centre = Junction(api.url)
        extra = environment(folder, token, centre.url, centre.url)
        with litellm(folder, extra, workers=4) as (url, process):
            run(FIRST, url)
            settle([api], len(FIRST), 30)
            told = Story(upstream, api.records())
            centre.open = False
            run(AWAY, url)
            wait_for(lambda: kept_calls(folder) >= len(AWAY))
            for case in UNDER_WAY:
                threading.Thread(target=give_up, args=(case, url), daemon=True).start()
            wait_for(lambda: all(upstream.account.of(case.told.case) for case in UNDER_WAY))
            kill(process.pid)
        told.left_on_disk = kept_calls(folder)
        centre.open = True
        with litellm(folder, extra) as (url, _):
            run(AFTER, url)
            settle([api], len(FIRST) + len(AWAY) + len(UNDER_WAY) + len(AFTER), 30)
        told.after, told.quarantined = api.records(), api.quarantined()
        yield told
        for server in (centre, upstream):
            server.close()


def test_four_workers_are_counted_in_full(story: Story) -> None:
    assert len(story.before) == len(FIRST)
    assert booked(story.before) == counts_of(case.told for case in FIRST)


def test_what_was_answered_while_the_centre_was_away_survives_the_kill(story: Story) -> None:
    assert story.left_on_disk >= len(AWAY)
    cases = (*FIRST, *AWAY, *AFTER)
    exact = [row for row in story.after if row.usage_source == "exact"]
    assert sorted(row.tenant.team for row in exact) == sorted(case.told.case for case in cases)
    assert booked(exact) == counts_of(case.told for case in cases)
    assert story.quarantined == []


def test_a_call_under_way_when_the_gateway_was_killed_is_booked_as_missing(story: Story) -> None:
    unknown = [row for row in story.after if row.usage_source != "exact"]
    assert sorted(row.tenant.team for row in unknown) == sorted(case.told.case for case in UNDER_WAY)
    assert {(row.usage_source, row.status, row.requested_model, row.deployment.model_id, row.tenant.user) for row in unknown} == {
        ("missing", "aborted", "tiny", "tiny-8b", "ann")
    }

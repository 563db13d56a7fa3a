"""The generated month has the shape it claims, and its engines agree with its requests."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from cli.demo.engines import Engine
from cli.demo.history import CHAT_POOL, INCIDENT_REQUESTS, LONG_POOL, Month, requests
from core.usage import UsageRecord

MONTH = Month(datetime(2026, 11, 2, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC))


@pytest.fixture(scope="module")
def records() -> list[UsageRecord]:
    return [record for hour in requests(MONTH) for record in hour]


def test_it_says_that_it_is_generated(records: list[UsageRecord]) -> None:
    assert all(record.raw == {"generated": True} and record.tenant.org == "demo" for record in records)


def test_it_is_the_same_each_time(records: list[UsageRecord]) -> None:
    assert [record for hour in requests(MONTH) for record in hour] == records


def test_ids_are_unique_and_times_lie_inside(records: list[UsageRecord]) -> None:
    assert len({record.request_id for record in records}) == len(records)
    assert all(MONTH.start <= record.started_at and record.finished_at <= MONTH.end for record in records)


def test_nights_and_weekends_are_quiet(records: list[UsageRecord]) -> None:
    day_work = [record for record in records if record.tenant.team != "batch-tagging"]
    by_hour = Counter(record.started_at.hour for record in day_work)
    by_weekday = Counter(record.started_at.weekday() for record in day_work)
    assert by_hour[13] > 3 * by_hour[3]
    assert by_weekday[2] > 2 * by_weekday[6]


def test_failures_are_as_frequent_as_measured(records: list[UsageRecord]) -> None:
    failed = [record for record in records if record.status == "error"]
    assert 0.01 < len(failed) / len(records) < 0.03
    assert all(record.usage_source == "missing" for record in failed)


def test_the_incident_is_in_it(records: list[UsageRecord]) -> None:
    burst = [record for record in records if record.tenant.user == "contract-parser"]
    assert len(burst) == INCIDENT_REQUESTS
    assert len({record.started_at.date() for record in burst}) == 1
    assert all(record.tokens.input_total > 32_000 for record in burst)


@pytest.mark.parametrize("pool", [LONG_POOL, CHAT_POOL])
def test_engines_did_what_the_requests_say_and_a_little_more(records: list[UsageRecord], pool: object) -> None:
    engine = Engine(pool, "node", MONTH.start)  # type: ignore[arg-type]
    mine = [record for record in records if record.deployment == pool]
    engine.feed(mine)
    samples = list(engine.samples(MONTH.end + timedelta(minutes=1)))
    last = samples[-1].counters
    asked = sum(record.tokens.input_total for record in mine)
    assert asked <= last["prompt_tokens"] <= asked * 1.1
    assert last["prompt_tokens"] == last["prompt_tokens_cached"] + last["prompt_tokens_computed"]
    for before, after in pairwise(samples):
        assert all(after.counters[name] >= value for name, value in before.counters.items())
        assert after.at - before.at == timedelta(minutes=1)

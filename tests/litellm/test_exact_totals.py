"""A real LiteLLM between clients and an upstream that keeps its own account: what we book equals it, or says that it is a guess.

The proxy runs once with our hook and with ``generic_api``. What the hook posts goes to one Tokenfuse, what ``generic_api`` posts
to a second, and both to a third, which must count each answer once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from exact_world import booked, counts_of, environment, flush_generic_api, set_up, settle
from litellm_world import litellm
from sqlalchemy import Engine
from tokenfuse_api import Junction, serving
from truth_cases import CASES, EXACT, Case, Client
from truth_upstream import TruthUpstream

from core.tokens import TokenCounts
from core.usage import UsageRecord, operation_end

pytestmark = pytest.mark.litellm
WAIT_S = 40.0


@dataclass
class World:
    """The upstream after all cases were run, and what each Tokenfuse has of them, by door."""

    upstream: TruthUpstream
    records: dict[str, list[UsageRecord]]
    quarantined: dict[str, list[str]]

    def of(self, door: str, case: Case) -> list[UsageRecord]:
        return [record for record in self.records[door] if record.tenant.team == case.told.case]


DOORS = ("hook", "alone", "both")


@pytest.fixture(scope="module")
def world(engine: Engine, token: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("exact")
    upstream = TruthUpstream()
    set_up(folder, upstream)
    with ExitStack() as stack:
        apis = {door: stack.enter_context(serving(engine, folder / door)) for door in DOORS}
        junctions = [
            Junction(apis["hook"].url, apis["both"].url),
            Junction(apis["alone"].url, apis["both"].url, at_once=True),
        ]
        with litellm(folder, environment(folder, token, *(junction.url for junction in junctions))) as (url, _):
            with ThreadPoolExecutor(6) as pool:
                list(pool.map(lambda case: case.run(Client(url)), CASES))
            rows = sum(case.attempts for case in CASES)
            settle([apis["hook"]], rows, WAIT_S)
            flush_generic_api(url)
            settle(list(apis.values()), rows, WAIT_S)
        records = {door: api.records() for door, api in apis.items()}
        yield World(upstream, records, {door: api.quarantined() for door, api in apis.items()})
        for server in (*junctions, upstream):
            server.close()


def truth(cases: Iterable[Case], world: World) -> TokenCounts:
    """What the upstream answered in full."""
    served = [one for case in cases for one in world.upstream.account.of(case.told.case)]
    return counts_of(one.told for one in served if one.outcome == "ok")


def known(case: Case, door: str) -> str:
    return case.alone if door == "alone" else case.hook


def name(case: Case) -> str:
    return case.told.case


@pytest.mark.parametrize("door", ["hook", "alone"])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_what_is_booked_as_exact_is_the_upstreams_count_and_all_else_says_that_it_is_not(
    world: World, case: Case, door: str
) -> None:
    rows = world.of(door, case)
    last = [row for row in rows if row.status == case.status]
    assert len(rows) == case.attempts
    assert len(last) == 1
    if known(case, door) == EXACT:
        assert last[0].usage_source == "exact"
        assert last[0].tokens == truth([case], world)
    else:
        assert last[0].usage_source in ("estimated", "missing")
    assert {(row.status, row.usage_source) for row in rows if row is not last[0]} <= {("error", "missing")}


@pytest.mark.parametrize("door", DOORS)
def test_exact_totals_are_the_upstreams_to_the_token(world: World, door: str) -> None:
    exact = [row for row in world.records[door] if row.usage_source == "exact"]
    sure = [case for case in CASES if known(case, "alone") == EXACT]
    assert booked(row for row in exact if row.tenant.team in set(map(name, sure))) == truth(sure, world)
    found = {row.tenant.team for row in exact}
    assert found >= set(map(name, sure))
    assert booked(exact) == truth([case for case in CASES if name(case) in found], world)
    assert world.quarantined[door] == []


def test_both_doors_at_once_count_each_answer_once(world: World) -> None:
    by_door = {door: {row.request_id for row in world.records[door]} for door in DOORS}
    assert by_door["both"] == by_door["hook"] == by_door["alone"]
    assert len(by_door["both"]) == sum(case.attempts for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_b10_with_the_hook_every_operation_is_counted_once(world: World, case: Case) -> None:
    ends = [operation_end(row.ends_operation, row.status) for row in world.of("hook", case)]
    assert sorted(ends) == [0] * (case.attempts - 1) + [1]
    assert len({row.operation_id for row in world.of("hook", case)}) == 1


def test_b10_without_the_hook_the_number_of_operations_lies_between_two_known_ones(world: World) -> None:
    ends = Counter(operation_end(row.ends_operation, row.status) for row in world.records["alone"])
    assert ends[1] <= len(CASES) <= ends[1] + ends[-1]


def test_b10_the_asked_model_is_kept_and_the_answering_one_is_charged(world: World) -> None:
    for case in CASES:
        if case.model == "broken":
            for door in DOORS:
                (answered,) = [row for row in world.of(door, case) if row.status == "ok"]
                assert (answered.requested_model, answered.deployment.model_id) == ("broken", "backup-8b")
                assert answered.tokens == truth([case], world)


def test_b09_a_response_read_back_three_times_is_one_billable_request(world: World) -> None:
    (case,) = (case for case in CASES if name(case) == "polled")
    (served,) = world.upstream.account.of("polled")
    assert world.upstream.reads[served.response_id] == 3
    assert [len(world.of(door, case)) for door in DOORS] == [1, 1, 1]


def test_b15_parallel_answers_are_one_request_of_n(world: World) -> None:
    for case in CASES:
        if "n" in case.more:
            assert [row.n for door in DOORS for row in world.of(door, case)] == [2, 2, 2]

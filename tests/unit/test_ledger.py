"""The ledger closes: for any inputs the named lines add up to the capacity cost, and each change moves only what it should."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.allocate import EngineTotals, PeriodWork, UsageSum, Weights, Work
from core.capacity import NodeService, TargetTime
from core.ledger import LedgerWindow, WindowInputs, close_window
from core.money import QUANTUM, money
from core.rates import Rate
from core.usage import Deployment
from core.windows import QUARTER_HOUR, Window

D = Deployment("lab", "prod", "tiny")
T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
WINDOW = Window(T0, T0 + QUARTER_HOUR)
BEFORE = T0 - timedelta(days=1)
A10G = Rate("gpu_hour", "A10G", money("1.006", "USD"), "list", "card", BEFORE)
NODE = NodeService(D, "http://a", "node1", "A10G", 1, BEFORE)
WHOLE_US = 900_000_000
FIT = Weights("fit", Decimal("12.5"), Decimal(0), Decimal(900), Decimal("0.031"))
PERIOD = PeriodWork("this quarter hour", 40_000_000, 90_000_000, 100_000, 9_000)

counts = st.integers(0, 200_000)
works = st.builds(Work, st.integers(0, 50), counts, counts, counts, st.integers(0, 10**10))


def usage(team: str, work: Work, status: str = "ok", source: str = "exact") -> UsageSum:
    return UsageSum("acme", team, "", "", "", "P1", 0, status, source, work)


rows = st.lists(
    st.builds(usage, st.sampled_from(["a", "b", "c"]), works, st.sampled_from(["ok", "error", "aborted"])), max_size=6
)
engines = st.none() | st.builds(lambda p, c, g: EngineTotals(p + c, c, g), counts, counts, counts)
times = st.none() | st.tuples(st.integers(0, WHOLE_US), st.integers(0, WHOLE_US), st.integers(0, WHOLE_US))


def inputs(**changes: object) -> WindowInputs:
    base = WindowInputs(D, WINDOW, (NODE,), (A10G,), (), (), None)
    return replace(base, **changes)  # type: ignore[arg-type]


def target_times(parts: tuple[int, int, int] | None) -> tuple[TargetTime, ...]:
    if parts is None:
        return ()
    observed, busy, gap = parts
    return (TargetTime("http://a", observed, min(observed, busy), min(gap, WHOLE_US - observed)),)


def kinds(closed: LedgerWindow) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for line in closed.lines:
        found[line.key.kind] = found.get(line.key.kind, Decimal(0)) + line.cost
    return found


def by_team(closed: LedgerWindow) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for line in closed.lines:
        if line.key.kind in ("served", "wasted"):
            found[line.key.team] = found.get(line.key.team, Decimal(0)) + line.cost
    return found


@given(rows, engines, times, st.sampled_from([None, FIT]), st.sampled_from([(), (PERIOD,)]), st.integers(0, 1_000_000))
def test_the_lines_add_up_to_the_capacity_cost_on_both_bases(
    used: list[UsageSum],
    engine: EngineTotals | None,
    time: tuple[int, int, int] | None,
    fit: Weights | None,
    periods: tuple[PeriodWork, ...],
    busy_ppm: int,
) -> None:
    closed = close_window(
        inputs(usage=tuple(used), engine=engine, times=target_times(time), fit=fit, periods=periods, gateway_busy_ppm=busy_ppm)
    )
    assert closed.capacity_cost == Decimal("0.2515")
    assert sum(line.cost for line in closed.lines) == closed.capacity_cost
    assert sum(line.allocated for line in closed.lines) == closed.capacity_cost
    assert all(line.cost >= 0 and line.allocated >= 0 for line in closed.lines)
    if engine is None:
        return
    assert sum(line.tokens for line in closed.lines if line.key.token_kind == "output") == max(
        engine.generation, sum(u.work.output for u in used)
    )


@given(rows, engines, times, st.sampled_from([(), (PERIOD,)]))
def test_the_order_of_usage_changes_nothing_down_to_the_last_digit(
    used: list[UsageSum], engine: EngineTotals | None, time: tuple[int, int, int] | None, periods: tuple[PeriodWork, ...]
) -> None:
    one = inputs(usage=tuple(used), engine=engine, times=target_times(time), periods=periods)
    other = replace(one, usage=tuple(reversed(used)))
    assert close_window(one) == close_window(other)
    assert one.digest() == other.digest()


@given(rows, engines, times)
def test_adding_an_idle_node_changes_idle_alone(
    used: list[UsageSum], engine: EngineTotals | None, time: tuple[int, int, int] | None
) -> None:
    before = close_window(inputs(usage=tuple(used), engine=engine, times=target_times(time)))
    spare = NodeService(D, "http://spare", "node2", "A10G", 2, BEFORE)
    idle = (*target_times(time), TargetTime("http://spare", WHOLE_US, 0, 0))
    if time is None or time[0] == 0:
        return
    after = close_window(inputs(services=(NODE, spare), usage=tuple(used), engine=engine, times=idle))
    assert kinds(after).get("idle", 0) == kinds(before).get("idle", 0) + Decimal("0.503")
    assert [x for x in after.lines if x.key.kind != "idle"] == [
        replace(x, allocated=y.allocated)
        for x, y in zip(
            (x for x in before.lines if x.key.kind != "idle"), (y for y in after.lines if y.key.kind != "idle"), strict=True
        )
    ]


@given(works, works, works, st.sampled_from([None, FIT]))
def test_splitting_a_tenant_leaves_the_sum(one: Work, two: Work, other: Work, fit: Weights | None) -> None:
    time = target_times((WHOLE_US, WHOLE_US // 2, 0))
    whole = by_team(close_window(inputs(usage=(usage("a", one + two), usage("z", other)), times=time, fit=fit)))
    parts = by_team(close_window(inputs(usage=(usage("a", one), usage("b", two), usage("z", other)), times=time, fit=fit)))
    assert abs(whole.get("a", Decimal(0)) - parts.get("a", Decimal(0)) - parts.get("b", Decimal(0))) <= 6 * QUANTUM
    assert abs(whole.get("z", Decimal(0)) - parts.get("z", Decimal(0))) <= 6 * QUANTUM


@given(works, st.sampled_from([(None, ()), (None, (PERIOD,)), (FIT, ())]))
def test_a_cached_token_never_costs_more_than_an_uncached_one(
    work: Work, source: tuple[Weights | None, tuple[PeriodWork, ...]]
) -> None:
    closed = close_window(
        inputs(usage=(usage("a", work),), times=target_times((WHOLE_US, WHOLE_US, 0)), fit=source[0], periods=source[1])
    )
    cost = {line.key.token_kind: line for line in closed.lines if line.tokens}
    if "input" in cost and "input_cached" in cost:
        cached, uncached = cost["input_cached"], cost["input"]
        assert cached.cost * uncached.tokens <= uncached.cost * cached.tokens + QUANTUM * (cached.tokens + uncached.tokens)


@pytest.mark.parametrize(
    ("usage_rows", "engine", "expected"),
    [
        ((), EngineTotals(0, 0, 0), {"idle": "0.12575", "unattributed": "0.12575"}),
        ((), EngineTotals(900, 0, 30), {"idle": "0.12575", "unattributed": "0.12575"}),
        ((usage("a", Work(1, 900, 0, 30)),), EngineTotals(900, 0, 30), {"idle": "0.12575", "served": "0.12575"}),
        ((usage("a", Work(1, 900, 0, 30), "error"),), EngineTotals(900, 0, 30), {"idle": "0.12575", "wasted": "0.12575"}),
        (
            (usage("a", Work(1, 450, 0, 15)),),
            EngineTotals(900, 0, 30),
            {"idle": "0.12575", "served": "0.062875", "unattributed": "0.062875"},
        ),
        ((usage("a", Work(1, 900, 0, 30)),), EngineTotals(450, 0, 15), {"idle": "0.12575", "served": "0.12575"}),
    ],
    ids=["busy, nothing counted", "gateway bypassed", "served", "wasted", "half explained", "over-explained"],
)
def test_who_bears_the_busy_half(usage_rows: tuple[UsageSum, ...], engine: EngineTotals, expected: dict[str, str]) -> None:
    closed = close_window(inputs(usage=usage_rows, engine=engine, times=target_times((WHOLE_US, WHOLE_US // 2, 0))))
    assert kinds(closed) == {kind: Decimal(cost) for kind, cost in expected.items()}


def test_an_excess_of_the_gateway_is_shown_not_costed() -> None:
    closed = close_window(
        inputs(
            usage=(usage("a", Work(1, 900, 0, 30)),),
            engine=EngineTotals(800, 0, 25),
            times=target_times((WHOLE_US, WHOLE_US, 0)),
        )
    )
    assert closed.detail["over_explained"] == {"input": 100, "output": 5}


def test_failures_without_counts_stay_unattributed_with_their_number_beside() -> None:
    lost = usage("a", Work(requests=7), "error", "missing")
    closed = close_window(inputs(usage=(lost,), engine=EngineTotals(100, 0, 10), times=target_times((WHOLE_US, WHOLE_US, 0))))
    assert closed.detail["missing_requests"] == 7
    assert [(x.key.kind, x.requests) for x in closed.lines if x.requests] == [("unattributed", 7)]


def test_what_a_guard_refused_is_counted_and_not_costed() -> None:
    refused = usage("a", Work(requests=3), "refused")
    closed = close_window(inputs(usage=(refused,), times=target_times((WHOLE_US, 0, 0))))
    assert closed.detail["refused_requests"] == 3
    assert kinds(closed) == {"idle": Decimal("0.2515")}


def test_requests_add_up_once_over_the_token_kinds() -> None:
    closed = close_window(inputs(usage=(usage("a", Work(5, 10, 20, 30)),), times=target_times((WHOLE_US, WHOLE_US, 0))))
    assert [line.requests for line in closed.lines if line.key.kind == "served"] == [5, 0, 0]


@pytest.mark.parametrize(
    ("time", "busy_ppm", "engine", "source", "expected"),
    [
        ((450_000_000, 225_000_000, 0), 0, None, "share of time with running > 0", ("0.062875", "0.062875", "0.12575")),
        ((300_000_000, 300_000_000, 600_000_000), 0, None, "share of time with running > 0", ("0.2515", "0", "0")),
        (None, 400_000, None, "minutes with gateway tokens (no engine observation)", ("0.1006", "0.1509", "0")),
        ((0, 0, WHOLE_US), 0, EngineTotals(9, 0, 9), "assumed 1 (engine counters moved in a scrape gap)", ("0.2515", "0", "0")),
        (None, 0, None, "none: no engine seen", ("0", "0", "0.2515")),
    ],
    ids=["half without an engine", "in a gap as observed", "no scrape", "all gap", "nothing known"],
)  # fmt: skip
def test_what_the_reserved_time_was(
    time: tuple[int, int, int] | None, busy_ppm: int, engine: EngineTotals | None, source: str, expected: tuple[str, str, str]
) -> None:
    closed = close_window(
        inputs(usage=(usage("a", Work(1, 9, 0, 9)),), times=target_times(time), gateway_busy_ppm=busy_ppm, engine=engine)
    )
    found = kinds(closed)
    work = sum((found.get(kind, Decimal(0)) for kind in ("served", "wasted", "unattributed")), Decimal(0))
    assert closed.utilisation_source == source
    assert (work, found.get("idle", 0), found.get("starting", 0)) == tuple(Decimal(x) for x in expected)


def test_an_unknown_rate_prices_nothing_and_lists_the_tokens() -> None:
    closed = close_window(inputs(rates=(), usage=(usage("a", Work(2, 10, 20, 30)),)))
    assert (closed.capacity_cost, closed.used_cost, closed.lines) == (None, None, ())
    assert closed.detail["unpriced"] == {"requests": 2, "input": 10, "input_cached": 20, "output": 30}
    assert closed.detail["reason"] == "no list rate gpu_hour for A10G at 2026-11-30T12:00:00+00:00"


def test_the_digest_ignores_prices_of_other_times_and_sees_those_of_the_window() -> None:
    base = inputs()
    later = Rate("gpu_hour", "A10G", money("2", "USD"), "list", "card", WINDOW.end)
    within = replace(later, valid_from=T0 + timedelta(minutes=5))
    assert replace(base, rates=(A10G, later)).digest() == base.digest()
    assert replace(base, rates=(A10G, within)).digest() != base.digest()

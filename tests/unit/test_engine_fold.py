"""The engine fold as a specification: what counters, restarts, gaps and order of arrival mean for the sums."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.engine import COUNTERS, EngineKey, EngineSample
from core.engine_fold import KEPT, MEASURES, EngineDelta, FoldState, decode_state, encode_state, fold
from core.errors import BadInput
from core.usage import Deployment
from core.windows import MINUTE_MS, from_epoch_ms
from models.tables_usage import ENGINE_MEASURES

KEY = EngineKey("http://gpu-1:8000/metrics", "0", "org/model")
T0 = 1_796_040_000_000


def sample(
    at_s: float,
    prompt: int | None = None,
    *,
    started_s: float | None = None,
    created_s: float | None = None,
    watched_s: float | None = None,
    running: int | None = 1,
    waiting: int | None = 0,
    interval_s: float | None = 5,
    kv: tuple[int, int] | None = None,
    torch: tuple[int, int] | None = None,
    node: str = "node-1",
    **counters: int,
) -> EngineSample:
    """A sample at T0 + at_s; all times relative to T0."""

    def at(seconds: float | None) -> object:
        return None if seconds is None else from_epoch_ms(T0 + round(seconds * 1000))

    gauges = {"running": running, "waiting": waiting, **({"kv_usage_ppm": kv[0], "kv_capacity_tokens": kv[1]} if kv else {})}
    gauges |= {} if torch is None else {"torch_reserved_mib": torch[0], "torch_allocated_mib": torch[1]}
    known = {**counters, **({} if prompt is None else {"prompt_tokens": prompt})}
    return EngineSample(
        key=KEY,
        at=from_epoch_ms(T0 + round(at_s * 1000)),
        deployment=Deployment("c1", "prod", KEY.model_id),
        node=node,
        process_started_at=at(started_s),  # type: ignore[arg-type]
        created_at=at(created_s),  # type: ignore[arg-type]
        watched_since=at(watched_s),  # type: ignore[arg-type]
        interval_ms=None if interval_s is None else round(interval_s * 1000),
        counters=known,
        gauges={name: value for name, value in gauges.items() if value is not None},
    )


def run(samples: Iterable[EngineSample], state: FoldState | None = None) -> tuple[FoldState | None, list[EngineDelta]]:
    """Fold in order of arrival, through the bytes the stream keeps between two calls."""
    deltas: list[EngineDelta] = []
    for one in samples:
        state, new = fold(state, one)
        state = decode_state(encode_state(state))
        deltas += new
    return state, deltas


def totals(deltas: Iterable[EngineDelta]) -> Counter[str]:
    total: Counter[str] = Counter()
    for delta in deltas:
        total.update(delta.measures)
    return total


def rows(deltas: Iterable[EngineDelta]) -> dict[tuple[int, str], dict[str, int]]:
    """The rollup rows the deltas add up to, without rows that hold nothing."""
    found: dict[tuple[int, str], Counter[str]] = {}
    for delta in deltas:
        found.setdefault((delta.minute_ms, delta.node), Counter()).update(delta.measures)
    return {key: {n: v for n, v in row.items() if v} for key, row in found.items() if any(row.values())}


def test_measures_are_the_columns_of_the_rollup() -> None:
    assert MEASURES == ENGINE_MEASURES


# --- counters and restarts: B11 of the fault list -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "samples", "tokens", "resets"),
    [
        ("the first sample is a baseline", [sample(0, 100)], 0, 0),
        ("plain growth", [sample(0, 100), sample(5, 150)], 50, 0),
        ("no growth", [sample(0, 100), sample(5, 100)], 0, 0),
        ("B11: 100, 150, restart, 10, 30", [sample(0, 100), sample(5, 150), sample(10, 10), sample(15, 30)], 80, 1),
        ("B11a: grown past the old value, the start moved", [sample(0, 150, started_s=-9), sample(5, 160, started_s=2)], 160, 1),
        ("B11a: without a start time it cannot be known", [sample(0, 150), sample(5, 160)], 10, 0),
        ("B11b: the creation stamp moved", [sample(0, 150, created_s=-9), sample(5, 160, created_s=2)], 160, 1),
        ("a stamp that jitters by a millisecond", [sample(0, 150, started_s=-9), sample(5, 160, started_s=-8.999)], 10, 0),
        ("B11c: born while we watched", [sample(20, 30, created_s=12, watched_s=0)], 30, 0),
        ("B11c: born before we began to watch", [sample(20, 30, created_s=-12, watched_s=0)], 0, 0),
        ("B11c: birth unknown", [sample(20, 30, watched_s=0)], 0, 0),
        ("B11d: the late 140 is not a reset", [sample(0, 100), sample(10, 150), sample(5, 140)], 50, 0),
        ("restart to zero, then the same value again", [sample(0, 50), sample(5, 0), sample(10, 50)], 50, 1),
        (
            "restart while the scraper was down too: counted, for it came after our last sample",
            [sample(0, 100, started_s=-50, watched_s=-40), sample(90, 7, started_s=60, watched_s=80)],
            7,
            1,
        ),
        (
            "another process that lived before we watched: nothing can be said of its past",
            [sample(0, 100, started_s=-50, watched_s=-10), sample(5, 9000, started_s=-30, watched_s=-10)],
            0,
            1,
        ),
        (
            "the page is that of a process older than the one seen: no increase",
            [sample(0, 100, started_s=-10), sample(5, 9000, started_s=-99)],
            0,
            0,
        ),
    ],
)
def test_tokens_and_restarts(what: str, samples: list[EngineSample], tokens: int, resets: int) -> None:
    _, deltas = run(samples)
    total = totals(deltas)
    assert (total["prompt_tokens"], total["resets"]) == (tokens, resets), what


def test_a_restart_restarts_every_counter() -> None:
    before = sample(0, 1000, generation_tokens=10, steps=5, created_s=-100)
    after = sample(60, 1200, generation_tokens=4, steps=7, created_s=30)
    total = totals(run([before, after])[1])
    assert (total["prompt_tokens"], total["generation_tokens"], total["steps"], total["resets"]) == (1200, 4, 7, 1)


def test_a_sum_that_lacks_one_of_its_series_on_one_page_counts_nothing_twice() -> None:
    finished = [168, 51, 168, 170]
    samples = [sample(5 * i, 1000 + i, requests_finished=n, started_s=-100) for i, n in enumerate(finished)]
    total = totals(run(samples)[1])
    assert (total["prompt_tokens"], total["requests_finished"], total["resets"]) == (3, 2, 0)


def test_tokens_that_fall_are_a_restart_even_when_the_stamps_stand_still() -> None:
    samples = [sample(5 * i, n, started_s=-100, watched_s=-50) for i, n in enumerate([100, 150, 10, 30])]
    total = totals(run(samples)[1])
    assert (total["prompt_tokens"], total["resets"]) == (80, 1)


def test_a_name_missing_on_one_page_loses_nothing() -> None:
    total = totals(run([sample(0, 100), sample(5), sample(10), sample(15, 160)])[1])
    assert total["prompt_tokens"] == 60


def test_a_name_missing_over_a_restart_counts_from_zero() -> None:
    samples = [sample(0, 100, started_s=-9), sample(5, started_s=3), sample(10, 30, started_s=3)]
    assert totals(run(samples)[1])["prompt_tokens"] == 30


def test_a_name_first_seen_later_starts_with_a_baseline() -> None:
    samples = [sample(0, 100), sample(5, 110, steps=7000), sample(10, 120, steps=7003)]
    assert totals(run(samples)[1])["steps"] == 3


def test_tokens_of_a_restart_fall_after_the_new_engine_was_born() -> None:
    born_s = 130.0
    _, deltas = run([sample(0, 100, created_s=-60), sample(170, 90, created_s=born_s)])
    by_minute = {d.minute_ms: d.measures["prompt_tokens"] for d in deltas if d.measures["prompt_tokens"]}
    assert min(by_minute) >= T0 + 120_000
    assert sum(by_minute.values()) == 90


# --- where and when -----------------------------------------------------------------------------------------------


def test_an_increase_is_spread_over_the_minutes_it_spans() -> None:
    _, deltas = run([sample(30, 0), sample(130, 100)])
    assert {d.minute_ms - T0: d.measures["prompt_tokens"] for d in deltas if d.measures["prompt_tokens"]} == {
        0: 30,
        60_000: 60,
        120_000: 10,
    }


def test_an_increase_up_to_a_full_minute_stays_in_it() -> None:
    _, deltas = run([sample(55, 0), sample(60, 7)])
    assert [d.minute_ms - T0 for d in deltas if d.measures["prompt_tokens"]] == [0]


def test_a_delta_carries_the_whole_key_and_every_measure() -> None:
    _, deltas = run([sample(0, 0), sample(5, 7)])
    assert (deltas[1].cluster, deltas[1].namespace, deltas[1].model_id) == ("c1", "prod", "org/model")
    assert (deltas[1].target, deltas[1].engine, deltas[1].node) == (KEY.target, "0", "node-1")
    assert tuple(deltas[1].measures) == MEASURES


def test_an_engine_that_moved_to_another_node_is_booked_there_from_then_on() -> None:
    _, deltas = run([sample(0, 0), sample(5, 7), sample(10, 9, node="node-2")])
    assert {(node, row.get("prompt_tokens")) for (_, node), row in rows(deltas).items()} == {("node-1", 7), ("node-2", 2)}


def test_a_sample_of_another_engine_is_refused() -> None:
    state, _ = run([sample(0, 1)])
    other = EngineSample(EngineKey("elsewhere", "0", "m"), from_epoch_ms(T0), Deployment("c", "n", "m"))
    with pytest.raises(BadInput, match="elsewhere"):
        fold(state, other)


# --- time ---------------------------------------------------------------------------------------------------------

S = 1_000_000


@pytest.mark.parametrize(
    ("what", "a", "b", "expected"),
    [
        ("runs at both ends", {"running": 3}, {"running": 5}, {"observed_us": 4 * S, "busy_us": 4 * S, "running_us": 16 * S}),
        ("runs at one end: half", {"running": 0}, {"running": 4}, {"observed_us": 4 * S, "busy_us": 2 * S, "running_us": 8 * S}),
        ("idle", {"running": 0}, {"running": 0}, {"observed_us": 4 * S}),
        (
            "came and went in between: its run time",
            {"running": 0, "inference_us": 5},
            {"running": 0, "inference_us": 5 + 3 * S},
            {"observed_us": 4 * S, "busy_us": 3 * S, "inference_us": 3 * S},
        ),
        (
            "several at once: no more than all of it",
            {"running": 0, "inference_us": 0},
            {"running": 0, "inference_us": 9 * S},
            {"observed_us": 4 * S, "busy_us": 4 * S, "inference_us": 9 * S},
        ),
        (
            "came and went, run time not told: half",
            {"running": 0, "steps": 1},
            {"running": 0, "steps": 2},
            {"observed_us": 4 * S, "busy_us": 2 * S, "steps": 1},
        ),
        (
            "waiting at one end",
            {"waiting": 0},
            {"waiting": 6},
            {"observed_us": 4 * S, "busy_us": 4 * S, "running_us": 4 * S, "saturated_us": 2 * S, "waiting_us": 12 * S},
        ),
        (
            "KV tokens: use x capacity, over time and over steps",
            {"kv": (100_000, 2_000_000), "steps": 10},
            {"kv": (300_000, 2_000_000), "steps": 17},
            {
                "observed_us": 4 * S, "busy_us": 4 * S, "running_us": 4 * S,
                "kv_token_us": 400_000 * 4 * S, "kv_token_steps": 400_000 * 7, "steps": 7,
                "kv_seen_us": 4 * S, "kv_full_us": 4 * S * 2 // 10, "kv_capacity_us": 2_000_000 * 4 * S,
            },
        ),
        (
            "KV capacity unknown at one end: not measured",
            {"kv": None}, {"kv": (300_000, 10)}, {"observed_us": 4 * S, "busy_us": 4 * S, "running_us": 4 * S},
        ),
        ("running unknown: not observed", {"running": None}, {"running": 4}, {"gap_us": 4 * S}),
        ("restart: nobody saw that time", {"started_s": -9}, {"started_s": 1}, {"gap_us": 4 * S, "resets": 1}),
        ("a stranger's page", {"started_s": -9}, {"started_s": -20}, {"gap_us": 4 * S}),
    ],
)  # fmt: skip
def test_time_of_one_interval(what: str, a: dict[str, object], b: dict[str, object], expected: dict[str, int]) -> None:
    state, _ = run([sample(0, **a)])  # type: ignore[arg-type]
    total = totals(run([sample(4, **b)], state)[1])  # type: ignore[arg-type]
    assert {n: v for n, v in total.items() if v} == {**expected, "samples": 1}, what


@pytest.mark.parametrize(
    ("interval_s", "silence_s", "is_gap"),
    [(5, 60, False), (5, 60.001, True), (30, 90, False), (30, 90.001, True), (None, 60, False), (None, 61, True)],
)
def test_a_silence_longer_than_three_intervals_and_a_minute_is_a_gap(
    interval_s: float | None, silence_s: float, is_gap: bool
) -> None:
    total = totals(run([sample(0, 0, interval_s=interval_s), sample(silence_s, 900, interval_s=interval_s)])[1])
    assert total["prompt_tokens"] == 900, "the tokens of a gap did happen"
    assert (total["gap_us"], total["observed_us"])[:: 1 if is_gap else -1] == (round(silence_s * S), 0)


def test_a_silence_of_months_keeps_its_tokens_in_its_last_31_days() -> None:
    day_s = 86_400
    _, deltas = run([sample(0, 0), sample(400 * day_s, 1_000_003)])
    assert totals(deltas)["prompt_tokens"] == 1_000_003
    assert min(d.minute_ms for d in deltas if d.measures["prompt_tokens"]) == T0 + (400 - 31) * day_s * 1000


# --- order of arrival ---------------------------------------------------------------------------------------------


def test_a_repeated_sample_changes_nothing_and_is_counted() -> None:
    state, _ = run([sample(0, 1), sample(5, 2)])
    again, deltas = run([sample(5, 2)], state)
    assert deltas == []
    assert again is not None
    assert again.repeated == 1


def test_a_sample_older_than_all_that_is_kept_changes_nothing_and_is_counted() -> None:
    state, _ = run([sample(i, i) for i in range(100, 101 + KEPT)])
    after, deltas = run([sample(0.5, 0)], state)
    assert deltas == []
    assert after is not None
    assert (after.too_late, after.dropped) == (1, 1)


def test_a_late_sample_only_moves_tokens_between_minutes() -> None:
    state, first = run([sample(0, 0), sample(120, 100)])
    _, late = run([sample(60, 90)], state)
    assert totals(late)["prompt_tokens"] == 0
    assert {(m - T0, row["prompt_tokens"]) for (m, _), row in rows([*first, *late]).items() if "prompt_tokens" in row} == {
        (0, 90),
        (60_000, 10),
    }


gauge = st.one_of(st.none(), st.integers(0, 300))


@st.composite
def histories(draw: st.DrawFn) -> list[EngineSample]:
    """Samples in order of time, with restarts, silences, missing names and stamps that may or may not be there."""
    at_ms, born, made = 0, 0, []
    has_stamp = draw(st.booleans())
    running_totals = dict.fromkeys(COUNTERS[:4], 0)
    for _ in range(draw(st.integers(1, 24))):
        at_ms += draw(st.sampled_from([1, 999, 5_000, 15_000, 59_999, 61_000, 200_000]))
        if draw(st.integers(0, 9)) == 0:
            born, running_totals = at_ms, dict.fromkeys(COUNTERS[:4], 0)
        for name in running_totals:
            running_totals[name] += draw(st.integers(0, 5_000))
        shown = {name: value for name, value in running_totals.items() if draw(st.integers(0, 7))}
        kv = draw(st.one_of(st.none(), st.tuples(st.integers(0, 1_000_000), st.integers(1, 4_000_000))))
        made.append(
            sample(
                at_ms / 1000, running=draw(gauge), waiting=draw(gauge), kv=kv,
                started_s=born / 1000 if has_stamp else None, watched_s=draw(st.sampled_from([None, 0])),
                node=draw(st.sampled_from(["node-1", "node-2"])), **shown,
            )
        )  # fmt: skip
    return made


@settings(deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_order_and_repetition_of_arrival_change_no_row(samples: list[EngineSample], random: object) -> None:
    """Holds for any order while no more than KEPT samples are out of place (here: all of them are kept)."""
    arrival = [*samples, *samples[::3]]
    random.shuffle(arrival)  # type: ignore[attr-defined]
    assert rows(run(arrival)[1]) == rows(run(samples)[1])


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=KEPT))
def test_the_sum_is_each_rise_plus_what_each_restart_began_with(counts: list[int]) -> None:
    expected = sum(new - old if new >= old else new for old, new in pairwise(counts))
    assert totals(run(sample(5 * i, count) for i, count in enumerate(counts))[1])["prompt_tokens"] == expected


@given(histories())
def test_every_moment_is_either_observed_or_a_gap(samples: list[EngineSample]) -> None:
    _, deltas = run(samples)
    total = totals(deltas)
    began = samples[0].at
    if samples[0].watched_since is not None and samples[0].process_started_at is not None:
        began = samples[0].process_started_at
    assert total["observed_us"] + total["gap_us"] == (samples[-1].at - began) // timedelta(microseconds=1)
    assert total["samples"] == len(samples)
    for row in rows(deltas).values():
        assert 0 <= row.get("busy_us", 0) <= row.get("observed_us", 0)
        assert 0 <= row.get("saturated_us", 0) <= row.get("observed_us", 0)
        assert row.get("observed_us", 0) + row.get("gap_us", 0) <= MINUTE_MS * 1000
        assert all(value >= 0 for value in row.values())


huge = st.integers(0, 2**62)


@given(st.lists(st.tuples(huge, huge, huge), min_size=2, max_size=4))
def test_no_page_however_absurd_gives_a_number_that_does_not_fit_its_column(values: list[tuple[int, int, int]]) -> None:
    state = None
    for i, (a, b, c) in enumerate(values):
        state, deltas = fold(state, sample(5 * i, a, steps=b, running=c, waiting=b, kv=(c, a)))
        assert all(0 <= value < 2**63 for delta in deltas for value in delta.measures.values())


growth = st.lists(st.tuples(st.integers(1, 90_000), st.integers(0, 10_000)), min_size=2, max_size=30)


@given(growth, st.data())
def test_leaving_out_an_inner_sample_changes_no_sum_of_tokens(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    at_ms, tokens, samples = 0, 0, [sample(0, 0)]
    for wait, grown in steps:
        at_ms, tokens = at_ms + wait, tokens + grown
        samples.append(sample(at_ms / 1000, tokens))
    out = data.draw(st.integers(1, len(samples) - 2))
    fewer: Sequence[EngineSample] = [*samples[:out], *samples[out + 1 :]]
    assert totals(run(samples)[1])["prompt_tokens"] == totals(run(fewer)[1])["prompt_tokens"] == tokens


@given(histories())
def test_one_call_or_many_through_the_stored_state_are_the_same(samples: list[EngineSample]) -> None:
    half = len(samples) // 2
    state, first = run(samples[:half])
    _, second = run(samples[half:], state)
    assert rows([*first, *second]) == rows(run(samples)[1])


def test_data_parallel_engines_are_folded_apart_so_one_may_restart_alone() -> None:
    """B13: delta first, then sum: engine 0 goes 100 -> 150, engine 1 restarts 100 -> 30."""
    other = EngineKey(KEY.target, "1", KEY.model_id)
    total = 0
    for key, first, second in ((KEY, 100, 150), (other, 100, 30)):
        a, b = (
            EngineSample(key, from_epoch_ms(T0 + at), Deployment("c", "n", "m"), counters={"prompt_tokens": v})
            for at, v in ((0, first), (5000, second))
        )
        state, _ = fold(None, a)
        total += totals(fold(state, b)[1])["prompt_tokens"]
    assert total == 80


# --- the stored state ---------------------------------------------------------------------------------------------


def test_the_state_says_its_version_and_reads_back() -> None:
    state, _ = run([sample(0, 1, node="Knoten-ä"), sample(5, 2, kv=(5, 7))])
    assert state is not None
    assert encode_state(state).startswith(b"engine.v3\n")
    assert decode_state(encode_state(state)) == state


def test_state_of_the_first_version_reads_on_and_newer_counters_start_with_a_baseline() -> None:
    reading = [T0, ["c1", "prod", "node-1"], None, None, None, 5000, [100, *[None] * 11], [1, 0, None, None]]
    old = b"engine.v1\n" + json.dumps([[KEY.target, "0", KEY.model_id], [0, 0, 0], [reading]]).encode()
    state = decode_state(old)
    _, deltas = run([sample(5, 150, n_answers=900), sample(10, 150, n_answers=907)], state)
    assert (totals(deltas)["prompt_tokens"], totals(deltas)["n_answers"]) == (50, 7)


def test_state_before_pytorchs_memory_was_read_goes_on_and_loses_no_interval() -> None:
    reading = [T0, ["c1", "prod", "node-1"], None, None, None, 5000, [100, *[None] * 20], [1, 0, 500_000, 10]]
    old = b"engine.v2\n" + json.dumps([[KEY.target, "0", KEY.model_id], [0, 0, 0], [reading]]).encode()
    later = [sample(5, 150, kv=(500_000, 10), torch=(90, 60)), sample(10, 150, kv=(500_000, 10), torch=(100, 60))]
    total = totals(run(later, decode_state(old))[1])
    assert (total["prompt_tokens"], total["kv_seen_us"], total["torch_seen_us"]) == (50, 10_000_000, 5_000_000)
    assert (total["torch_reserved_mib_us"], total["torch_allocated_mib_us"]) == (95 * 5_000_000, 60 * 5_000_000)


@pytest.mark.parametrize(("first", "last"), [(None, (9, 9)), ((9, 9), None), (None, None)])
def test_pytorchs_memory_is_counted_where_both_ends_tell_it(first: tuple[int, int] | None, last: tuple[int, int] | None) -> None:
    total = totals(run([sample(0, 1, torch=first), sample(5, 1, torch=last)])[1])
    assert {name for name in total if name.startswith("torch") and total[name]} == set()


@pytest.mark.parametrize(
    "data", [b"", b"engine.v0\n[]", b"engine.v3\n", b"engine.v3\n{}", b"engine.v3\n[[1],[2],3]", b"\xff\xfe"]
)
def test_damaged_or_foreign_state_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        decode_state(data)

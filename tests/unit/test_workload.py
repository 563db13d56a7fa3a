"""Workload classes: what a request is like, which class it falls into, how numbers keep their meaning, and what counts as new."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput, Refused
from core.lengths import bucket
from core.workload import (
    FIRST,
    MOST_NUMBER,
    NEW,
    UNSCORED,
    Shape,
    WorkloadClass,
    WorkloadModel,
    calls_tool,
    model_at,
    score,
    shape,
)
from core.workload_codec import decode_model, encode_model
from core.workload_columns import UNKNOWN, Ints, RequestColumns, buckets, score_columns
from core.workload_drift import LEAST_REQUESTS, MinuteCounts, drift, new_class
from core.workload_fit import chosen_k, class_of, distinct, name_of, robust_scale
from core.workload_match import matched, next_number, with_new_class

AT = datetime(2026, 12, 1, tzinfo=UTC)
WEIGHTS = (65_536, 65_536, 65_536, 1_678, 1_678)
lengths = st.one_of(st.integers(0, 50), st.integers(0, 2**20), st.integers(0, 2**29))


def column(*found: Shape | None) -> Ints:
    return np.array([[UNKNOWN if value is None else value for value in one] for one in found if one is not None], np.int64)


def group(into: int, out: int, cached: int = 0, tool: bool | None = None, number: int = FIRST, name: str = "") -> WorkloadClass:
    """A class around requests of about that size."""
    return class_of(
        column(*(shape(n, n * cached // 100, out, tool) for n in (into * 9 // 10, into, into * 11 // 10))), number, name
    )


CHAT, CODE, AGENT = group(200, 300, number=2), group(2_000, 20, number=3), group(60_000, 200, 95, True, number=4)
MODEL = WorkloadModel(1, AT, WEIGHTS, (CHAT, CODE, AGENT))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ((0, 0, 5, None), None),
        ((1024, 512, 64, True), (40, 24, 16, 50, 100)),
        ((1024, 0, 0, False), (40, -1, None, 0, 0)),
        ((1, 1, 1, None), (0, 0, 0, 100, None)),
    ],
)
def test_a_shape_is_whole_numbers_and_unknown_is_not_zero(asked: tuple[int, int, int, bool | None], found: Shape | None) -> None:
    assert shape(*asked) == found


@pytest.mark.parametrize(
    ("tools", "reason", "known"),
    [((), "", None), ((), "stop", False), ((), "tool_use", True), (("search",), "", True), (("search",), "stop", True)],
)
def test_a_tool_was_called_if_named_or_if_the_answer_ended_so(tools: Sequence[str], reason: str, known: bool | None) -> None:
    assert calls_tool(tools, reason) is known


@pytest.mark.parametrize(
    ("asked", "number"),
    [
        ((200, 0, 300, None), 2),
        ((2_000, 0, 21, False), 3),
        ((60_000, 57_000, 200, True), 4),
        ((60_000, 57_000, 200, None), 4),
        ((60_000, 0, 200, True), NEW),
        ((500_000, 0, 10, None), NEW),
    ],
)
def test_a_request_falls_into_the_nearest_class_unless_it_lies_beyond_it(
    asked: tuple[int, int, int, bool | None], number: int
) -> None:
    assert score(MODEL, shape(*asked)) == number


def test_without_a_shape_nothing_is_scored() -> None:
    assert score(MODEL, None) == UNSCORED


@given(st.lists(lengths, max_size=50))
def test_buckets_of_a_column_are_those_of_each_length(found: list[int]) -> None:
    assert buckets(np.array(found, np.int64)).tolist() == [bucket(one) for one in found]


@given(
    st.lists(st.tuples(lengths, st.integers(0, 100), lengths, st.sampled_from([True, False, None]), st.booleans()), min_size=1)
)
def test_a_column_is_scored_as_each_request_by_itself(rows: list[tuple[int, int, int, bool | None, bool]]) -> None:
    asked = [(into, into * percent // 100, out, tool, known) for into, percent, out, tool, known in rows]
    columns = RequestColumns(
        *(np.array([one[place] for one in asked], np.int64) for place in range(3)),
        np.array([-1 if one[3] is None else int(one[3]) for one in asked], np.int64),
        np.array([one[4] for one in asked]),
    )
    assert score_columns(MODEL, columns).tolist() == [score(MODEL, shape(*one[:4])) if one[4] else UNSCORED for one in asked]


def test_the_model_of_an_instant_is_the_latest_that_is_valid() -> None:
    later = WorkloadModel(2, AT + timedelta(hours=1), WEIGHTS, (CHAT,))
    assert [model_at([MODEL, later], AT + timedelta(minutes=n)) for n in (-1, 0, 59, 60)] == [None, MODEL, MODEL, later]


def test_a_model_survives_being_written() -> None:
    assert decode_model(encode_model(MODEL), 1, AT) == MODEL


@pytest.mark.parametrize("change", [{"format": 2}, {"features": ["input"]}, {"fine": 8}])
def test_a_model_of_another_format_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="another format"):
        decode_model(encode_model(MODEL) | change, 1, AT)


@pytest.mark.parametrize("number", [UNSCORED, NEW, MOST_NUMBER + 1])
def test_a_class_number_out_of_place_is_refused(number: int) -> None:
    told = encode_model(MODEL)
    told["classes"][0]["number"] = number
    with pytest.raises(BadInput, match="no class number"):
        decode_model(told, 1, AT)


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (CHAT, "short prompt, short answer"),
        (CODE, "medium prompt, very short answer"),
        (AGENT, "very long prompt, short answer, cached, tool calls"),
        (group(11_000, 80), "long prompt, very short answer"),
    ],
)
def test_a_name_says_what_the_centre_is_like(one: WorkloadClass, name: str) -> None:
    assert name_of(one) == one.name == name


def test_equal_names_are_told_apart() -> None:
    assert distinct(["a", "b", "a"], ["b"]) == ["a", "b (2)", "a (2)"]


def test_a_scale_ignores_what_is_unknown_and_is_never_nothing() -> None:
    scale = robust_scale(column((40, 20, 20, 0, None), (60, 20, 40, 0, None), (80, 20, None, 0, None)))
    assert scale.median == (60.0, 20.0, 30.0, 0.0, 0.0)
    assert scale.scale == (pytest.approx(20 / 1.349), 4.0, pytest.approx(10 / 1.349), 25.0, 25.0)


@pytest.mark.parametrize(
    ("stability", "k"),
    [
        ({2: 0.63, 3: 0.92, 4: 0.85, 5: 0.86, 6: 0.83}, 5),
        ({2: 0.9, 3: 1.0, 4: 0.97}, 3),
        ({2: 0.9, 3: 0.5}, 2),
        ({2: 0.5, 3: 0.5}, 3),
    ],
)
def test_the_most_classes_that_are_about_as_stable_as_the_best(stability: dict[int, float], k: int) -> None:
    assert chosen_k(stability) == k


def test_a_matched_class_keeps_number_and_name_and_no_number_comes_back() -> None:
    renamed = WorkloadClass(2, "the chat", CHAT.centre, CHAT.low, CHAT.high, CHAT.requests)
    made = (group(70_000, 220, 96, True), group(210, 320), group(9, 9_000))
    found = matched((renamed, CODE, AGENT), made, WEIGHTS, highest=9)
    assert [(one.number, one.name) for one in found] == [
        (2, "the chat"), (4, AGENT.name), (10, "very short prompt, long answer"),
    ]  # fmt: skip


@given(st.permutations(range(3)))
def test_the_order_of_new_groups_changes_no_number(order: list[int]) -> None:
    made = [(CHAT, CODE, AGENT)[place] for place in order]
    assert matched((CHAT, CODE, AGENT), made, WEIGHTS, highest=4) == (CHAT, CODE, AGENT)


def test_numbers_end_where_the_column_ends() -> None:
    assert next_number(0) == FIRST
    with pytest.raises(Refused):
        next_number(MOST_NUMBER)


def test_requests_unlike_every_class_become_one() -> None:
    burst = [shape(n, 0, 90, None) for n in (500_000, 520_000, 610_000)]
    classes = with_new_class(MODEL, column(*burst), highest=6)
    assert (classes[-1].number, classes[-1].name) == (7, "very long prompt, very short answer")
    assert {score(WorkloadModel(2, AT, WEIGHTS, classes), one) for one in burst} == {7}


def minutes(*counts: tuple[int, int]) -> list[MinuteCounts]:
    return [MinuteCounts(AT + timedelta(minutes=n), *pair) for n, pair in enumerate(counts)]


@pytest.mark.parametrize(
    ("counts", "burst"),
    [
        ([(20, 0), (20, 4), (20, 4)], (1, 8)),
        ([(20, 0), (20, 4), (20, 3)], None),
        ([(500, 0), (20, 4), (20, 4)], None),
        ([(9, 9), *[(20, 0)] * 9], None),
        ([], None),
    ],
)
def test_a_burst_is_enough_requests_and_enough_of_all(counts: list[tuple[int, int]], burst: tuple[int, int] | None) -> None:
    found = new_class(minutes(*counts), AT + timedelta(minutes=max(0, len(counts) - 1)))
    assert (found and (found.since, found.requests)) == (burst and (AT + timedelta(minutes=burst[0]), burst[1]))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_a_burst_is_found_once_it_has_enough_requests(fresh: list[int]) -> None:
    series = minutes(*((4, one) for one in fresh))
    found = [new_class(series[: n + 1], one.minute) is not None for n, one in enumerate(series)]
    recent = [sum(one.new for one in series[max(0, n - 5) : n + 1]) for n in range(len(series))]
    assert found == [count >= LEAST_REQUESTS for count in recent]


def test_an_unchanged_mix_does_not_drift_and_a_turned_one_does() -> None:
    same = drift({2: 90, 3: 10}, {2: 900, 3: 100, UNSCORED: 5_000})
    assert (same.index, same.new_percent, same.shifted) == (0, 0, False)
    assert drift({2: 90, 3: 10}, {2: 10, 3: 90}).shifted
    assert drift({2: 90}, {2: 9, NEW: 1}).new_percent == 10
    assert drift({2: 90}, {}).index is None


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=2), st.integers(1, 1000))
def test_the_further_a_mix_moves_the_greater_its_index(base: list[int], step: int) -> None:
    at = [drift({2: base[0], 3: base[0]}, {2: base[0], 3: base[0] + n * step}).index or 0.0 for n in range(4)]
    assert all(first <= second + 1e-9 for first, second in pairwise(at))

"""The archive's query gives the class ``core.workload`` gives, and groups of its requests are found again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workload_samples import AGENT, CHAT, CODE, CONTRACT, START, archive, mixed, request

from control.workload_training import LEAST_ROWS, fit, train
from core.errors import Refused
from core.tokens import TokenCounts
from core.usage import UsageRecord
from core.windows import Window
from core.workload import NEW, UNSCORED, WorkloadClass, WorkloadModel, score, shape_of
from core.workload_columns import UNKNOWN
from core.workload_drift import why_better
from core.workload_match import matched
from eventlog.workload_sql import archived_classes, sample_shapes

HOUR = Window(START, START + timedelta(hours=1))


@st.composite
def records(draw: st.DrawFn) -> UsageRecord:
    length = st.one_of(st.integers(0, 40), st.sampled_from([200, 3_000, 80_000]), st.integers(0, 2**22))
    into = draw(length)
    kind = (into, into * draw(st.integers(0, 100)) // 100, draw(length), draw(st.sampled_from(["", "stop", "tool_use"])))
    changes = {
        "status": draw(st.sampled_from(["ok", "ok", "ok", "aborted", "error"])),
        "tools": draw(st.sampled_from([(), (), ("search",)])),
        "raw": {"finish_reason": "tool_calls", "tools": ["no"]},
    }
    if draw(st.integers(0, 9)) == 0:
        changes |= {"usage_source": "missing", "tokens": TokenCounts()}
    return request(f"r{draw(st.integers(0, 20))}", kind, START + timedelta(seconds=draw(st.integers(0, 3_599))), **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def model() -> WorkloadModel:
    trained = fit(_shapes(mixed(300)))
    return WorkloadModel(1, START, trained.weights, matched((), trained.groups, trained.weights, 1))


def _shapes(found: list[UsageRecord]) -> object:
    import numpy as np

    return np.array([[UNKNOWN if v is None else v for v in shape_of(r) or ()] for r in found], np.int64)


@settings(max_examples=10)
@given(st.lists(records(), min_size=1, max_size=25))
def test_the_query_scores_as_core_does(folder: Callable[[], Path], model: WorkloadModel, found: list[UsageRecord]) -> None:
    first = {record.request_id: record for record in reversed(found)}
    asked = {name: number for name, number, _ in archived_classes(archive(folder(), found), HOUR, model)}
    assert asked == {name: score(model, shape_of(record)) for name, record in first.items()}


def test_three_kinds_of_requests_are_three_classes(folder: Callable[[], Path], model: WorkloadModel) -> None:
    trained, found = train(archive(folder(), mixed(600)), HOUR)
    classes = matched((), trained.groups, trained.weights, 1)
    assert [one.number for one in classes] == [2, 3, 4]
    assert {one.name for one in classes} == {
        "short prompt, short answer", "medium prompt, very short answer", "very long prompt, short answer, cached, tool calls",
    }  # fmt: skip
    assert (trained.stable, trained.requests, len(found)) == (True, 600, 600)
    by_kind = [{score(model, shape_of(r)) for r in mixed(30, (kind,))} for kind in (CHAT, CODE, AGENT)]
    assert all(len(numbers) == 1 for numbers in by_kind)
    assert {score(model, shape_of(r)) for r in mixed(30, (CONTRACT,))} == {NEW}


def test_a_sample_is_the_same_each_time_and_takes_no_more_than_asked(folder: Callable[[], Path]) -> None:
    place = archive(folder(), mixed(100))
    assert (sample_shapes(place, HOUR, 30) == sample_shapes(place, HOUR, 30)).all()
    assert len(sample_shapes(place, HOUR, 30)) == 30
    assert len(sample_shapes(place, HOUR, 30, UNSCORED)) == 30
    assert len(sample_shapes(place, HOUR, 30, NEW)) == 0


def test_too_few_requests_make_no_classes(folder: Callable[[], Path]) -> None:
    with pytest.raises(Refused, match=f"{LEAST_ROWS} are needed"):
        train(archive(folder(), mixed(20)), HOUR)


def test_classes_are_replaced_only_by_better_ones(model: WorkloadModel) -> None:
    same, with_contracts = mixed(300), mixed(400, (CHAT, CODE, AGENT, CONTRACT))
    again, other = fit(_shapes(same)), fit(_shapes(with_contracts))

    def why(now: tuple[WorkloadClass, ...], made: object, found: object) -> str:
        return why_better(now, made.groups, made.weights, found)

    assert why((), again, _shapes(same)) == "the first classes"
    assert why(model.classes, again, _shapes(same)) == ""
    assert why(model.classes, other, _shapes(with_contracts))

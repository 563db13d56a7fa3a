"""Classes at the boundary: the line bears the class that core gives the record, by the version of the request's finish."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usage_samples import NOW, MemoryLog, usage_item
from workload_samples import AGENT, CHAT, CODE, START, mixed, request

from control.workload_training import fit
from core.errors import Unavailable
from core.usage import LINE_COLUMNS
from core.usage_codec import decode_usage
from core.workload import FINE, NEW, UNSCORED, WorkloadClass, WorkloadModel, model_at, score, shape_of
from core.workload_columns import UNKNOWN, Ints
from core.workload_match import matched
from ingest.usage.classes import FEW, ClassScorer
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import Prepared, SourceOptions, prepare
from ingest.usage.service import UsageIngest
from models.workload_repo import ActiveModels

PLACE = LINE_COLUMNS.index("workload_class")
EVERYTHING = (-10_000,) * 5, (10_000,) * 5


def only(number: int, version: int, minutes: int) -> WorkloadModel:
    """A model whose one class takes every request."""
    one = WorkloadClass(number, str(number), (FINE,) * 5, *EVERYTHING, 1)
    return WorkloadModel(version, START + timedelta(minutes=minutes), (1,) * 5, (one,))


def trained() -> WorkloadModel:
    shapes = [shape_of(one) or () for one in mixed(300)]
    import numpy as np

    found: Ints = np.array([[UNKNOWN if value is None else value for value in one] for one in shapes], np.int64)
    groups = fit(found)
    return WorkloadModel(1, START, groups.weights, matched((), groups.groups, groups.weights, 1))


MODEL = trained()


def scorer(*models: WorkloadModel) -> ClassScorer:
    state = ActiveModels("1", models)
    return ClassScorer(lambda held: None if held == "1" else state, lambda: 0.0)


def classes(lines: Sequence[str]) -> list[int]:
    return [int(line.rsplit(",", len(LINE_COLUMNS) - PLACE)[1]) for line in lines]


finishes = st.sampled_from(["", "stop", "tool_calls", "tool_use"])
policies = st.sampled_from([None, None, {"finish_reason": "tool_calls", "raw": {"a": 1}}])
kinds = st.tuples(
    st.sampled_from([0, 30, 250, 3_000, 80_000, 400_000]), st.integers(0, 100), st.sampled_from([0, 20, 400, 9_000]), finishes
)
drawn = st.tuples(
    kinds,
    st.sampled_from(["ok", "aborted", "error"]),
    st.sampled_from(["exact", "estimated"]),
    policies,
    st.sampled_from([(), ("a b", 'say "x"')]),
)


@settings(max_examples=60)
@given(st.lists(drawn, min_size=1, max_size=2 * FEW))
def test_the_line_bears_the_class_core_gives_the_record(found: list[Any]) -> None:
    records = [
        request(
            f"r,{n}", (kind[0], kind[0] * kind[1] // 100, kind[2], kind[3]), START + timedelta(seconds=n - 3),
            status=status, usage_source=source, policy=policy, tools=tools, raw={"finish_reason": "tool_calls", "tools": ["x"]},
        )
        for n, (kind, status, source, policy, tools) in enumerate(found)
    ]  # fmt: skip
    lines = scorer(MODEL).lines([prepare(one) for one in records])
    expected = [
        UNSCORED if one.finished_at < START else score(MODEL, shape_of(decode_usage(json.loads(prepare(one).record))))
        for one in records
    ]
    assert classes(lines) == expected
    for line, one in zip(lines, records, strict=True):
        plain = prepare(one).line.rsplit(",", len(LINE_COLUMNS) - PLACE)
        told = line.rsplit(",", len(LINE_COLUMNS) - PLACE)
        assert (told[0], told[2:]) == (plain[0], plain[2:])


@pytest.mark.parametrize("count", [3, 3 * FEW])
def test_a_version_holds_from_its_instant_by_the_requests_own_finish(count: int) -> None:
    first, second = only(2, 1, 1), only(3, 2, 2)
    records = [request(f"r{n}", CHAT, START + timedelta(seconds=60 * (n % 3))) for n in range(count)]
    found = classes(scorer(first, second).lines([prepare(one) for one in records]))
    assert found == [0, 2, 3] * (count // 3)
    assert [model_at([first, second], one.finished_at) for one in records[:3]] == [None, first, second]


def test_without_a_model_lines_stay_as_they_are() -> None:
    rows = [prepare(one) for one in mixed(3)]
    assert scorer().lines(rows) == [row.line for row in rows]


def test_what_every_reader_makes_is_scored_alike() -> None:
    items = [usage_item(n, finish_reason=reason, tools=tools) for n, reason, tools in ((1, "stop", []), (2, "", ["t"]))] * 20
    body = b"\n".join(json.dumps(item | {"request_id": f"x{n}"}).encode() for n, item in enumerate(items))
    rows = [row for row in ADAPTERS["usage"].rows(io.BytesIO(body), SourceOptions()) if isinstance(row, Prepared)]
    expected = [score(only(2, 1, -600), shape_of(decode_usage(json.loads(row.record)))) for row in rows]
    assert classes(scorer(only(2, 1, -600)).lines(rows)) == expected == [2] * 40


def test_the_boundary_writes_scored_lines_and_new_is_a_class() -> None:
    log = MemoryLog()
    ingest = UsageIngest(
        log, now=lambda: NOW, ensure_partitions=lambda _: None, archive_has=lambda _: set(), classes=scorer(MODEL)
    )
    ingest.accept([request("a", AGENT, START), request("b", (900_000, 0, 5, "stop"), START), request("c", CODE, START)])
    numbers = classes(log.lines("usage"))
    assert numbers[1] == NEW
    assert UNSCORED not in numbers
    assert log.records()[0].get("workload_class") is None


def test_models_are_read_anew_when_due_and_kept_while_the_database_is_away() -> None:
    clock, states = [0.0], [ActiveModels("1", (only(2, 1, 0),)), ActiveModels("2", (only(3, 2, 0),))]

    def load(held: str) -> ActiveModels | None:
        if not states:
            raise Unavailable("the database is away")
        return states.pop(0)

    one, rows = ClassScorer(load, lambda: clock[0], refresh_s=5), [prepare(request("a", CHAT, START))]
    found = []
    for at in (0.0, 4.0, 5.0, 10.0):
        clock[0] = at
        found += classes(one.lines(rows))
    assert found == [2, 2, 3, 3]

"""The engine line: what is written is read back, and nothing that is no sample gets into or out of the log."""

from __future__ import annotations

import csv
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine import COUNTERS, GAUGES, LINE_COLUMNS, EngineKey, EngineSample
from core.engine_fold import encode_line, parse_line
from core.errors import BadRecord
from core.usage import Deployment
from core.windows import from_epoch_ms

AT = datetime(2026, 11, 30, 12, 0, 0, 5000, tzinfo=UTC)
times = st.one_of(st.none(), st.integers(1_500_000_000_000, 2_000_000_000_000).map(from_epoch_ms))
names = st.text(st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"]), max_size=40)
numbers = st.integers(0, 2**62)


@st.composite
def samples(draw: st.DrawFn) -> EngineSample:
    model = draw(names)
    return EngineSample(
        key=EngineKey(draw(names), draw(names), model),
        at=draw(times.filter(lambda t: t is not None)),  # type: ignore[arg-type]
        deployment=Deployment(draw(names), draw(names), model),
        node=draw(names),
        process_started_at=draw(times),
        created_at=draw(times),
        watched_since=draw(times),
        interval_ms=draw(st.one_of(st.none(), st.integers(1, 10**6))),
        counters=draw(st.dictionaries(st.sampled_from(COUNTERS), numbers)),
        gauges=draw(st.dictionaries(st.sampled_from(GAUGES), numbers)),
    )


@given(samples())
def test_a_line_reads_back_as_the_same_sample(sample: EngineSample) -> None:
    line = encode_line(sample)
    assert "\n" not in line
    [fields] = csv.reader([line])
    assert len(fields) == len(LINE_COLUMNS)
    assert parse_line(fields) == sample
    assert parse_line([*fields, "a1b2-000000000001"]) == sample, "the segment column is ignored"


def test_the_line_is_what_the_contract_says() -> None:
    sample = EngineSample(
        EngineKey("http://gpu-1:8000/metrics", "0", "org/model,v2"),
        AT,
        Deployment("c1", "prod", "org/model,v2"),
        node="n1",
        interval_ms=5000,
        counters={"prompt_tokens": 7},
        gauges={"running": 1},
    )
    assert encode_line(sample) == (
        '"http://gpu-1:8000/metrics|0|org/model,v2|1796040000005",http://gpu-1:8000/metrics,0,c1,prod,"org/model,v2",n1,1796040000005,'
        '"{""p"":null,""b"":null,""w"":null,""i"":5000,""c"":{""prompt_tokens"":7},""g"":{""running"":1}}"'
    )


@pytest.mark.parametrize(
    ("counters", "field"),
    [
        ({"prompt_tokens": -1}, "counters.prompt_tokens"),
        ({"prompt_tokens": 9223372036854775794}, "counters.prompt_tokens"),
        ({"prompt_tokens": 1.5}, "counters.prompt_tokens"),
        ({"prompt_tokens": True}, "counters.prompt_tokens"),
        ({"tokens": 1}, "counters.tokens"),
    ],
)
def test_a_value_that_is_no_count_is_not_written(counters: dict[str, int], field: str) -> None:
    with pytest.raises(BadRecord) as caught:
        encode_line(EngineSample(EngineKey("t", "0", "m"), AT, Deployment("c", "n", "m"), counters=counters))
    assert caught.value.field == field


def test_a_name_with_a_line_break_is_not_written() -> None:
    with pytest.raises(BadRecord, match="control character"):
        encode_line(EngineSample(EngineKey("t", "0", "m\n1"), AT, Deployment("c", "n", "m\n1")))


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ["a"] * 8,
        ["id", "t", "0", "c", "n", "m", "", "not a time", "{}"],
        ["id", "t", "0", "c", "n", "m", "", "9" * 40, "{}"],
        ["id", "t", "0", "c", "n", "m", "", "5", ""],
        ["id", "t", "0", "c", "n", "m", "", "5", "[]"],
        ["id", "t", "0", "c", "n", "m", "", "5", '{"c": {"prompt_tokens": NaN}}'],
        ["id", "t", "0", "c", "n", "m", "", "5", '{"c": {"prompt_tokens": -4}}'],
        ["id", "t", "0", "c", "n", "m", "", "5", '{"c": [1]}'],
        ["id", "t", "0", "c", "n", "m", "", "5", '{"p": "yesterday"}'],
        ["id", "t", "0", "c", "n", "m", "", "5", '{"p": 99999999999999999999}'],
    ],
)
def test_a_line_that_is_no_sample_is_refused(fields: list[str]) -> None:
    with pytest.raises(BadRecord):
        parse_line(fields)

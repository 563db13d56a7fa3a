"""The fold of gateways' counters: each token once, whatever is sent again, restarted or reordered."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from otlp_samples import LATER, NOW, NOW_NS, OPTIONS, counter_export, pairs

from core.gateway_counter import HOUR_NS, MINUTE_NS, CounterPoint, Increase, SeriesState, by_minute, fold
from ingest.otlp import decode
from ingest.otlp.genai_metrics import counter_lines

S = 10**9


def total(*points: tuple[int, int, int], delta: bool = False) -> int:
    """Tokens counted of points (start, at, value)."""
    state: SeriesState | None = None
    counted = 0
    for start, at, value in points:
        state, increase = fold(state, CounterPoint(start, at, value, delta))
        counted += increase.tokens if increase else 0
    return counted


B = NOW_NS  # the process started
CASES: dict[str, tuple[list[tuple[int, int, int]], bool, int]] = {
    "born in sight": ([(B, B + 60 * S, 30)], False, 30),
    "we only began to watch": ([(B - 2 * HOUR_NS, B, 500), (B - 2 * HOUR_NS, B + 60 * S, 530)], False, 30),
    "no start time: the first is where we began": ([(0, B, 500), (0, B + 60 * S, 530)], False, 30),
    "B11: 100, 150, restart, 10, 30": (
        [
            (B - 2 * HOUR_NS, B, 100),
            (B - 2 * HOUR_NS, B + 60 * S, 150),
            (B + 70 * S, B + 120 * S, 10),
            (B + 70 * S, B + 180 * S, 30),
        ],
        False,
        80,
    ),
    "B11 without a start time: the drop tells": (
        [(0, B, 100), (0, B + 60 * S, 150), (0, B + 120 * S, 10), (0, B + 180 * S, 30)],
        False,
        80,
    ),
    "B11 a: grown past the old value": ([(B, B + 60 * S, 150), (B + 70 * S, B + 120 * S, 160)], False, 310),
    "sent again": ([(B, B + 60 * S, 30), (B, B + 60 * S, 30), (B, B + 120 * S, 50)], False, 50),
    "came late": ([(B, B + 60 * S, 30), (B, B + 180 * S, 90), (B, B + 120 * S, 50)], False, 90),
    "deltas": ([(B, B + 60 * S, 30), (B + 60 * S, B + 120 * S, 20)], True, 50),
    "a delta sent again": ([(B, B + 60 * S, 30), (B, B + 60 * S, 30), (B + 60 * S, B + 120 * S, 20)], True, 50),
    "a delta without start": ([(0, B, 30), (0, B + 60 * S, 20)], True, 50),
}


@pytest.mark.parametrize("name", CASES)
def test_each_token_counts_once(name: str) -> None:
    points, is_delta, expected = CASES[name]
    assert total(*points, delta=is_delta) == expected


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.data())
def test_sending_points_again_changes_nothing(steps: list[int], data: st.DataObject) -> None:
    values = [sum(steps[: n + 1]) for n in range(len(steps))]
    points = [(B, B + (n + 1) * 60 * S, value) for n, value in enumerate(values)]
    again = [point for point in points for _ in range(data.draw(st.integers(1, 3)))]
    assert total(*points) == total(*again) == values[-1]


@given(st.integers(1, 10**12), st.integers(0, 10**15), st.integers(0, 10 * HOUR_NS))
def test_minutes_add_up_to_the_increase_and_lie_within_it(tokens: int, from_ns: int, span_ns: int) -> None:
    minutes = by_minute(Increase(tokens, from_ns, from_ns + span_ns))
    assert sum(part for _, part in minutes) == tokens
    assert all(a < b for (a, _), (b, _) in pairwise(minutes))
    assert all(
        from_ns // MINUTE_NS * 60_000 - 60_000 <= minute <= (from_ns + span_ns) // MINUTE_NS * 60_000 for minute, _ in minutes
    )


def test_a_whole_minute_falls_into_that_minute() -> None:
    minute = NOW_NS // MINUTE_NS * MINUTE_NS
    assert by_minute(Increase(60, minute, minute + MINUTE_NS)) == ((minute // 10**6, 60),)


def lines(body: bytes) -> tuple[list[str], list[str]]:
    found, bad = counter_lines(decode.points_of(body)[0], OPTIONS, LATER)
    return found, [f"{row.error.field}: {row.error.message}" for row in bad]


def test_b26_only_input_and_output_are_wholes_and_a_total_is_never_kept() -> None:
    """prompt 28, completion 12, total 40: the sum is 40, not 80."""
    kinds = {"prompt": 28.0, "completion": 12.0, "total": 40.0, "cached_input": 5.0, "reasoning": 3.0}
    found, bad = lines(counter_export(*[({"gen_ai.token.type": kind}, B, B + 60 * S, value) for kind, value in kinds.items()]))
    assert bad == []
    values = {line["token_type"]: line["value"] for line in map(json.loads, found)}
    assert values == {"input": 28, "output": 12, "cached_input": 5, "reasoning": 3}


@pytest.mark.parametrize("metric", ["input_tokens", "output_tokens", "cache_read.input_tokens", "reasoning.output_tokens"])
def test_the_successor_counters_name_their_type(metric: str) -> None:
    found, bad = lines(counter_export(({}, B, B + 60 * S, 7.0), metric=f"gen_ai.client.inference.usage.{metric}"))
    assert len(found) == 1
    assert bad == []


def exponential(total_tokens: float | None) -> bytes:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="gen_ai.client.token.usage")
    metric.exponential_histogram.aggregation_temporality = 1
    metric.exponential_histogram.data_points.add(
        attributes=pairs({"gen_ai.token.type": "input"}), start_time_unix_nano=B, time_unix_nano=B + S, count=2, sum=total_tokens
    )
    return request.SerializeToString()


def test_an_exponential_histogram_counts_by_its_sum() -> None:
    assert len(lines(exponential(12.0))[0]) == 1
    assert lines(exponential(None))[1] == ["gen_ai.client.token.usage: has no sum"]


@pytest.mark.parametrize(
    ("attributes", "value", "says"),
    [
        ({"gen_ai.token.type": "input"}, 1.5, "whole number"),
        ({"gen_ai.token.type": "input"}, -1.0, "whole number"),
        ({"gen_ai.token.type": "input"}, float("nan"), "whole number"),
        ({"gen_ai.token.type": "input"}, float("inf"), "whole number"),
        ({"gen_ai.token.type": "images"}, 1.0, "no token type"),
        ({}, 1.0, "no token type"),
    ],
)
def test_a_point_that_counts_no_tokens_is_refused(attributes: dict[str, Any], value: float, says: str) -> None:
    found, bad = lines(counter_export((attributes, B, B + S, value)))
    assert found == []
    assert says in bad[0]


def test_other_metrics_are_passed_over() -> None:
    points, others = decode.points_of(counter_export(({}, B, B + S, 1.0), metric="http.server.request.duration"))
    assert (points, others) == ([], 1)


def test_a_point_of_the_future_is_refused() -> None:
    late = counter_export(({"gen_ai.token.type": "input"}, B, NOW_NS + 6 * MINUTE_NS, 5.0))
    found, bad = counter_lines(decode.points_of(late)[0], OPTIONS, NOW)
    assert found == []
    assert "5 minutes" in bad[0].error.message

"""One call told by two exporters in two batches counts once, wherever leaving one out is safe."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import CHAT, CLIENT, OPTIONS, SERVER, export, span

from ingest.otlp import decode
from ingest.otlp.conventions import conventions
from ingest.otlp.genai_spans import span_rows
from ingest.otlp.spans_before import SpansBefore
from ingest.usage.rows import Prepared

OTHER = {**CHAT, "gen_ai.usage.output_tokens": 9}
SILENT = {name: value for name, value in CHAT.items() if "usage" not in name}
ELSEWHERE = "0" * 31 + "1"


def sdk(**given: Any) -> Span:
    return span(1, kind=CLIENT, **given)


def gateway(number: int = 2, attributes: dict[str, Any] = CHAT, **given: Any) -> Span:
    return span(number, attributes, parent=1, kind=SERVER, **given)


def counted(before: SpansBefore, *batches: list[Span]) -> list[int]:
    """Rows each batch gives, the batches one after the other."""
    found = []
    for batch in batches:
        spans = decode.spans_of(export(*batch))
        rows = span_rows(spans, OPTIONS, before)
        before.add(spans, [row.position for row in rows if isinstance(row, Prepared)], conventions())
        found.append(len(rows))
    return found


@pytest.mark.parametrize(
    ("case", "batches", "rows"),
    [
        ("the gateway's first, then the SDK's around it", [[gateway()], [sdk()]], [1, 0]),
        ("the SDK's first, then the gateway's with the same counts", [[sdk()], [gateway()]], [1, 0]),
        ("sent once more, each is left out once more", [[sdk()], [gateway()], [gateway()]], [1, 0, 0]),
        ("both again in one batch", [[sdk()], [sdk(), gateway()]], [1, 0]),
        ("a second attempt of the same counts is work", [[sdk()], [gateway()], [gateway(3)]], [1, 0, 1]),
        ("other counts are other work", [[sdk()], [gateway(2, OTHER)]], [1, 1]),
        ("two attempts, then the SDK's around both", [[gateway()], [gateway(3, OTHER)], [sdk()]], [1, 1, 0]),
        ("another trace's span of the same number", [[gateway()], [sdk(trace=ELSEWHERE)]], [1, 1]),
        ("a call without counts wraps nothing", [[gateway(2, SILENT)], [sdk()]], [1, 1]),
    ],
)
def test_a_pair_over_two_batches_counts_once(case: str, batches: list[list[Span]], rows: list[int]) -> None:
    assert counted(SpansBefore(), *batches) == rows, case


def test_what_is_remembered_is_bounded_and_keeps_the_newest() -> None:
    before = SpansBefore(size=4)
    calls = [[span(number, trace=f"{number:032x}")] for number in range(1, 30)]
    assert counted(before, *calls) == [1] * 29
    assert counted(before, [span(50, parent=29, trace=f"{29:032x}", kind=SERVER)]) == [0]
    assert counted(before, [span(50, parent=1, trace=f"{1:032x}", kind=SERVER)]) == [1]

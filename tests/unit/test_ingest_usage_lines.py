"""Lines read by their shape: what the strict way would give, to the byte, or not read at all."""

from __future__ import annotations

import json
from io import BytesIO
from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usage_oddities import items
from usage_samples import usage_item

from ingest.usage.reading import item_of
from ingest.usage.rows import BadRow, ParsedRow, Prepared, SourceOptions
from ingest.usage.usage_json import UsageJson
from ingest.usage.usage_lines import LEARN_AFTER, SHAPES_KEPT, UsageLines, UsageShapes

STARTED, REQUEST = b"2026-11-30T11:59:00.001000+00:00", b"chatcmpl-1:generation"
BYTES = [b'"', b"\\", b"{", b"}", b",", b":", b"null", b"0", b"1.0", b'","', b'"n":2,', b" ", b"\x00", b"\xc3\xa9", b"[", b"]"]
ODD_LINES = [
    b"", b"   ", b"{", b"[]", b"7", b"null", b'"text"', b"\xff\xfe", b'{"request_id": NaN}', b"{" * 2000, b"9" * 5000,
    b'{"request_id":"\\ud800"}', b'{"a":"' + b"x" * 70_000 + b'"}',
]  # fmt: skip


def strictly(line: bytes, position: int = 1) -> ParsedRow:
    item = item_of(position, line)
    return item if isinstance(item, BadRow) else UsageJson().decode(*item)


def taught(*examples: bytes) -> UsageLines:
    """A reader that knows the shapes of these lines, valid or not."""
    shapes = UsageShapes()
    reader = UsageLines(shapes)
    for line in examples:
        for _ in range(LEARN_AFTER):
            reader.learn(line, json.loads(line))
    return reader


def written(item: Any, separators: tuple[str, str] = (",", ":"), *, ensure_ascii: bool = False) -> bytes:
    return json.dumps(item, separators=separators, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass")


ORDINARY = written(usage_item(1, http_status=200, stream=True, trace_id="t", raw={"prompt_tokens": 3, "foo": 1}))
FORMS = st.sampled_from([(",", ":"), (", ", ": ")])


@settings(max_examples=500)
@given(items(), FORMS, st.booleans(), st.randoms(use_true_random=False))
def test_a_line_by_its_shape_equals_the_strict_way(item: dict[str, Any], form: tuple[str, str], ascii: bool, rnd: Random) -> None:
    names = list(item)
    rnd.shuffle(names)
    line = written({name: item[name] for name in names}, form, ensure_ascii=ascii)
    found = taught(line).row(1, line)
    assert found is None or found == strictly(line)


@settings(max_examples=500)
@given(st.integers(0, len(ORDINARY) - 1), st.integers(0, 9), st.binary(max_size=3) | st.sampled_from(BYTES))
def test_a_line_changed_anywhere_equals_the_strict_way(at: int, length: int, instead: bytes) -> None:
    line = ORDINARY[:at] + instead + ORDINARY[at + length :]
    found = taught(ORDINARY).row(1, line)
    assert found is None or found == strictly(line)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"output":7', b'"output":7.0'), (b'"output":7', b'"output":7e0'), (b'"output":7', b'"output":NaN'),
        (b'"output":7', b'"output":-7'), (b'"output":7', b'"output":07'), (b'"output":7', b'"output":"7"'),
        (b'"output":7', b'"output":true'), (b'"output":7', b'"output":null'), (b'"output":7', b'"output":7,"output":9'),
        (b'"output":7', b'"output":100000001'), (b'"output":7', b'"output":' + b"9" * 400),
        (b'"output":7', '"output":٧'.encode()), (b'"output_reasoning":0', b'"output_reasoning":8'),
        (b'"status":"ok"', b'"status":"ok","status":"error"'), (b'"status":"ok"', b'"status":"fine"'),
        (b'"status":"ok"', b'"status":null'), (b'"org":"acme"', b'"org":"acme","org":"b"'), (b'"org":"acme"', b'"org":5'),
        (b'"org":"acme"', b'"org":null'), (b'"org":"acme"', b'"organ":"acme"'), (b'"org":"acme"', b'"org":"' + b"a" * 121 + b'"'),
        (b'"org":"acme"', b'"org":"a,b"'), (b'"org":"acme"', b'"org":"a\\u0041"'), (b'"org":"acme"', b'"org":"\\ud800"'),
        (b'"org":"acme"', b'"org":"\xed\xa0\x80"'), (b'"org":"acme"', b'"org":"a\x01"'), (b'"org":"acme"', b'"org":"a\xff"'),
        (b'"org":"acme"', '"org":"研究"'.encode()), (b'"org":"acme"', b'"org":"a\xe2\x80\xa8b"'),
        (b'"model_id":"m"', b'"model_id":""'), (b'"trace_id":"t"', b'"trace_id":null'), (b'"trace_id":"t"', b'"trace_id":"\x7f"'),
        (b'"stream":true', b'"stream":1'), (b'"stream":true', b'"stream":nul'), (b'"http_status":200', b'"http_status":1000'),
        (b'"foo":1', b'"foo":NaN'), (b'"foo":1', b'"input":"text"'), (b'"foo":1', b'"foo":{"bar":1}'),
        (b'"foo":1', b'"foo":1e999'),
        (b'"foo":1', b'"foo":1,"foo":2'), (b'"foo":1', b'"foo":[[1]]'), (STARTED, b"2026-11-31T11:59:00Z"),
        (STARTED, b"2026-11-30T11:59:60Z"), (STARTED, b"2026-11-30T11:59:00.5Z"),
        (STARTED, b"2026-11-30T11:59:00"), (STARTED, b"2026-11-30T11:59:00.001Z"),
        (STARTED, b"2026-11-30T10:59:09.001Z"), (STARTED, b"2026-11-30T10:59:09Z"),
        (STARTED, b"2026-11-30T11:59:00.000000Z"), (REQUEST, b""),
        (REQUEST, b"x" * 201), (REQUEST, "é".encode()), (REQUEST, b"a,b"),
    ],
)  # fmt: skip
def test_one_value_changed_for_another(old: bytes, new: bytes) -> None:
    assert ORDINARY.count(old) == 1
    line = ORDINARY.replace(old, new)
    found = taught(ORDINARY).row(1, line)
    assert found is None or found == strictly(line)


@pytest.mark.parametrize(
    "changes",
    [
        {"http_status": 200}, {"first_token_at": None}, {"n": 3}, {"n": 1, "attempt": 1, "finish_reason": ""},
        {"tenant": {"org": "研究, b"}}, {"tokens": {"output": 7, "input_uncached": 3}},
        {"tools": ["search"], "provider": "openai"},
        {"trace_id": "t", "session_id": "s", "queue_ms": 4}, {"raw": {"prompt_tokens": 3, "prompt_tokens_details": {"x": 1}}},
        {"policy": {"breaker": "b", "prompt_tokens_before": 9}}, {"started_at": "2026-11-30T11:59:00.500Z"},
        {"requested_model": "null", "engine": "0", "trace_id": "null"}, {"usage_source": "estimated", "status": "aborted"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [(",", ":"), (", ", ": ")])
def test_ordinary_lines_are_read_by_their_shape(changes: dict[str, Any], form: tuple[str, str]) -> None:
    line = written(usage_item(1, **changes), form)
    found = taught(line).row(1, line)
    assert isinstance(found, Prepared)
    assert found == strictly(line)


@settings(max_examples=60)
@given(st.lists(items().map(written) | st.sampled_from(ODD_LINES), max_size=30), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_bad_lines_anywhere_cost_themselves_alone(odd: list[bytes], line_break: bytes, has_mark: bool) -> None:
    """Ordinary lines until the shape is known, then a mixture: each row as the strict way gives it, under its own line number."""
    known = [written(usage_item(n)) for n in range(LEARN_AFTER + 1)]
    mixed = known + [line for n, one in enumerate(odd) for line in (one, written(usage_item(100 + n)))]
    body = (b"\xef\xbb\xbf" if has_mark else b"") + line_break.join(mixed)
    found = list(UsageJson().rows(BytesIO(body), SourceOptions()))
    wanted = [strictly(line, n) for n, line in enumerate(mixed, 1) if line.strip()]
    assert [comparable(row) for row in found] == [comparable(row) for row in wanted]


def comparable(row: ParsedRow) -> object:
    return (row.position, str(row.error), repr(row.body), row.request_id) if isinstance(row, BadRow) else row


def test_shapes_come_and_go() -> None:
    """A sender's new way of writing is learnt when it stays, and the oldest gives way to it."""
    ways = [written(usage_item(1) | dict.fromkeys(names)) for names in permutations(("n", "engine", "stream", "trace_id"), 2)]
    shapes = UsageShapes()
    for line in ways:
        reader = UsageLines(shapes)
        assert reader.row(1, line) is None
        for _ in range(LEARN_AFTER):
            reader.learn(line, json.loads(line))
    assert len(shapes.patterns) == SHAPES_KEPT
    reader = UsageLines(shapes)
    assert [reader.row(1, line) is not None for line in ways] == [False] * (len(ways) - SHAPES_KEPT) + [True] * SHAPES_KEPT

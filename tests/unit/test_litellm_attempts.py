"""Operations and attempts of LiteLLM rows, in the shapes LiteLLM 1.95.1 was seen to log (two retries, one fallback)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from usage_samples import MemoryLog, ingest_into, parsed

from ingest.usage.rows import Prepared

START = 1796039000.0
COUNTED = {"prompt_tokens": 120, "completion_tokens": 30}
Ends = bool | None


def attempt(call: str, begin: float, end: float, *, failed: bool = False, group: str = "tiny", **changes: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 0, "completion_tokens": 0} if failed else COUNTED
    error = {"error_class": "InternalServerError", "error_code": "500", "llm_provider": "hosted_vllm"} if failed else {}
    return {
        "id": call if failed else f"chatcmpl-{call}", "litellm_call_id": call, "trace_id": "session-7",
        "call_type": "acompletion", "status": "failure" if failed else "success",
        "custom_llm_provider": "hosted_vllm", "model": f"hosted_vllm/{group}",
        "model_group": group, "startTime": START + begin, "endTime": START + end, "metadata": {"usage_object": usage},
        "error_information": error, "model_parameters": {}, **usage,
    } | changes  # fmt: skip


FALLBACK = {"hidden_params": {"additional_headers": {"x-litellm-attempted-retries": 0, "x-litellm-attempted-fallbacks": 1}}}
STREAM_WITH_RETRIES = [
    attempt("s", 0.7, 0.71, failed=True, group="failing"),
    attempt("s", 1.7, 1.71, failed=True, group="failing"),
    attempt("s", 3.1, 3.2, failed=True, group="failing"),
    attempt("s", 0.7, 5.6, group="vendor"),
]
BUFFERED = [attempt("b", 0.1, 0.2, failed=True, group="failing"), attempt("b", 4.7, 6.3, group="vendor", **FALLBACK)]
Row = tuple[str, str, Ends, int]


@pytest.mark.parametrize(
    ("payloads", "expected"),
    [
        (
            STREAM_WITH_RETRIES,
            [
                ("gateway:s:1", "failing", False, 1),
                ("gateway:s:2", "failing", False, 2),
                ("gateway:s:3", "failing", False, 3),
                ("chatcmpl-s:generation", "failing", None, 1),
            ],
        ),
        (BUFFERED, [("gateway:b:1", "failing", False, 1), ("chatcmpl-b:generation", "failing", None, 1)]),
        (BUFFERED[1:], [("chatcmpl-b:generation", "", None, 1)]),
        (BUFFERED[:1], [("gateway:b:1", "failing", None, 1)]),
        ([attempt("g", 0, 1, failed=True, tokenfuse_ends_operation=True)], [("gateway:g:1", "tiny", True, 1)]),
    ],
    ids=[
        "a stream logs every failure",
        "a buffered call only the first",
        "asked model unknown",
        "end unknown",
        "the guard knows",
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_attempts_of_one_call_are_told_apart(payloads: list[dict[str, Any]], expected: list[Row], order: int) -> None:
    rows = parsed("litellm", json.dumps(payloads[::order]).encode())
    found = [json.loads(row.record) for row in rows if isinstance(row, Prepared)]
    shown = [(r["request_id"], r.get("requested_model", ""), r.get("ends_operation"), r.get("attempt", 1)) for r in found]
    assert shown[::order] == expected
    assert {record["operation_id"] for record in found} == {payloads[0]["litellm_call_id"]}


def test_the_same_rows_twice_in_one_body_are_no_further_attempts() -> None:
    log = MemoryLog()
    verdicts = ingest_into(log).accept(parsed("litellm", json.dumps([*STREAM_WITH_RETRIES, *STREAM_WITH_RETRIES]).encode()))
    assert [verdict.verdict for verdict in verdicts] == ["accepted"] * 4 + ["duplicate"] * 4
    assert [line.rsplit(",", 2)[1] for line in log.lines("usage")] == ["0", "0", "0", "1"]

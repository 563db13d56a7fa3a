"""LiteLLM payloads by template give the strict way's line and record to the byte, whatever a payload holds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from usage_samples import parsed

from core.errors import BadRecord
from ingest.usage.litellm import call_of, judged
from ingest.usage.litellm_fast import REPEATING, REPEATING_METADATA, REPEATING_PARAMETERS
from ingest.usage.rows import BadRow, ParsedRow, Prepared, SourceOptions

START = 1796039142.014488
USAGE = {"prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306, "prompt_tokens_details": {"cached_tokens": 1920}}
LABELS = {"requester_metadata": {"session_id": "s-1", "plan": "gold"}, "user_api_key_alias": "key of zoe"}


def payload(number: int, **changes: Any) -> dict[str, Any]:
    metadata = {"usage_object": USAGE, "user_api_key_hash": "88dc28", "user_api_key_team_alias": "search, ads"} | LABELS
    return {
        "id": f"chatcmpl-{number}", "litellm_call_id": f"call-{number}", "trace_id": "t1", "call_type": "acompletion",
        "status": "success", "custom_llm_provider": "hosted_vllm", "startTime": START, "endTime": START + 2.5,
        "completionStartTime": START + 0.25, "model": "hosted_vllm/m", "model_id": "hash", "model_group": "asked",
        "api_base": "http://10.0.0.1:8000/v1", "end_user": "zoe", "request_tags": ["org:acme", "service_tier:P0"],
        "prompt_tokens": 2006, "completion_tokens": 300, "response_cost": 0.0, "error_information": {},
        "model_parameters": {"n": 1}, "metadata": metadata | changes.pop("metadata", {}),
    } | changes  # fmt: skip


def strictly(item: Any) -> Prepared | str:
    """The strict way's row, or the field it refuses."""
    try:
        row = judged(0, call_of(item), SourceOptions())
    except BadRecord as error:
        return error.field
    assert isinstance(row, Prepared)
    return row


def shown(row: ParsedRow) -> Prepared | str:
    return row.error.field if isinstance(row, BadRow) else row._replace(position=0)  # type: ignore[union-attr,return-value]


def both_agree(items: list[Any]) -> None:
    rows = parsed("litellm", b"\n".join(json.dumps(item).encode() for item in items))
    assert [shown(row) for row in rows] == [strictly(item) for item in items]


def test_the_second_payload_of_a_kind_equals_the_strict_way() -> None:
    changed = {"usage_object": USAGE | {"completion_tokens": 7, "total_tokens": 2013, "foo_tokens": 3}}
    both_agree([payload(1), payload(2), payload(3, metadata=changed), payload(4, startTime=START + 1, trace_id=None)])


OTHERS: list[Any] = [None, "other", "a,b", 'q"', True, 3, 0.5, ["x"], {"k": "v", "include_usage": True, "session_id": "s-2"}]


@pytest.mark.parametrize("other", OTHERS, ids=repr)
@pytest.mark.parametrize(
    "name", [*REPEATING, "id", "litellm_call_id", "trace_id", "session_id", "response", "tokenfuse_upstream_usage"]
)
def test_no_field_of_a_payload_is_taken_from_another(name: str, other: Any) -> None:
    both_agree([payload(1), payload(2), payload(3, **{name: other}), payload(4)])


@pytest.mark.parametrize("other", OTHERS, ids=repr)
@pytest.mark.parametrize("name", REPEATING_METADATA)
def test_no_field_of_the_metadata_is_taken_from_another(name: str, other: Any) -> None:
    both_agree([payload(1), payload(2), payload(3, metadata={name: other}), payload(4)])


@pytest.mark.parametrize("other", OTHERS, ids=repr)
@pytest.mark.parametrize("name", REPEATING_PARAMETERS)
def test_no_parameter_is_taken_from_another(name: str, other: Any) -> None:
    changed = {"n": 1, name: other}
    both_agree([payload(1, stream=True), payload(2, stream=True), payload(3, stream=True, model_parameters=changed)])
    both_agree([payload(1), payload(2), payload(3, model_parameters=changed), payload(4)])


def test_what_a_buffered_answer_says_of_its_attempts_is_read() -> None:
    said = {"additional_headers": {"x-litellm-attempted-retries": 2, "x-litellm-attempted-fallbacks": 1}}
    both_agree([payload(1), payload(2), payload(3, hidden_params=said), payload(4, hidden_params=said)])


COUNT = st.sampled_from([0, 1, 7, 2006, 10**8, 10**8 + 1, -1, 1.5, None, "3", True])
TIME = st.sampled_from([START, START + 1.000001, START + 3599.9, START + 3700, START - 5, 0, 1.5, "2026-11-30T12:00:00Z", None])
LABEL = st.sampled_from(["a", "", None, "None", "a,b", 'a"', "é", "x" * 161, "x" * 201, 5, "tab\t"])
USAGES = st.fixed_dictionaries(
    {"prompt_tokens": COUNT, "completion_tokens": COUNT},
    optional={
        "total_tokens": COUNT, "prompt_tokens_details": st.sampled_from([None, {}, {"cached_tokens": 3}, {"text_tokens": 1}]),
        "identity": st.just({"x": 1}), "litellm": st.just("x"), "unmapped": st.just({"a": 1}), "foo_tokens": COUNT,
    },
)  # fmt: skip
OWN = st.fixed_dictionaries(
    {},
    optional={
        "id": LABEL, "litellm_call_id": LABEL, "trace_id": LABEL, "session_id": LABEL, "startTime": TIME, "endTime": TIME,
        "completionStartTime": TIME, "prompt_tokens": COUNT, "completion_tokens": COUNT,
        "response_cost": st.sampled_from([0.0, 0.5, -1, "1", None]), "status": st.sampled_from(["success", "failure", None]),
        "metadata": st.fixed_dictionaries({"usage_object": USAGES | st.none()}),
    },
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(OWN)
def test_odd_parts_of_a_call_are_judged_as_by_the_strict_way(changes: dict[str, Any]) -> None:
    both_agree([payload(1), payload(2), payload(3, **changes)])


@pytest.mark.realdata
def test_the_recording_gives_the_same_rows_by_both_ways(realdata: Path) -> None:
    lines = gzip.decompress((realdata / "recordings/open/gateway.jsonl.gz").read_bytes()).splitlines()
    both_agree([json.loads(line)["payload"] for line in lines])

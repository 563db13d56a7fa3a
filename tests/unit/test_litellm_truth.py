"""What of a LiteLLM payload's usage is the upstream's, in the shapes LiteLLM 1.95.1 was seen to log (tests/litellm runs it)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from usage_samples import parsed

from ingest.usage.rows import Prepared

START = 1796039000.0
Counts = tuple[int, int, int, int]


def stream(usage: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1", "litellm_call_id": "c1", "call_type": "acompletion", "status": "success", "stream": True,
        "custom_llm_provider": "hosted_vllm", "model": "hosted_vllm/m", "model_group": "tiny", "startTime": START,
        "endTime": START + 1, "metadata": {"usage_object": usage}, "model_parameters": {"stream": True},
        "prompt_tokens": usage["prompt_tokens"], "completion_tokens": usage["completion_tokens"],
    } | changes  # fmt: skip


def usage(prompt: int, completion: int, reasoning: int = 0, cached: int | None = None) -> dict[str, Any]:
    """As LiteLLM puts it together: its details of the output are always there, those of the prompt only from the upstream."""
    return {
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
        "prompt_tokens_details": None if cached is None else {"cached_tokens": cached},
    }  # fmt: skip


def seen(**counts: Any) -> dict[str, Any]:
    return {"tokenfuse_upstream_usage": counts}


@pytest.mark.parametrize(
    ("payload", "source", "counts"),
    [
        (stream(usage(120, 30, cached=64)), "exact", (56, 64, 30, 0)),
        (stream(usage(120, 30)), "estimated", (120, 0, 30, 0)),
        (stream(usage(120, 30), **seen(prompt_tokens=120, completion_tokens=30)), "exact", (120, 0, 30, 0)),
        (stream(usage(36, 2, reasoning=5)), "estimated", (36, 0, 7, 5)),
        (stream(usage(36, 9, reasoning=5), **seen()), "estimated", (36, 0, 14, 5)),
        (stream(usage(50, 900, reasoning=840, cached=0)), "exact", (50, 0, 900, 840)),
        (stream(usage(50, 900, reasoning=951, cached=0)), "exact", (50, 0, 900, 0)),
        (stream(usage(50, 900, reasoning=951), **seen(prompt_tokens=50, completion_tokens=900)), "exact", (50, 0, 900, 0)),
        (stream(usage(0, 0)), "missing", (0, 0, 0, 0)),
    ],
    ids=[
        "details come from the upstream alone",
        "without them nobody can tell",
        "but the guard that saw it",
        "own count: hidden reasoning is not in the output",
        "own count, known to be one",
        "reasoning of the upstream's",
        "reasoning counted by another tokenizer: the split is not known",
        "the upstream's own object says no split",
        "nothing counted",
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_b01_whose_count_it_is(payload: dict[str, Any], source: str, counts: Counts, times: int) -> None:
    bodies = [json.dumps({**payload, "id": f"r{n}", "litellm_call_id": f"c{n}"}) for n in range(times)]
    rows = parsed("litellm", "\n".join(bodies).encode())
    assert len(rows) == times
    for row in rows:
        assert isinstance(row, Prepared)
        found = json.loads(row.record)
        tokens = found["tokens"]
        assert found["usage_source"] == source
        assert (tokens["input_uncached"], tokens["input_cache_read"], tokens["output"], tokens["output_reasoning"]) == counts


def test_b10_the_model_asked_is_the_one_the_caller_named() -> None:
    (row,) = parsed("litellm", json.dumps(stream(usage(1, 1), model_group="backup", tokenfuse_requested_model="asked")).encode())
    assert isinstance(row, Prepared)
    assert json.loads(row.record)["requested_model"] == "asked"


def test_a_call_under_way_in_a_killed_gateway_is_aborted_and_its_usage_missing() -> None:
    error = {"error_class": "GatewayStopped", "error_message": "the gateway's process ended before it logged this call"}
    item = stream(usage(0, 0), id="c1", status="failure", error_information=error, metadata={})
    (row,) = parsed("litellm", json.dumps(item).encode())
    assert isinstance(row, Prepared)
    found = json.loads(row.record)
    assert (found["request_id"], found["status"], found["usage_source"]) == ("gateway:c1:1", "aborted", "missing")

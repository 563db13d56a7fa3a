"""The short ways and the strict way give the same rows: same line, same record, same reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from usage_samples import parsed, usage_item

from core.errors import BadRecord
from core.tokens import MAX_TOKENS
from core.usage import Deployment, TenantPath
from ingest.usage.rows import Prepared, SourceOptions
from ingest.usage.traces import TraceRows
from ingest.usage.usage_json import UsageJson

NAMES = st.text(max_size=8) | st.sampled_from(["", "acme", "a,b", 'q"', "b\\", "x" * 120, "x" * 121, "a\nb", "é"])
ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just([]) | st.just({})
COUNTS = st.integers(0, 5) | st.sampled_from([-1, MAX_TOKENS, MAX_TOKENS + 1, 1.0, True, None, "3"])
TIMES = st.sampled_from(
    ["2026-11-30T11:59:00Z", "2026-11-30T11:59:00.000001Z", "2026-11-30T11:59:59.999999+00:00", "2026-11-30T19:59:30+08:00",
     "2026-11-30 11:59:30Z", "2026-11-30T11:59:30", "2026-11-30T12:59:00Z", "2026-11-30T12:59:00.000001Z", "1999-12-31T23:59:59Z",
     "2100-01-01T00:00:00Z", "20261130T115930Z", "2026-W49-1T11:59:30Z", "now", ""]
)  # fmt: skip


@st.composite
def items(draw: st.DrawFn) -> dict[str, Any]:
    """Ordinary records with up to four places changed for something else."""
    item = usage_item(1)
    changes: dict[str, Any] = {
        "started_at": TIMES, "first_token_at": TIMES | st.none(), "finished_at": TIMES, "request_id": NAMES,
        "deployment": st.fixed_dictionaries({}, optional={k: NAMES for k in ("cluster", "namespace", "model_id", "x")}) | ODD,
        "tenant": st.fixed_dictionaries(dict.fromkeys(("org", "team", "project", "user", "key_id"), NAMES | ODD)) | ODD,
        "tokens": st.fixed_dictionaries(dict.fromkeys(item["tokens"], COUNTS)) | ODD,
        "status": st.sampled_from(["ok", "error", "refused", "what"]) | ODD,
        "usage_source": st.sampled_from(["exact", "estimated", "missing"]) | ODD,
        "service_tier": st.sampled_from(["P0", "P2", "P3"]) | ODD, "schema": st.sampled_from(["usage/1", "usage/2"]) | ODD,
        "http_status": st.integers(-1, 1000) | ODD, "stream": ODD, "finish_reason": NAMES | ODD, "requested_model": NAMES | ODD,
        "raw": st.dictionaries(st.sampled_from(["prompt_tokens", "foo", "unmapped", "input"]), ODD | st.just({"bar": 1})) | ODD,
        "n": st.integers(0, 3) | ODD, "extra": ODD, "messages": st.just(["hello"]), "attempt": st.integers(0, 1001) | ODD,
        "engine": NAMES | ODD, "trace_id": NAMES | ODD, "session_id": NAMES | ODD, "queue_ms": st.integers(-1, 9) | ODD,
    }  # fmt: skip
    for name in draw(st.lists(st.sampled_from(sorted(changes)), max_size=4)):
        item[name] = draw(changes[name])
    for name in draw(st.lists(st.sampled_from(sorted(item)), max_size=1)):
        del item[name]
    return item


@settings(max_examples=600)
@given(items())
def test_usage_by_the_short_way_equals_the_strict_way(item: dict[str, Any]) -> None:
    adapter = UsageJson()
    fast, strict = adapter._fast(3, item), adapter.decode(3, item)
    assert fast is None or fast == strict


@settings(max_examples=200)
@given(items())
def test_through_bytes_too(item: dict[str, Any]) -> None:
    found = parsed("usage", json.dumps(item).encode())
    strict = UsageJson().decode(1, json.loads(json.dumps(item)))
    assert [type(row) for row in found] == [type(strict)]
    if isinstance(strict, Prepared):
        assert found == [strict]


def test_the_ordinary_record_takes_the_short_way() -> None:
    adapter = UsageJson()
    assert adapter._fast(1, usage_item()) == adapter.decode(1, usage_item()) is not None
    assert adapter._fast(1, usage_item(first_token_at=None, stream=True, http_status=200)) is not None


@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2110, 1, 1)),  # noqa: DTZ001
    st.integers(-1, MAX_TOKENS + 1),
    st.integers(-1, MAX_TOKENS + 1),
    NAMES,
    st.sampled_from([TenantPath(), TenantPath("acme"), TenantPath("a,b", "c", "d", "e", "f")]),
)
def test_traces_by_the_short_way_equal_the_strict_way(
    at: datetime, tokens_in: int, tokens_out: int, column: str, tenant: TenantPath
) -> None:
    options = SourceOptions(deployment=Deployment("c", "n,s", "org/m"), tenant=tenant)
    found = []
    for build in (TraceRows("vtc", options), TraceRows("vtc", options)):
        way = build.strict if found else build.row
        try:
            found.append(way(1, b"content", at.replace(tzinfo=UTC), tokens_in, tokens_out, column))
        except BadRecord as error:
            found.append((error.field, error.message))
    assert found[0] == found[1]

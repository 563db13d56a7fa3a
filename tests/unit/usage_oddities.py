"""Usage records as nobody should send them, for properties."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from usage_samples import usage_item

from core.tokens import MAX_TOKENS

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

"""The short ways and the strict way give the same rows: same line, same record, same reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from usage_oddities import NAMES, items
from usage_samples import parsed, usage_item

from core.errors import BadRecord
from core.tokens import MAX_TOKENS
from core.usage import Deployment, TenantPath
from ingest.usage.reading import item_of
from ingest.usage.rows import Prepared, SourceOptions
from ingest.usage.traces import TraceRows
from ingest.usage.usage_json import UsageJson


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
    strict = UsageJson().decode(*item_of(1, json.dumps(item).encode()))
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

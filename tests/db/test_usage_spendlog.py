"""LiteLLM's spend log is read page by page, read-only, whatever columns its version has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, text

from core.errors import BadInput, Unavailable
from ingest.usage.litellm_spendlog import read_spend_log, row
from ingest.usage.rows import Prepared, SourceOptions

pytestmark = pytest.mark.db

START = datetime(2026, 11, 1, tzinfo=UTC)
TABLE = """
CREATE TABLE "LiteLLM_SpendLogs" (
  request_id text PRIMARY KEY, call_type text, api_key text DEFAULT '', spend double precision DEFAULT 0, total_tokens int,
  prompt_tokens int, completion_tokens int, "startTime" timestamp(3), "endTime" timestamp(3), "completionStartTime" timestamp(3),
  model text, model_id text, model_group text, custom_llm_provider text, api_base text, "user" text, metadata jsonb,
  cache_hit text, request_tags jsonb, team_id text, organization_id text, end_user text, session_id text, status text,
  messages jsonb, response jsonb
)
"""
ROWS = """
INSERT INTO "LiteLLM_SpendLogs"
SELECT 'chatcmpl-' || n, 'acompletion', 'hash', 0, 15, 10, 5, t, t + interval '2 s', t + interval '2 s', 'hosted_vllm/m', 'h',
  'm', 'hosted_vllm', 'http://e', 'u',
  jsonb_build_object('usage_object', jsonb_build_object('prompt_tokens', 10, 'completion_tokens', 5)),
  'None', '["team:a"]', '', '', 'zoe', NULL, 'success', '"SECRET"', '"SECRET"'
FROM (SELECT n, timestamp '2026-11-01' + (n / 7) * interval '1 hour' AS t FROM generate_series(0, 699) AS n) AS made
"""


def test_every_row_once_and_no_texts(db: Engine, db_url: str) -> None:
    """Seven rows share each start time, so pages end inside a tie."""
    with db.begin() as connection:
        connection.execute(text(TABLE))
        connection.execute(text(ROWS))
    found = list(read_spend_log(db_url, START, START + timedelta(days=2), page_rows=50))
    assert len(found) == len({item["request_id"] for item in found}) == 48 * 7
    assert [item["startTime"] for item in found] == sorted(item["startTime"] for item in found)
    assert "SECRET" not in str(found)
    rows = [row(n, item, SourceOptions()) for n, item in enumerate(found)]
    assert all(isinstance(made, Prepared) for made in rows)
    assert sum(int(made.line.split(",")[15]) for made in rows if isinstance(made, Prepared)) == 10 * len(found)


def test_a_database_without_the_table_says_so(db_url: str) -> None:
    with pytest.raises(BadInput, match="LiteLLM_SpendLogs"):
        list(read_spend_log(db_url, START, START + timedelta(days=1)))


def test_an_unreachable_database_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        list(read_spend_log("postgresql://127.0.0.1:1/none?connect_timeout=2", START, START + timedelta(days=1)))

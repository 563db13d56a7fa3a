"""Format ``litellm-spendlog``: rows of LiteLLM's table ``LiteLLM_SpendLogs``, from a JSON or CSV export or read-only by SQL.

The table has no cached-token columns: they are in ``metadata.usage_object``. Its times are UTC without a zone. Whether a call was
a stream is not there either: one whose first token came before its end was.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO

import orjson
import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from core.errors import BadInput, BadRecord, Unavailable
from core.usage import MAX_ID
from core.windows import require_utc
from ingest.usage.litellm import cost, count, judged, label, labels_of, names, obj, refused_by_guard, tenant_of, truth
from ingest.usage.litellm_call import Call
from ingest.usage.reading import Item, csv_texts, items_of_lines, numbered_lines
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row

NEEDED = ("request_id", "startTime", "endTime")
COLUMNS = (
    "request_id", "call_type", "api_key", "spend", "prompt_tokens", "completion_tokens", "startTime", "endTime",
    "completionStartTime", "model", "model_id", "model_group", "custom_llm_provider", "api_base", "user", "metadata", "cache_hit",
    "request_tags", "team_id", "organization_id", "end_user", "session_id", "status", "litellm_call_id",
)  # fmt: skip
PAGE_ROWS = 5000
Object = Mapping[str, Any]


class SpendLog:
    def looks_like(self, head: bytes) -> bool:
        return b"request_id" in head and b"startTime" in head and b"custom_llm_provider" in head

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        for item in _items(stream):
            yield item if isinstance(item, BadRow) else row(item[0], item[1], options)


def row(position: int, item: Any, options: SourceOptions) -> ParsedRow:
    """One row of the table, given by column name."""
    try:
        return judged(position, _call(item), options)
    except BadRecord as error:
        return bad_row(position, error, item)


def read_spend_log(url: str, since: datetime, until: datetime, *, page_rows: int = PAGE_ROWS) -> Iterator[dict[str, Any]]:
    """Rows whose call started in [since, until), oldest first, without the columns that hold texts.

    Reads in a read-only session page by page (keyset on startTime, request_id), so the gateway's database holds no long
    transaction. Raises Unavailable when it cannot be reached, BadInput when the table is not there.
    """
    start, end = (require_utc(at).replace(tzinfo=None) for at in (since, until))
    try:
        with psycopg.connect(url, autocommit=True, row_factory=dict_row, connect_timeout=10) as connection:
            connection.execute("SET default_transaction_read_only = on")
            query = _page_query(connection)
            after = (start, "")
            while page := connection.execute(query, {"at": after[0], "id": after[1], "until": end, "rows": page_rows}).fetchall():
                yield from page
                after = (page[-1]["startTime"], page[-1]["request_id"])
    except psycopg.OperationalError as error:
        raise Unavailable("LiteLLM's database cannot be reached", hint=str(error).strip().splitlines()[0]) from error


def _page_query(connection: psycopg.Connection[dict[str, Any]]) -> sql.Composed:
    found = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'LiteLLM_SpendLogs'"
    ).fetchall()
    have = {line["column_name"] for line in found}
    if not have >= set(NEEDED):
        raise BadInput(
            "the database has no table LiteLLM_SpendLogs", field="url", hint="give the DATABASE_URL of the LiteLLM proxy"
        )
    columns = sql.SQL(", ").join(sql.Identifier(name) for name in COLUMNS if name in have)
    return sql.SQL(
        'SELECT {} FROM "LiteLLM_SpendLogs" WHERE ("startTime", request_id) > (%(at)s, %(id)s) AND "startTime" < %(until)s '
        'ORDER BY "startTime", request_id LIMIT %(rows)s'
    ).format(columns)


def _items(stream: BinaryIO) -> Iterator[Item | BadRow]:
    """JSON rows, or CSV rows (quoted fields may hold line breaks) by header name."""
    lines = numbered_lines(stream)
    first = next(lines, None)
    if first is None:
        return
    if isinstance(first, BadRow):
        yield first
        return
    joined = itertools.chain([first], lines)
    if first[1].lstrip()[:1] in (b"{", b"["):
        yield from items_of_lines(joined, stream)
        return
    bad: list[BadRow] = []
    reader = csv.DictReader(csv_texts(joined, bad))
    for name in NEEDED:
        if name not in (reader.fieldnames or ()):
            raise BadInput(
                "is not a column of the header", where="line 1", field=name, hint="export the whole table with a header"
            )
    for values in reader:
        yield reader.line_num, values
    yield from bad


def _call(item: Any) -> Call:
    if not isinstance(item, dict):
        raise BadRecord("must be a row by column name", field="record", value=type(item).__name__)
    for name in NEEDED:
        if item.get(name) in (None, ""):
            raise BadRecord("is required of a LiteLLM spend log row", field=name)
    metadata = _json(item, "metadata", {})
    error, tags = obj(metadata, "error_information"), names(_json(item, "request_tags", []))
    owner = {"user_api_key_team_id": item.get("team_id"), "user_api_key_org_id": item.get("organization_id")}
    owner |= {"user_api_key_user_id": item.get("user")} | {
        name: value for name, value in metadata.items() if value not in (None, "")
    }
    started, finished = _instant(item, "startTime"), _instant(item, "endTime")
    first = _instant(item, "completionStartTime") if item.get("completionStartTime") else None
    usage = obj(metadata, "usage_object")
    failed = item.get("status") == "failure" or metadata.get("status") == "failure"
    return Call(
        row_id=label(item, "request_id", 10_000),
        call_id=label(item, "litellm_call_id", 10_000) or label(metadata, "litellm_call_id", 10_000),
        call_type=label(item, "call_type"),
        started_at=started,
        finished_at=finished,
        completion_start=first,
        failed=failed,
        cache_hit=truth(item.get("cache_hit")),
        stream=first is not None and started <= first < finished,
        model=label(item, "model"),
        model_group=label(item, "model_group"),
        requested_group=label(metadata, "original_model_group"),
        upstream=(label(item, "model_id"), label(item, "model_group")),
        provider=label(item, "custom_llm_provider"),
        api_base=label(item, "api_base", 2000),
        tenant=tenant_of(owner, tags, end_user=label(item, "end_user"), key_id=label(item, "api_key")),
        tags=tags,
        usage=usage,
        prompt_tokens=count(_numbers(item), "prompt_tokens"),
        completion_tokens=count(_numbers(item), "completion_tokens"),
        cost_usd=cost(_numbers(item), "spend"),
        error_class=label(error, "error_class"),
        error_code=label(error, "error_code"),
        refused_by_us=refused_by_guard(error),
        attempt=1 + count(metadata, "attempted_retries"),
        n=1,
        trace_id="",
        fallbacks=count(metadata, "attempted_fallbacks"),
        ends_operation=True if failed else None,
        session_id=label(item, "session_id", MAX_ID),
        key_alias=label(metadata, "user_api_key_alias"),
        metadata=labels_of(metadata),
    )


def _json(item: Object, name: str, default: Any) -> Any:
    value = item.get(name)
    if value is None or value == "":
        return default
    if isinstance(value, (str, bytes)):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise BadRecord("is not JSON", field=name) from error
        if isinstance(value, str):
            return _json({name: value}, name, default)
    if not isinstance(value, type(default)):
        raise BadRecord(f"must be a JSON {type(default).__name__}", field=name)
    return value


def _numbers(item: Object) -> Object:
    """Counts and spend, which a CSV gives as text."""
    found: dict[str, Any] = {}
    for name, kind in (("prompt_tokens", int), ("completion_tokens", int), ("spend", float)):
        value = item.get(name)
        try:
            found[name] = kind(value) if isinstance(value, str) and value else value or 0
        except ValueError as error:
            raise BadRecord("is not a number", field=name, value=value) from error
    return found


def _instant(item: Object, name: str) -> datetime:
    value = item[name]
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise BadRecord("is not a time", field=name, value=value) from error
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)

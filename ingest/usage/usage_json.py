"""Format ``usage``: our own ``usage/1`` JSON, as NDJSON, a JSON array or either gzipped.

Ordinary lines are read by their shape (``usage_lines``) and ordinary items of an array by a straight path; whatever these do not
know goes through the strict decoder, which alone decides what is bad. All give the same bytes (tests compare them).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

import orjson

from core.errors import BadRecord
from core.texts import without_texts
from core.tokens import MAX_TOKENS, TOKEN_FIELDS
from core.usage import MAX_ID, MAX_NAME, SCHEMA, SERVICE_TIERS, STATUSES, USAGE_SOURCES, operation_end
from core.usage_codec import DEPLOYMENT_KEYS, EARLIEST, LATEST, TENANT_KEYS, decode_usage
from ingest.usage.reading import Item, document, item_of, numbered_lines, opens_document
from ingest.usage.rows import BadRow, ParsedRow, Prepared, SourceOptions, bad_row, prepare, unmapped_names
from ingest.usage.usage_lines import UsageLines, UsageShapes

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
HOUR_MS = 3_600_000
_CORE_KEYS = frozenset(
    {
        "schema", "request_id", "started_at", "first_token_at", "finished_at", "deployment", "tenant", "tokens", "usage_source",
        "status", "service_tier",
    }
)  # fmt: skip
_KEYS = _CORE_KEYS | {
    "http_status", "finish_reason", "stream", "requested_model", "engine", "n", "attempt", "trace_id", "operation_id",
    "ends_operation", "session_id", "queue_ms", "raw",
}  # fmt: skip
_TIERS, _STATUSES, _SOURCES = frozenset(SERVICE_TIERS), frozenset(STATUSES), frozenset(USAGE_SOURCES) - {"missing"}
_NO_TOKENS = dict.fromkeys(TOKEN_FIELDS, 0)
_TENANTS_KEPT = 50_000


class UsageJson:
    """The adapter; keeps the identities it has seen valid."""

    def __init__(self) -> None:
        self._shapes = UsageShapes()
        self._known: dict[tuple[str, ...], tuple[str, dict[str, str], dict[str, str]]] = {}

    def looks_like(self, head: bytes) -> bool:
        return b'"request_id"' in head and b'"started_at"' in head

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        lines, is_first = UsageLines(self._shapes), True
        for numbered in numbered_lines(stream):
            if isinstance(numbered, BadRow):
                yield numbered
                continue
            if is_first and opens_document(numbered[1]):
                yield from map(self._row, document(*numbered, stream))
                return
            is_first = False
            yield lines.row(*numbered) or self._line(lines, *numbered)

    def _line(self, lines: UsageLines, position: int, line: bytes) -> ParsedRow:
        item = item_of(position, line)
        row = self._row(item)
        if isinstance(row, Prepared) and not isinstance(item, BadRow):
            lines.learn(line, item[1])
        return row

    def _row(self, item: Item | BadRow) -> ParsedRow:
        return item if isinstance(item, BadRow) else self._fast(*item) or self.decode(*item)

    def decode(self, position: int, item: Any) -> ParsedRow:
        """The strict way: any item to a prepared record or a bad row."""
        try:
            return prepare(decode_usage(item), position)
        except BadRecord as error:
            return bad_row(position, error, item)
        except RecursionError:
            return bad_row(position, BadRecord("is nested too deeply", field="record"), None)

    def _fast(self, position: int, item: Any) -> Prepared | None:
        """The record if it is of the ordinary kind, else None (the strict way decides)."""
        try:
            if item.keys() <= _KEYS:
                return self._ordinary(position, item)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        return None

    def _ordinary(self, position: int, item: dict[str, Any]) -> Prepared | None:
        request_id, tokens, get = item["request_id"], item["tokens"], item.get
        source, status, tier = item["usage_source"], item["status"], item["service_tier"]
        if not (
            source in _SOURCES and status in _STATUSES and tier in _TIERS and item["schema"] == SCHEMA
            and 0 < len(request_id) <= MAX_ID and _plain_name(request_id) and _plain_extras(item)
        ):  # fmt: skip
            return None
        counts = _counts(tokens)
        times = _times(item["started_at"], get("first_token_at"), item["finished_at"])
        known = self._identity(item["deployment"], item["tenant"])
        if counts is None or times is None or known is None:
            return None
        started, first, finished, duration_ms, first_ms, finished_ms = times
        names, deployment, tenant = known
        full: dict[str, Any] = {"schema": SCHEMA, "request_id": request_id, "started_at": started}
        if first is not None:
            full["first_token_at"] = first
        full |= {
            "finished_at": finished, "deployment": deployment, "tenant": tenant, "tokens": counts[1], "usage_source": source,
            "status": status, "service_tier": tier,
        }  # fmt: skip
        unmapped = _add_extras(item, full)
        repeated = ((get("n") or 1) - 1) * counts[2]
        end = operation_end(get("ends_operation"), status)
        columns = f"{tier},{status},{source},0,{counts[0]},{duration_ms},{repeated},{end},1"
        line = f"{request_id},{first_ms},{finished_ms},{names},{columns}"
        return Prepared(position, request_id, first_ms, finished_ms, line, orjson.dumps(full, option=orjson.OPT_UTC_Z), unmapped)

    def _identity(self, deployment: Any, tenant: Any) -> tuple[str, dict[str, str], dict[str, str]] | None:
        if len(deployment) != 3 or len(tenant) != 5:
            return None
        d, t = deployment, tenant
        key = (
            d["cluster"], d["namespace"], d["model_id"], t["org"], t["team"], t["project"], t["user"], t["key_id"],
        )  # fmt: skip
        known = self._known.get(key)
        if known is None and all(type(name) is str and len(name) <= 120 and _plain_name(name) for name in key) and key[2]:
            if len(self._known) >= _TENANTS_KEPT:
                self._known.clear()
            known = (
                ",".join(key),
                dict(zip(DEPLOYMENT_KEYS, key[:3], strict=True)),
                dict(zip(TENANT_KEYS, key[3:], strict=True)),
            )
            self._known[key] = known
        return known


def _plain_name(name: str) -> bool:
    return name.isprintable() and '"' not in name and "\\" not in name and "," not in name


_TEXTS = {
    "requested_model": MAX_NAME, "finish_reason": MAX_NAME, "engine": MAX_NAME, "trace_id": MAX_ID,
    "operation_id": MAX_ID, "session_id": MAX_ID,
}  # fmt: skip
_NUMBERS = {"http_status": (0, 999), "n": (1, 1024), "attempt": (1, 1000), "queue_ms": (0, 86_400_000)}
_EXTRAS = (
    ("requested_model", ""), ("engine", ""), ("http_status", None), ("finish_reason", ""), ("stream", None), ("n", 1),
    ("attempt", 1), ("trace_id", ""), ("operation_id", ""), ("session_id", ""), ("ends_operation", None), ("queue_ms", None),
)  # fmt: skip


def _plain_extras(item: dict[str, Any]) -> bool:
    for name in item.keys() - _CORE_KEYS:
        value = item[name]
        if name in _TEXTS:
            plain = type(value) is str and len(value) <= _TEXTS[name] and value.isprintable()
        elif name in _NUMBERS:
            plain = type(value) is int and _NUMBERS[name][0] <= value <= _NUMBERS[name][1]
        else:
            plain = type(value) is (bool if name in ("stream", "ends_operation") else dict)
        if not plain and value is not None:
            return False
    return True


def _add_extras(item: dict[str, Any], full: dict[str, Any]) -> tuple[str, ...]:
    for name, default in _EXTRAS:
        value = item.get(name)
        if value is not None and value != default:
            full[name] = value
    kept = without_texts(item.get("raw") or {})
    if not kept:
        return ()
    full["raw"] = kept
    return unmapped_names(kept)


def _counts(tokens: Any) -> tuple[str, dict[str, int], int] | None:
    """The line's token columns, the record's tokens, and the whole input; None when not in good order."""
    if len(tokens) != 6:
        tokens = _NO_TOKENS | tokens
        if len(tokens) != 6:
            return None
    u, r, w5, w1 = (
        tokens["input_uncached"], tokens["input_cache_read"], tokens["input_cache_write_5m"], tokens["input_cache_write_1h"],
    )  # fmt: skip
    out, reasoning = tokens["output"], tokens["output_reasoning"]
    if not type(u) is type(r) is type(w5) is type(w1) is type(out) is type(reasoning) is int:
        return None
    if min(u, r, w5, w1, reasoning) < 0 or max(u, r, w5, w1, out) > MAX_TOKENS or reasoning > out:
        return None
    found = {
        "input_uncached": u, "input_cache_read": r, "input_cache_write_5m": w5, "input_cache_write_1h": w1,
        "output": out, "output_reasoning": reasoning,
    }  # fmt: skip
    return f"{u},{r},{w5},{w1},{out},{reasoning}", found, u + r + w5 + w1


def _times(started: str, first: str | None, finished: str) -> tuple[datetime, datetime | None, datetime, int, int, int] | None:
    """Started, first token, finished (UTC), duration and the two log times in ms; None when not in good order."""
    a, b = datetime.fromisoformat(started), datetime.fromisoformat(finished)
    if a.tzinfo is not UTC or b.tzinfo is not UTC or not EARLIEST <= a <= b < LATEST:
        return None
    finished_ms = (b - EPOCH) // MS
    started_ms = (a - EPOCH) // MS
    if (b - a).total_seconds() > HOUR_MS // 1000:
        return None
    if first is None:
        return a, None, b, finished_ms - started_ms, finished_ms, finished_ms
    c = datetime.fromisoformat(first)
    if c.tzinfo is not UTC or not a <= c <= b:
        return None
    return a, c, b, finished_ms - started_ms, (c - EPOCH) // MS, finished_ms

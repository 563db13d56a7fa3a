"""What a tenant's token may report: its own tenant's usage and nobody else's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from core.errors import BadRecord
from core.identity_codec import identity_of
from core.scopes import Scope
from ingest.usage.rows import BadRow, ParsedRow, Prepared


def own_only(rows: Iterable[ParsedRow], own: Scope | None) -> Iterable[ParsedRow]:
    """A tenant's token reports for its own tenant; what it says of another is quarantined, not believed, and so is a record that
    says rules of ours had mapped it from another. Without ``own`` all rows pass."""
    return rows if own is None else _judged(rows, own)


def _judged(rows: Iterable[ParsedRow], own: Scope) -> Iterator[ParsedRow]:
    for row in rows:
        if isinstance(row, Prepared):
            record = orjson.loads(row.record)
            tenant = record["tenant"]
            if "said" in identity_of(record):
                error = BadRecord("is ours to say", field="raw.identity.said")
                yield BadRow(row.position, error, {"request_id": row.request_id, "tenant": tenant}, row.request_id)
                continue
            path = tuple(tenant[key] for key in ("org", "team", "project", "user"))
            if path[: len(own.parts)] != own.parts:
                error = BadRecord(f"this token reports for {own} only", field="tenant", value="/".join(path).rstrip("/"))
                yield BadRow(row.position, error, {"request_id": row.request_id, "tenant": tenant}, row.request_id)
                continue
        yield row

"""What a tenant's token may report: its own tenant's usage and nobody else's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import orjson

from core.errors import BadRecord
from core.scopes import Scope
from ingest.usage.rows import BadRow, ParsedRow, Prepared


def own_only(rows: Iterable[ParsedRow], own: Scope) -> Iterator[ParsedRow]:
    """A tenant's token reports for its own tenant; what it says of another is quarantined, not believed."""
    for row in rows:
        if isinstance(row, Prepared):
            tenant = orjson.loads(row.record)["tenant"]
            path = tuple(tenant[key] for key in ("org", "team", "project", "user"))
            if path[: len(own.parts)] != own.parts:
                error = BadRecord(f"this token reports for {own} only", field="tenant", value="/".join(path).rstrip("/"))
                yield BadRow(row.position, error, {"request_id": row.request_id, "tenant": tenant}, row.request_id)
                continue
        yield row

"""What every usage adapter gives: valid records in the two forms the log takes, or a bad row with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import orjson

from core.errors import BadRecord
from core.texts import without_texts
from core.usage import Deployment, TenantPath, UsageRecord, encode_line, line_fields
from core.usage_codec import UNMAPPED, usage_values
from core.usage_objects import unmapped_fields


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the data itself does not say.

    ``tenant_column`` names a column whose value becomes the first part of the tenant path that ``tenant`` leaves empty.
    ``start_at`` is the instant of time 0 in traces with relative times. ``pools`` maps what a gateway calls an upstream (its
    deployment hash, ``host:port`` of its base URL, or model) to the deployment behind it; else the place of ``deployment`` holds.
    ``mapping`` is the YAML file that says where a log of format ``mapped`` keeps its fields.
    """

    deployment: Deployment | None = None
    tenant: TenantPath = field(default_factory=TenantPath)
    tenant_column: str = ""
    start_at: datetime | None = None
    pools: Mapping[str, Deployment] = field(default_factory=dict)
    mapping: Path | None = None


def pool_of(names: Iterable[str], options: SourceOptions) -> Deployment | None:
    """The declared pool that the first of some names of an upstream has."""
    return next((options.pools[name] for name in names if name and name in options.pools), None)


class Prepared(NamedTuple):
    """A valid record: its identity and times (ms since the epoch), its narrow line and its full record.
    ``unmapped`` names fields of the source no rule explains (they are kept in the record)."""

    position: int
    request_id: str
    first_ms: int
    finished_ms: int
    line: str
    record: bytes
    unmapped: tuple[str, ...] = ()


class BadRow(NamedTuple):
    """A row that is no record. ``body`` holds what may be kept of it: no texts."""

    position: int
    error: BadRecord
    body: dict[str, Any]
    request_id: str = ""


class ReadRow(NamedTuple):
    """A call that only read a stored answer back: the work was already metered with the call that made it."""

    position: int
    request_id: str
    reason: str


ParsedRow = Prepared | BadRow | ReadRow


class UsageAdapter(Protocol):
    """One source format. ``looks_like`` judges the head of a file; ``rows`` parses the whole."""

    def looks_like(self, head: bytes) -> bool: ...

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        """One row per record, in order. Raises BadInput when the options or the header leave nothing to be read."""
        ...


def prepare(record: UsageRecord, position: int = 0, unmapped: tuple[str, ...] | None = None) -> Prepared:
    """A record in the log's two forms. ``unmapped`` where the source's own table judged; else ``core.usage_objects`` does."""
    fields = line_fields(record)
    full = orjson.dumps(usage_values(record), option=orjson.OPT_UTC_Z)
    if unmapped is None:
        unmapped = unmapped_names(record.raw) if record.raw else ()
    return Prepared(position, record.request_id, int(fields[1]), int(fields[2]), encode_line(fields), full, unmapped)


def unmapped_names(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of what a record's ``raw`` holds that no rule explains."""
    unknown = raw.get(UNMAPPED)
    if not isinstance(unknown, dict):
        return unmapped_fields(raw)
    usage = {name: value for name, value in raw.items() if name != UNMAPPED}
    return (*unknown, *unmapped_fields(usage))


def bad_row(position: int, error: BadRecord, item: Any = None) -> BadRow:
    """A bad row; of an object its numbers and labels are kept, of anything else only what it is."""
    if isinstance(item, dict):
        name = item.get("request_id") or item.get("id")
        return BadRow(position, error, without_texts(item), name[:200] if isinstance(name, str) and name.isprintable() else "")
    size = len(item) if isinstance(item, (bytes, str, list)) else 0
    return BadRow(position, error, {"type": type(item).__name__, "size": size})

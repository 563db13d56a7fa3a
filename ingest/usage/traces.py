"""What public traces have in common: token counts at instants, no identity, no id.

Ids are the hash of format, deployment and content with its n-th occurrence, so that a second run of the same file adds nothing.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal, DecimalException
from hashlib import blake2b
from typing import BinaryIO

import orjson

from core.errors import BadInput, BadRecord
from core.tokens import MAX_TOKENS, TokenCounts
from core.usage import TenantPath, UsageRecord, encode_line, line_fields
from core.usage_codec import EARLIEST, LATEST, stamp
from core.windows import epoch_ms
from ingest.usage.reading import numbered_lines
from ingest.usage.rows import BadRow, Prepared, SourceOptions, bad_row, prepare

DEFAULT_START = datetime(2025, 1, 1, tzinfo=UTC)
"""Time 0 of traces with relative times when nobody says another: fixed, so that a second run gives the same records."""
_PARTS = ("org", "team", "project", "user", "key_id")
_COUNTS = b'"tokens":{"input_uncached":'
LONGEST_TRACE_S = 366 * 86_400


class TraceRows:
    """Builds records of one trace: everything but id, time and two counts is the same for a tenant, so it is made once."""

    def __init__(self, trace: str, options: SourceOptions) -> None:
        if options.deployment is None:
            hint = "pass --deployment CLUSTER/NAMESPACE/MODEL"
            raise BadInput(f"a {trace} trace does not say which model served it", field="deployment", hint=hint)
        self.trace, self.options, self.deployment = trace, options, options.deployment
        self._seen: Counter[bytes] = Counter()
        self._templates: dict[str, tuple[str, bytes, bytes]] = {}

    def request_id(self, content: bytes) -> str:
        """A stable id of a row: its content's hash and how often it came before."""
        digest = blake2b(f"{self.deployment}|".encode() + content, digest_size=16).digest()
        self._seen[digest] += 1
        return f"{self.trace}:{digest.hex()}:{self._seen[digest]}"

    def row(self, position: int, content: bytes, at: datetime, tokens_in: int, tokens_out: int, column: str = "") -> Prepared:
        """One request at one instant. Raises BadRecord naming what is wrong with it."""
        if not (0 <= tokens_in <= MAX_TOKENS and 0 <= tokens_out <= MAX_TOKENS and EARLIEST <= at < LATEST):
            return self.strict(position, content, at, tokens_in, tokens_out, column)
        names, middle, tail = self._templates.get(column) or self._template(column)
        request_id, ms, shown = self.request_id(content), epoch_ms(at), stamp(at)
        line = f"{request_id},{ms},{ms},{names},{tokens_in},0,0,0,{tokens_out},0,0,0,1,1"
        head = f'{{"schema":"usage/1","request_id":"{request_id}","started_at":"{shown}","finished_at":"{shown}",'
        record = b"%b%b%d%b%d%b" % (head.encode(), middle, tokens_in, _ZEROS, tokens_out, tail)
        return Prepared(position, request_id, ms, ms, line, record)

    def strict(self, position: int, content: bytes, at: datetime, tokens_in: int, tokens_out: int, column: str) -> Prepared:
        """The same through every check of a usage record."""
        if not EARLIEST <= at < LATEST:
            raise BadRecord("is outside the years 2000 to 2099", field="time", value=at.isoformat())
        tokens, tenant = TokenCounts(input_uncached=tokens_in, output=tokens_out), self.tenant(column)
        return prepare(UsageRecord(self.request_id(content), at, at, self.deployment, tenant, tokens), position)

    def tenant(self, column: str) -> TenantPath:
        """The tenant given, with ``column`` (the tenant column's value) as its first part that is still empty."""
        tenant = self.options.tenant
        free = next((part for part in _PARTS if not getattr(tenant, part)), None)
        return replace(tenant, **{free: column}) if column and free else tenant

    def _template(self, column: str) -> tuple[str, bytes, bytes]:
        record = UsageRecord("x", DEFAULT_START, DEFAULT_START, self.deployment, self.tenant(column), TokenCounts())
        full = prepare(record).record
        before = full[full.index(b'"deployment"') : full.index(_COUNTS) + len(_COUNTS)]
        names = encode_line(line_fields(record)[3:15])
        self._templates[column] = names, before, full[full.rindex(b',"output_reasoning"') :]
        return self._templates[column]


_ZEROS = b',"input_cache_read":0,"input_cache_write_5m":0,"input_cache_write_1h":0,"output":'


def csv_rows(stream: BinaryIO, needed: tuple[str, ...], extra: str) -> Iterator[tuple[int, bytes, list[str]] | BadRow]:
    """(line number, line, the needed columns' values and that of ``extra`` when named) of a CSV with a header line.

    Raises BadInput naming the line and the column when the header lacks one.
    """
    lines = numbered_lines(stream)
    header = next(lines, None)
    if header is None:
        raise BadInput("the file is empty", field="file", hint="give a file with a header line and rows")
    if isinstance(header, BadRow):
        raise header.error
    names = header[1].decode("utf-8", "replace").split(",")
    wanted = (*needed, extra) if extra else needed
    for name in wanted:
        if name not in names:
            shown = ", ".join(names)[:200]
            raise BadInput("is not a column of the header", where="line 1", field=name, hint=f"the columns are: {shown}")
    places = [names.index(name) for name in wanted]
    for numbered in lines:
        yield numbered if isinstance(numbered, BadRow) else _csv_row(*numbered, names, places)


def _csv_row(number: int, line: bytes, names: list[str], places: list[int]) -> tuple[int, bytes, list[str]] | BadRow:
    try:
        text = line.decode()
        values = next(csv.reader([text])) if '"' in text else text.split(",")
    except (UnicodeDecodeError, csv.Error) as error:
        return bad_row(number, BadRecord(f"is not CSV text: {error}"[:100], field="line"), line)
    if len(values) != len(names):
        missing = names[len(values)] if len(values) < len(names) else "line"
        return bad_row(number, BadRecord(f"the row has {len(values)} columns, not {len(names)}", field=missing), line)
    return number, line, [values[place] for place in places]


def whole(text: str, field: str) -> int:
    """A plain decimal count of a CSV, or BadRecord."""
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise BadRecord("must be a whole number that is not negative", field=field, value=text)
    return int(text)


def seconds_after(text: str, field: str) -> timedelta:
    """Time since the start of a trace, to the microsecond. Raises BadRecord."""
    try:
        after = Decimal(text)
    except DecimalException as error:
        raise BadRecord("is not a number of seconds", field=field, value=text) from error
    if not after.is_finite() or not 0 <= after <= LONGEST_TRACE_S:
        raise BadRecord(f"must be 0 to {LONGEST_TRACE_S} seconds", field=field, value=text)
    return timedelta(microseconds=int(after * 1_000_000))


def label_bytes(value: object) -> bytes:
    """Canonical bytes of a JSON value, for hashing."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)

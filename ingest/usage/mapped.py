"""Logs read by a declared field mapping (``ingest.usage.mapping``): formats of known gateways, and ``mapped`` for any other.

JSON lines, a JSON array, or CSV with a header. Counts may be numbers or their decimal text. A call's id is its upstream response
id, else the gateway's own id, else the hash of its content with its n-th occurrence.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal, DecimalException
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from core.errors import BadInput, BadRecord
from core.identity_codec import IDENTITY
from core.texts import without_texts
from core.tokens import MAX_TOKENS, TokenCounts
from core.usage import MAX_DURATION, SERVICE_TIERS, Deployment, TenantPath, UsageRecord
from core.usage_objects import tokens_from_usage
from core.vendor_place import SELF_HOSTED
from ingest.usage.litellm_call import short_id
from ingest.usage.mapping import TENANT, FieldMap, at_path, check_paths, read_mapping
from ingest.usage.reading import Item, csv_texts, items_of_lines, numbered_lines
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions, bad_row, pool_of, prepare
from ingest.usage.traces import TraceRows, label_bytes

FIRST_RECORDS = 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
REFUSED_CODES = frozenset({401, 403, 429})
"""What a gateway answers without asking a model."""
TRUE_TEXTS = frozenset({"true", "1", "yes", "error", "failed"})


class Mapped:
    """One format by mapping: ours of that name (``mappings/NAME.yaml``) when ``marks`` tell the format, else the caller's
    (``SourceOptions.mapping``), whose paths are checked."""

    def __init__(self, name: str, marks: tuple[bytes, ...] = ()) -> None:
        self._name, self._marks = name, marks

    def looks_like(self, head: bytes) -> bool:
        return bool(self._marks) and all(mark in head for mark in self._marks)

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        mapping = builtin(self._name) if self._marks else _given(options)
        items = items_or_csv(stream)
        first = list(islice(items, FIRST_RECORDS))
        if not self._marks:
            check_paths(mapping, [_try_unpacked(mapping, item[1]) for item in first if not isinstance(item, BadRow)])
        ids = TraceRows(self._name, _with_place(options))
        for item in itertools.chain(first, items):
            yield item if isinstance(item, BadRow) else _row(*item, mapping, options, ids)


@cache
def builtin(name: str) -> FieldMap:
    """The mapping of that name that ships with us."""
    return read_mapping(Path(__file__).with_name("mappings") / f"{name}.yaml")


def items_or_csv(stream: BinaryIO) -> Iterator[Item | BadRow]:
    """JSON items, or CSV rows by header name (quoted fields may hold line breaks)."""
    lines = numbered_lines(stream)
    first = next(lines, None)
    if first is None or isinstance(first, BadRow):
        yield from [] if first is None else [first]
        return
    joined = itertools.chain([first], lines)
    if first[1].lstrip()[:1] in (b"{", b"["):
        yield from items_of_lines(joined, stream)
        return
    bad: list[BadRow] = []
    reader = csv.DictReader(csv_texts(joined, bad))
    for values in reader:
        if None in values or None in values.values():
            yield bad_row(reader.line_num, BadRecord("has not the header's number of columns", field="line"), None)
        else:
            yield reader.line_num, values
    yield from bad


def _given(options: SourceOptions) -> FieldMap:
    if options.mapping is None:
        raise BadInput("is required for this format", field="--mapping", hint="pass a YAML file; see docs/formats.md")
    return read_mapping(options.mapping)


def _try_unpacked(mapping: FieldMap, item: Any) -> Any:
    try:
        return mapping.unpacked(item)
    except BadRecord:
        return item


def _with_place(options: SourceOptions) -> SourceOptions:
    if options.deployment is not None:
        return options
    return SourceOptions(Deployment("default", "default", "-"), options.tenant)


def _row(position: int, item: Any, mapping: FieldMap, options: SourceOptions, ids: TraceRows) -> ParsedRow:
    try:
        if not isinstance(item, dict):
            raise BadRecord("must be a JSON object or a CSV row", field="record", value=type(item).__name__)
        return prepare(
            _Reader(mapping, mapping.unpacked(item), options).record(lambda: ids.request_id(label_bytes(item))), position
        )
    except BadRecord as error:
        return bad_row(position, error, item)


class _Reader:
    """One record of a log."""

    def __init__(self, mapping: FieldMap, item: Any, options: SourceOptions) -> None:
        self._map, self._item, self._options = mapping, item, options

    def record(self, content_id: Callable[[], str]) -> UsageRecord:
        started, first, finished = self._times()
        status, code = self._status()
        tokens, source = self._tokens(status)
        gateway_id = self._text("gateway_id")
        _, usage = self._map.found(self._item, "usage")
        tier, pool = self._text("service_tier"), self._pool()
        return UsageRecord(
            request_id=self._request_id(gateway_id, content_id),
            started_at=started,
            finished_at=finished,
            first_token_at=first,
            deployment=pool or self._deployment(),
            tenant=self._tenant(),
            tokens=tokens,
            usage_source=source,
            status=status,
            service_tier=tier if tier in SERVICE_TIERS else "P1",  # type: ignore[arg-type]
            requested_model=self._text("requested_model"),
            http_status=code,
            finish_reason=self._text("finish_reason"),
            stream=self._flag("stream"),
            trace_id=self._text("trace_id"),
            operation_id=short_id(gateway_id) if gateway_id else "",
            session_id=self._text("session_id"),
            provider=SELF_HOSTED if pool else self._text("provider") or SELF_HOSTED,
            raw={IDENTITY: self._map.identity(self._item), **(without_texts(usage) if isinstance(usage, dict) else {})},
        )

    def _request_id(self, gateway_id: str, content_id: Callable[[], str]) -> str:
        if response_id := self._text("response_id"):
            return f"{short_id(response_id)}:generation"
        return f"gateway:{short_id(gateway_id)}:1" if gateway_id else content_id()

    def _times(self) -> tuple[datetime, datetime | None, datetime]:
        begun, ended, lasted = self._instant("started_at"), self._instant("finished_at"), self._span("duration") or timedelta(0)
        known = begun or ended
        if known is None:
            paths = ", ".join((*self._map.fields.get("started_at", ()), *self._map.fields.get("finished_at", ())))
            raise BadRecord(f"no time at {paths or 'any path'}", field="started_at")
        started = begun or known - lasted
        finished = ended or known + lasted
        first, after = self._instant("first_token_at"), self._span("first_token_after")
        if first is None and after:
            first = started + after
        return started, first, finished

    def _instant(self, name: str) -> datetime | None:
        path, value = self._map.found(self._item, name)
        if value is None:
            return None
        unit = self._map.unit_us(name, path)
        if unit is not None:
            return EPOCH + timedelta(microseconds=int(_number(value, path) * unit))
        try:
            at = datetime.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise BadRecord("is not an ISO time", field=path, value=value, hint=f"or give `times.{name}` its unit") from error
        if at.tzinfo is None:
            if not self._map.naive_is_utc:
                raise BadRecord("time has no zone", field=path, value=value, hint="`naive_times_are: UTC` if it is UTC")
            at = at.replace(tzinfo=UTC)
        return at.astimezone(UTC)

    def _span(self, name: str) -> timedelta | None:
        path, value = self._map.found(self._item, name)
        if value is None:
            return None
        span = timedelta(microseconds=int(_number(value, path) * (self._map.unit_us(name, path) or 1)))
        if not timedelta(0) <= span <= MAX_DURATION:
            raise BadRecord("must be 0 s to 1 h", field=path, value=value, hint=f"check `times.{name}`")
        return span

    def _status(self) -> tuple[Any, int | None]:
        path, value = self._map.found(self._item, "http_status")
        code = None if value is None else int(_number(value, path))
        if self._flag("aborted") or code in (0, 499):
            return "aborted", code
        if code in REFUSED_CODES:
            return "refused", code
        return ("error" if self._flag("failed") or (code is not None and code >= 400) else "ok"), code

    def _tokens(self, status: str) -> tuple[TokenCounts, Any]:
        _, usage = self._map.found(self._item, "usage")
        if isinstance(usage, dict) and any(isinstance(value, int) for value in usage.values()):
            return tokens_from_usage(usage), "exact"
        whole, output = self._count("input"), self._count("output")
        if status == "refused" and not (whole or output):
            return TokenCounts(), "exact"
        if (whole is None and output is None) or (status == "error" and not (whole or output)):
            return TokenCounts(), "missing"
        if whole is None:
            raise BadRecord("is absent beside an output count", field=self._named("input"), hint="an unknown input is not zero")
        parts = {name: self._count(name) or 0 for name in ("cache_read", "cache_write_5m", "cache_write_1h")}
        reasoning = self._count("reasoning") or 0
        if not self._map.input_includes_cached:
            whole += sum(parts.values())
        total = (output or 0) + (0 if self._map.output_includes_reasoning else reasoning)
        return TokenCounts.from_inclusive(whole, total, reasoning=reasoning, **parts), "exact"

    def _count(self, name: str) -> int | None:
        path, value = self._map.found(self._item, name)
        if value is None:
            return None
        number = _number(value, path)
        if number != int(number) or not 0 <= number <= MAX_TOKENS:
            raise BadRecord(f"must be a whole number of 0 to {MAX_TOKENS}", field=path, value=value)
        return int(number)

    def _named(self, name: str) -> str:
        return next(iter(self._map.fields.get(name, ())), name)

    def _text(self, name: str) -> str:
        path, value = self._map.found(self._item, name)
        if value is None or isinstance(value, (dict, list)):
            if isinstance(value, list) and value and isinstance(value[0], str):
                return str(value[0])
            return ""
        text = str(value)
        if len(text) > 2000:
            raise BadRecord("is too long for a name", field=path, value=text)
        return text

    def _flag(self, name: str) -> bool | None:
        _, value = self._map.found(self._item, name)
        if value is None or isinstance(value, bool):
            return value
        return str(value).lower() in TRUE_TEXTS

    def _model(self) -> str:
        return self._text("model") or self._text("requested_model")

    def _pool(self) -> Deployment | None:
        """The declared pool of the backend or the model: engines of one's own, whatever the log calls their provider."""
        return pool_of((self._text("backend"), self._model()), self._options)

    def _deployment(self) -> Deployment:
        model, place = self._model(), self._options.deployment or Deployment("default", "default", "")
        return Deployment(
            self._text("cluster") or place.cluster, self._text("namespace") or place.namespace, model or place.model_id
        )

    def _tenant(self) -> TenantPath:
        given = self._options.tenant
        parts = [self._text(name) or getattr(given, name) for name in TENANT]
        column = at_path(self._item, self._options.tenant_column) if self._options.tenant_column else None
        if column not in (None, ""):
            free = next((place for place, part in enumerate(parts) if not part), None)
            if free is not None:
                parts[free] = str(column)
        return TenantPath(*parts)


def _number(value: Any, path: str) -> Decimal:
    """A JSON number or its decimal text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadRecord("must be a number", field=path, value=value)
    try:
        number = Decimal(str(value).strip())
    except DecimalException as error:
        raise BadRecord("is not a number", field=path, value=value) from error
    if not number.is_finite() or abs(number) > Decimal("1e18"):
        raise BadRecord("is not a finite number of ordinary size", field=path, value=value)
    return number

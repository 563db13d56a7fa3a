"""OTLP/JSON bodies -> spans, log records, points: hex ids, 64-bit numbers as numbers or strings, enums as numbers or names,
unknown fields passed over (OTLP specification, JSON encoding)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from core.errors import BadInput
from ingest.otlp.conventions import Scalar, conventions
from ingest.otlp.decode import ERROR, NO_RECORDED_VALUE, series_identity
from ingest.otlp.items import CUMULATIVE, DELTA, NO_LIMIT, LogRecord, Point, Span, check_count, is_read

KINDS = {
    "SPAN_KIND_UNSPECIFIED": 0, "SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2, "SPAN_KIND_CLIENT": 3, "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
}  # fmt: skip
STATUSES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": ERROR}
TEMPORALITIES = {
    "AGGREGATION_TEMPORALITY_UNSPECIFIED": 0, "AGGREGATION_TEMPORALITY_DELTA": DELTA,
    "AGGREGATION_TEMPORALITY_CUMULATIVE": CUMULATIVE,
}  # fmt: skip
_MAX_64 = 2**64
Object = Mapping[str, Any]


def spans_of(body: bytes | Object, most: int = NO_LIMIT) -> list[Span]:
    """Every span of an ExportTraceServiceRequest in JSON, as bytes or parsed. Raises BadInput naming the field that is wrong."""
    return [
        _span(one, resource, place) for resource, _, one, place in _walk(body, ("resourceSpans", "scopeSpans", "spans"), most)
    ]  # fmt: skip


def logs_of(body: bytes | Object, is_wanted: Callable[[str], bool] = is_read, most: int = NO_LIMIT) -> list[LogRecord]:
    """Every record of an ExportLogsServiceRequest in JSON, as bytes or parsed. Raises BadInput naming the field that is wrong."""
    return [
        LogRecord(
            _text(one, "eventName", place),
            _number(one, "timeUnixNano", place) or _number(one, "observedTimeUnixNano", place),
            _id(one, "traceId", place), _id(one, "spanId", place), _attributes(one, place, is_wanted), resource,
        )
        for resource, _, one, place in _walk(body, ("resourceLogs", "scopeLogs", "logRecords"), most)
    ]  # fmt: skip


def points_of(body: bytes, most: int = NO_LIMIT) -> tuple[list[Point], int]:
    """As ``decode.points_of``, of JSON."""
    found: list[Point] = []
    others = 0
    wanted = conventions().metrics
    for resource, whose, metric, place in _walk(body, ("resourceMetrics", "scopeMetrics", "metrics"), NO_LIMIT):
        name = _text(metric, "name", place)
        kind = next((key for key in ("sum", "histogram", "exponentialHistogram", "gauge", "summary") if key in metric), "")
        data = _object(metric, kind, place) if kind else {}
        points = _list(data, "dataPoints", f"{place}.{kind}")
        if name in wanted:
            check_count(len(found) + len(points), most)
            found += [_point(name, kind, data, point, at, resource, whose) for point, at in points]
        else:
            others += len(points)
    return found, others


def _walk(body: bytes | Object, names: tuple[str, str, str], most: int) -> Iterator[tuple[dict[str, Scalar], bytes, Object, str]]:
    """(resource attributes, whose they are, item, its place) of every item."""
    try:
        document = orjson.loads(body) if isinstance(body, bytes) else body
    except orjson.JSONDecodeError as error:
        raise BadInput(f"is not JSON ({error})", field="body", hint="nothing of it was taken") from error
    if not isinstance(document, dict):
        raise BadInput("must be a JSON object", field="body")
    seen = 0
    for block, where in _list(document, names[0], ""):
        given = _object(block, "resource", where)
        resource, whose = _attributes(given, f"{where}.resource"), _pairs(given)
        for scope, place in _list(block, names[1], where):
            scope_name = _text(_object(scope, "scope", place), "name", place)
            items = _list(scope, names[2], place)
            seen += len(items)
            check_count(seen, most)
            for item, at in items:
                yield resource, whose + scope_name.encode("utf-8", "replace"), item, at


def _span(one: Object, resource: dict[str, Scalar], place: str) -> Span:
    return Span(
        _id(one, "traceId", place), _id(one, "spanId", place), _id(one, "parentSpanId", place), _enum(one, "kind", KINDS, place),
        _number(one, "startTimeUnixNano", place), _number(one, "endTimeUnixNano", place),
        _enum(_object(one, "status", place), "code", STATUSES, place) == ERROR, _attributes(one, place),
        _first_token(one, place), resource,
    )  # fmt: skip


def _first_token(one: Object, place: str) -> int:
    wanted = conventions().first_token_events
    times = (_number(event, "timeUnixNano", at) for event, at in _list(one, "events", place) if event.get("name") in wanted)
    return next(times, 0)


def _point(
    name: str, kind: str, data: Object, point: Object, place: str, resource: dict[str, Scalar], whose: bytes
) -> Point:  # fmt: skip
    fault = "" if kind in ("histogram", "exponentialHistogram", "sum") else "is no counter or histogram"
    if kind == "sum" and data.get("isMonotonic") is not True:
        fault = "is not monotonic"
    is_gap = bool(_number(point, "flags", place) & NO_RECORDED_VALUE)
    value = None if fault or is_gap else _value(kind, point, place)
    return Point(
        name, _enum(data, "aggregationTemporality", TEMPORALITIES, place), _number(point, "startTimeUnixNano", place),
        _number(point, "timeUnixNano", place), value, _attributes(point, place),
        series_identity(whose, name.encode("utf-8", "replace"), _pairs(point)), resource,
        fault or ("" if value is not None or is_gap else "has no sum"),
    )  # fmt: skip


def _value(kind: str, point: Object, place: str) -> int | float | None:
    if kind == "sum" and point.get("asInt") is not None:
        return _number(point, "asInt", place, signed=True)
    value = point.get("asDouble" if kind == "sum" else "sum")
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise BadInput("is not a number", field=f"{place}.sum", value=str(value)[:40]) from error


def _attributes(owner: Object, place: str, is_wanted: Callable[[str], bool] = is_read) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for pair, at in _list(owner, "attributes", place):
        key = pair.get("key")
        if isinstance(key, str) and is_wanted(key):
            value = _scalar(_object(pair, "value", at), at)
            if value is not None:
                found[key] = value
    return found


def _scalar(value: Object, place: str) -> Scalar | None:
    if isinstance(text := value.get("stringValue"), str):
        return text
    if value.get("intValue") is not None:
        return _number(value, "intValue", place, signed=True)
    number, flag = value.get("doubleValue"), value.get("boolValue")
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return float(number)
    if isinstance(flag, bool):
        return flag
    if "arrayValue" in value:
        inner = _list(_object(value, "arrayValue", place), "values", place)
        return _scalar(*inner[0]) if inner and "arrayValue" not in inner[0][0] else None
    return None


def _list(owner: Object, name: str, place: str) -> list[tuple[Object, str]]:
    """The objects of a list with their places; an absent or null list is empty."""
    given = owner.get(name)
    if given is None:
        return []
    where = f"{place}.{name}" if place else name
    if not isinstance(given, list):
        raise BadInput("must be a list", field=where)
    for number, item in enumerate(given):
        if not isinstance(item, dict):
            raise BadInput("must be an object", field=f"{where}[{number}]")
    return [(item, f"{where}[{number}]") for number, item in enumerate(given)]


def _object(owner: Object, name: str, place: str) -> Object:
    given = owner.get(name)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadInput("must be an object", field=f"{place}.{name}")
    return given


def _text(owner: Object, name: str, place: str) -> str:
    given = owner.get(name)
    if given is None:
        return ""
    if not isinstance(given, str):
        raise BadInput("must be a string", field=f"{place}.{name}")
    return given


def _id(owner: Object, name: str, place: str) -> str:
    text = _text(owner, name, place)
    try:
        return bytes.fromhex(text).hex()
    except ValueError as error:
        raise BadInput("must be hexadecimal", field=f"{place}.{name}", hint="OTLP/JSON ids are hex, not base64") from error


def _number(owner: Object, name: str, place: str, *, signed: bool = False) -> int:
    """A 64-bit number, as number or digits; 0 when absent."""
    given = owner.get(name)
    if given is None:
        return 0
    try:
        value = int(given) if isinstance(given, (int, str)) and not isinstance(given, bool) else None
    except ValueError:
        value = None
    if value is None or not (-_MAX_64 // 2 if signed else 0) <= value < _MAX_64:
        raise BadInput("must be a 64-bit whole number", field=f"{place}.{name}", value=str(given)[:40])
    return value


def _enum(owner: Object, name: str, names: Mapping[str, int], place: str) -> int:
    given = owner.get(name)
    if isinstance(given, str) and given in names:
        return names[given]
    return _number(owner, name, place)


def _pairs(owner: Object) -> bytes:
    given = owner.get("attributes")
    items = given if isinstance(given, list) else []
    return b"\0".join(sorted(orjson.dumps(pair, option=orjson.OPT_SORT_KEYS) for pair in items))

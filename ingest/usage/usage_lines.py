"""NDJSON lines of ``usage/1`` that are plainly ordinary, read by shape instead of by parser.

A sender writes every line alike: the same keys in the same order. A shape met a few times becomes one pattern. Its literals are
the keys; its groups are what is the record's own (id, times, counts: only forms the strict decoder takes) and the texts between,
which repeat over many records and are put to the strict decoder once each. A line that fits wholly is thus valid JSON with
exactly those values (no key twice, no float, no escape) and gives the strict way's line and record to the byte. Every other line
goes the strict way, which alone decides what is bad.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import orjson

from core.errors import BadRecord
from core.texts import without_texts
from core.tokens import TOKEN_FIELDS
from core.usage import MAX_ID, SCHEMA, UsageRecord, encode_line, line_fields, operation_end
from core.usage_codec import decode_usage, usage_object
from core.windows import epoch_ms
from ingest.usage.rows import Prepared, unmapped_names

HOUR_MS = 3_600_000
LEARN_AFTER = 8
"""A shape met this often in lines that took the strict way is worth a pattern."""
SHAPES_KEPT, SHAPES_WATCHED, VALUES_KEPT = 8, 1_000, 50_000

_INSTANT = r'"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3}(?:\d{3})?)?)(?:Z|\+00:00)"'
_LABEL = rf'(?:null|"([^"\\\x00-\x1f]{{0,{MAX_ID}}}+)")'
_MAIN = {
    "request_id": rf'"([^"\\,\x00-\x1f]{{1,{MAX_ID}}}+)"', "started_at": _INSTANT, "first_token_at": f"(?:null|{_INSTANT})",
    "finished_at": _INSTANT,
}  # fmt: skip
_LATER = {
    "trace_id": _LABEL, "operation_id": _LABEL, "session_id": _LABEL, "queue_ms": r"(null|0|[1-9]\d{0,6})",
    "raw": r"(\{[^{}\\]*+(?:\{[^{}\\]*+\}[^{}\\]*+)*+\})",
}  # fmt: skip
_OWN = _MAIN | _LATER
_COUNT = r"(0|[1-9]\d{0,7})"
_IDENTITY = frozenset({"deployment", "tenant"})
_BEFORE = (
    "usage_source", "status", "service_tier", "requested_model", "engine", "policy", "http_status", "finish_reason", "stream",
    "n", "attempt",
)  # fmt: skip
_AFTER = ("ends_operation", "tools", "provider")
"""Fields that repeat: before and after trace and session in the canonical record."""
_REPEATED = frozenset({*_BEFORE, *_AFTER})
_VALUE = r'(?:"[^"\\]*+"|\{[^{}\\]*+\}|\[[^][{}\\]*+\]|[\w.+-]++)'
_KEYS = frozenset({"schema", "tokens", *_OWN, *_IDENTITY, *_REPEATED})
_REQUIRED = frozenset({"request_id", "started_at", "finished_at", "deployment", "tokens"})
_SAMPLE = {
    "request_id": "x", "started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:00Z",
    "deployment": {"model_id": "m"}, "tokens": {"output": 1},
}  # fmt: skip
_K = TypeVar("_K")
_V = TypeVar("_V")


class Shape(NamedTuple):
    """How a sender writes its lines: keys in order, those of ``tokens`` in order, and whether a space follows ``,`` and ``:``."""

    keys: tuple[str, ...]
    tokens: tuple[str, ...]
    is_spaced: bool


class _Pattern(NamedTuple):
    """Numbers of the groups wanted; what the shape lacks has the number of an empty group."""

    regex: re.Pattern[str]
    main: tuple[int, ...]
    identity: tuple[int, ...]
    repeated: tuple[int, ...]
    later: tuple[int, ...]
    """Empty when the shape has none of them."""


class _Repeated(NamedTuple):
    columns: str
    """service_tier, status and usage_source of the line."""
    before: str
    after: str
    n: int
    end: int


class UsageShapes:
    """The shapes senders were seen to use, and the repeating texts found valid. Shared by all threads that read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[Shape] = Counter()
        self.patterns: dict[Shape, _Pattern] = {}
        self.identities: dict[str | tuple[str, ...], tuple[str, str]] = {}
        self.repeated: dict[str | tuple[str, ...], _Repeated] = {}
        self.seconds: dict[str, int] = {}

    def learn(self, shape: Shape) -> None:
        """Count a line of that shape; it gets a pattern when it was met often, and the oldest pattern gives way."""
        with self._lock:
            if len(self._seen) >= SHAPES_WATCHED:
                self._seen.clear()
            self._seen[shape] += 1
            if self._seen[shape] >= LEARN_AFTER and shape not in self.patterns:
                newest = list(self.patterns.items())[1 - SHAPES_KEPT :]
                self.patterns = dict([*newest, (shape, _compiled(shape))])
                del self._seen[shape]


class UsageLines:
    """Reads the lines of one body."""

    def __init__(self, shapes: UsageShapes) -> None:
        self._shapes, self._known = shapes, shapes.patterns
        self._patterns = list(self._known.values())

    def row(self, position: int, line: bytes) -> Prepared | None:
        """The record if the line is of a known shape and in good order, else None (the strict way decides)."""
        try:
            text = line.decode()
            for place, pattern in enumerate(self._patterns):
                if found := pattern.regex.fullmatch(text):
                    if place:
                        self._patterns.insert(place - 1, self._patterns.pop(place))
                    return self._prepared(position, pattern, found)
        except (ValueError, BadRecord):
            return None
        return None

    def learn(self, line: bytes, item: dict[str, Any]) -> None:
        """Take note of how a valid line is written that ``row`` did not take."""
        tokens = item.get("tokens")
        if isinstance(tokens, dict) and item.keys() <= _KEYS and item.keys() >= _REQUIRED:
            self._shapes.learn(Shape(tuple(item), tuple(tokens), b'": ' in line))
        if self._known is not self._shapes.patterns:
            self._known = self._shapes.patterns
            self._patterns = list(self._known.values())

    def _prepared(self, position: int, pattern: _Pattern, found: re.Match[str]) -> Prepared | None:
        shapes, group = self._shapes, found.group
        request_id, started, first, finished, u, r, w5, w1, out, reasoning = group(*pattern.main)
        u, r, w5, w1, out, reasoning = u or "0", r or "0", w5 or "0", w1 or "0", out or "0", reasoning or "0"
        key = group(*pattern.identity)
        names, identity = shapes.identities.get(key) or _kept(shapes.identities, key, _identity(key))
        key = group(*pattern.repeated)
        columns, before, after, n, end = shapes.repeated.get(key) or _kept(shapes.repeated, key, _repeated(key))
        started, started_ms = self._instant(started)
        finished, finished_ms = self._instant(finished)
        first_ms, stamps = finished_ms, f'{started}Z"'
        if first:
            first, first_ms = self._instant(first)
            stamps = f'{started}Z","first_token_at":"{first}Z"'
        took_ms = finished_ms - started_ms
        if not (started <= (first or started) <= finished and took_ms < HOUR_MS and request_id.isprintable()):
            return None
        if reasoning != "0" and int(reasoning) > int(out):
            return None
        unmapped: tuple[str, ...] = ()
        if pattern.later:
            after, unmapped = _later(after, *group(*pattern.later))
        repeated_input = (n - 1) * (int(u) + int(r) + int(w5) + int(w1)) if n > 1 else 0
        line = (
            f"{request_id},{first_ms},{finished_ms},{names},{columns},0,{u},{r},{w5},{w1},{out},{reasoning},"
            f"{took_ms},{repeated_input},{end},1"
        )
        record = (
            f'{{"schema":"{SCHEMA}","request_id":"{request_id}","started_at":"{stamps},"finished_at":"{finished}Z",{identity},'
            f'"tokens":{{"input_uncached":{u},"input_cache_read":{r},"input_cache_write_5m":{w5},"input_cache_write_1h":{w1},'
            f'"output":{out},"output_reasoning":{reasoning}}}{before}{after}}}'
        )
        return Prepared(position, request_id, first_ms, finished_ms, line, record.encode(), unmapped)

    def _instant(self, text: str) -> tuple[str, int]:
        """The stamp in canonical form without its zone (so that stamps compare as texts) and its whole ms since the epoch."""
        seconds, second = self._shapes.seconds, text[:19]
        ms = seconds.get(second) or _kept(seconds, second, epoch_ms(datetime.fromisoformat(f"{second}Z")))
        fraction = text[20:]
        if not fraction.strip("0"):
            return second, ms
        return (text if len(fraction) == 6 else f"{text}000"), ms + int(fraction[:3])


def _kept(values: dict[_K, _V], key: _K, value: _V) -> _V:
    if len(values) >= VALUES_KEPT:
        values.clear()
    values[key] = value
    return value


def _identity(texts: str | tuple[str, ...]) -> tuple[str, str]:
    """The line's name columns and the record's ``deployment`` and ``tenant``."""
    record = _checked(texts, _IDENTITY)
    return encode_line(line_fields(record)[3:11]), _members(record, ("deployment", "tenant"))[1:]


def _repeated(texts: str | tuple[str, ...]) -> _Repeated:
    record = _checked(texts, _REPEATED)
    end = operation_end(record.ends_operation, record.status)
    return _Repeated(encode_line(line_fields(record)[11:14]), _members(record, _BEFORE), _members(record, _AFTER), record.n, end)


def _checked(texts: str | tuple[str, ...], keys: frozenset[str]) -> UsageRecord:
    """A sample record with those members, by the strict decoder. Raises BadRecord or ValueError."""
    members = texts if isinstance(texts, str) else ",".join(filter(None, texts))
    found = orjson.loads(f"{{{members}}}")
    if not found.keys() <= keys:
        raise ValueError("another key lies hidden in the text")
    return decode_usage(_SAMPLE | found)


def _members(record: UsageRecord, names: Iterable[str]) -> str:
    found = usage_object(record)
    return "".join([f',"{name}":{orjson.dumps(found[name]).decode()}' for name in names if name in found])


def _later(
    after: str, trace_id: str | None, operation_id: str | None, session_id: str | None, queue_ms: str | None, raw: str
) -> tuple[str, tuple[str, ...]]:
    """The end of the record from its trace on, and the unmapped names of its ``raw``."""
    text = ""
    for name, label in (("trace_id", trace_id), ("operation_id", operation_id), ("session_id", session_id)):
        if label:
            if not label.isprintable():
                raise ValueError(name)
            text += f',"{name}":"{label}"'
    text += after
    if queue_ms and queue_ms != "null":
        text += f',"queue_ms":{queue_ms}'
    kept = without_texts(orjson.loads(raw)) if raw else {}
    return (f'{text},"raw":{orjson.dumps(kept).decode()}', unmapped_names(kept)) if kept else (text, ())


def _compiled(shape: Shape) -> _Pattern:
    names: list[str] = []
    text = _object(shape, names)
    nothing = len(names) + 1

    def numbers(wanted: Iterable[str]) -> tuple[int, ...]:
        return tuple(names.index(name) + 1 if name in names else nothing for name in wanted)

    def runs(kind: str) -> tuple[int, ...]:
        return tuple(number for number, name in enumerate(names, 1) if name == kind) or (nothing,)

    later = () if _LATER.keys().isdisjoint(shape.keys) else numbers(_LATER)
    main = numbers((*_MAIN, *TOKEN_FIELDS))
    return _Pattern(re.compile(f"{text}()", re.ASCII), main, runs("identity"), runs("repeated"), later)


def _object(shape: Shape, names: list[str]) -> str:
    """The pattern of a whole line; the names of its groups are added to ``names``, neighbours that repeat share one."""
    comma, colon = (", ", ": ") if shape.is_spaced else (",", ":")
    parts: list[str] = []
    for kind, keys in groupby(shape.keys, _kind):
        if kind in ("identity", "repeated"):
            names.append(kind)
            members = [f'"{key}"{colon}{_VALUE}' for key in keys]
            parts.append(f"({comma.join(members)})")
        elif kind == "tokens":
            names += shape.tokens
            counts = comma.join([f'"{name}"{colon}{_COUNT}' for name in shape.tokens])
            parts.append(f'"tokens"{colon}' + r"\{" + counts + r"\}")
        elif kind == "schema":
            parts.append(f'"schema"{colon}"{SCHEMA}"')
        else:
            names.append(kind)
            parts.append(f'"{kind}"{colon}{_OWN[kind]}')
    return r"\{" + comma.join(parts) + r"\}"


def _kind(key: str) -> str:
    return "identity" if key in _IDENTITY else "repeated" if key in _REPEATED else key

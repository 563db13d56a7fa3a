"""NDJSON lines of ``usage/1`` that are plainly ordinary, read by shape instead of by parser.

A sender writes every line alike: the same keys in the same order. A shape seen a few times becomes one pattern whose literals are
those keys and whose groups take only values the strict decoder takes. A line that fits it wholly is valid JSON with exactly those
values (so no key twice, no float, no escape), and is put together again as the canonical line and record; identities and other
values that repeat are checked once. Every line that does not fit goes the strict way, which alone decides what is bad.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import orjson

from core.texts import without_texts
from core.tokens import TOKEN_FIELDS
from core.usage import MAX_ID, MAX_NAME, SCHEMA, SERVICE_TIERS, STATUSES, USAGE_SOURCES
from core.usage_codec import DEPLOYMENT_KEYS, TENANT_KEYS
from core.windows import epoch_ms
from ingest.usage.rows import Prepared, unmapped_names

HOUR_MS = 3_600_000
LEARN_AFTER = 8
"""A shape met this often in lines that took the strict way is worth a pattern."""
SHAPES_KEPT = 8
_SHAPES_WATCHED = 1_000
_VALUES_KEPT = 50_000
_INSTANT = r'"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3}(?:\d{3})?)?)(?:Z|\+00:00)"'
_OBJECT = r"(\{[^{}\\]*+(?:\{[^{}\\]*+\}[^{}\\]*+)*+\})"
_COUNT = r"(0|[1-9]\d{0,7})"


def _text(limit: int) -> str:
    return rf'(?:null|"([^"\\\x00-\x1f]{{0,{limit}}}+)")'


_SOURCES = tuple(source for source in USAGE_SOURCES if source != "missing")
_MAIN = {
    "request_id": rf'"([^"\\,\x00-\x1f]{{1,{MAX_ID}}}+)"', "started_at": _INSTANT, "first_token_at": f"(?:null|{_INSTANT})",
    "finished_at": _INSTANT, "deployment": _OBJECT, "tenant": _OBJECT, "usage_source": f'"({"|".join(_SOURCES)})"',
    "status": f'"({"|".join(STATUSES)})"', "service_tier": f'"({"|".join(SERVICE_TIERS)})"',
}  # fmt: skip
_EXTRAS: tuple[tuple[str, str, str], ...] = (
    ("requested_model", _text(MAX_NAME), ""), ("engine", _text(MAX_NAME), ""), ("http_status", r"(null|0|[1-9]\d{0,2})", "null"),
    ("finish_reason", _text(MAX_NAME), ""), ("stream", "(null|true|false)", "null"), ("n", r"(null|[1-9]\d{0,2})", "1"),
    ("attempt", r"(null|[1-9]\d{0,2})", "1"), ("trace_id", _text(MAX_ID), ""), ("session_id", _text(MAX_ID), ""),
    ("queue_ms", r"(null|0|[1-9]\d{0,6})", "null"), ("raw", _OBJECT, ""),
)  # fmt: skip
"""Name, pattern and default of the fields that may be left out, in the order of the canonical record."""
_QUOTED = frozenset({"requested_model", "engine", "finish_reason", "trace_id", "session_id"})
_PATTERNS = _MAIN | {name: pattern for name, pattern, _ in _EXTRAS}
_REQUIRED = frozenset({"request_id", "started_at", "finished_at", "deployment", "tokens"})
_KEYS = _PATTERNS.keys() | {"schema", "tokens"}
_ORDER = (
    "request_id", "started_at", "first_token_at", "finished_at", "usage_source", "status", "service_tier", *TOKEN_FIELDS,
    "deployment", "tenant",
)  # fmt: skip
_OWN = len(_ORDER) + [name for name, _, _ in _EXTRAS].index("trace_id")
"""From here on an extra is the record's own; those before repeat over many records."""
_N = [name for name, _, _ in _EXTRAS].index("n")
Groups = tuple[str | None, ...]
_K = TypeVar("_K")
_V = TypeVar("_V")


class Shape(NamedTuple):
    """How a sender writes its lines: keys in order, those of ``tokens`` in order, and whether a space follows ``,`` and ``:``."""

    keys: tuple[str, ...]
    tokens: tuple[str, ...]
    is_spaced: bool


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    order: tuple[int, ...]
    """Group numbers of ``_ORDER`` and the extras; a field the shape lacks has the last, empty group."""


class UsageShapes:
    """The shapes senders were seen to use, and the values already found valid. Shared by all threads that read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: Counter[Shape] = Counter()
        self.patterns: dict[Shape, _Pattern] = {}
        self.identities: dict[Groups, tuple[str, str]] = {}
        self.extras: dict[Groups, tuple[str, int]] = {}
        self.seconds: dict[str, int] = {}

    def learn(self, shape: Shape) -> None:
        with self._lock:
            if len(self._seen) >= _SHAPES_WATCHED:
                self._seen.clear()
            self._seen[shape] += 1
            if self._seen[shape] < LEARN_AFTER or shape in self.patterns:
                return
            oldest = list(self.patterns.items())[-(SHAPES_KEPT - 1) :]
            self.patterns = dict([*oldest, (shape, _compiled(shape))])
            self._seen.clear()


class UsageLines:
    """Reads the lines of one body."""

    def __init__(self, shapes: UsageShapes) -> None:
        self._shapes = shapes
        self._patterns = list(shapes.patterns.values())

    def row(self, position: int, line: bytes) -> Prepared | None:
        """The record if the line is of a known shape and in good order, else None (the strict way decides)."""
        try:
            text = line.decode()
            for place, (regex, order) in enumerate(self._patterns):
                if found := regex.fullmatch(text):
                    if place:
                        self._patterns.insert(place - 1, self._patterns.pop(place))
                    return self._prepared(position, found.group(*order))
        except ValueError:
            return None
        return None

    def learn(self, line: bytes, item: dict[str, Any]) -> None:
        """Take note of how a valid line is written that ``row`` did not know."""
        tokens = item.get("tokens")
        if isinstance(tokens, dict) and item.keys() <= _KEYS and item.keys() >= _REQUIRED:
            self._shapes.learn(Shape(tuple(item), tuple(tokens), b'": ' in line))
            if len(self._patterns) < len(self._shapes.patterns):
                self._patterns = list(self._shapes.patterns.values())

    def _prepared(self, position: int, groups: Groups) -> Prepared | None:
        request_id, started, first, finished, source, status, tier, u, r, w5, w1, out, reasoning = groups[:13]
        if not (request_id and started and finished):
            return None
        u, r, w5, w1, out, reasoning = u or "0", r or "0", w5 or "0", w1 or "0", out or "0", reasoning or "0"
        source, status, tier = source or "exact", status or "ok", tier or "P1"
        names, identity = self._identity(groups[13:15])
        extras, n = self._extras(groups[15:_OWN])
        unmapped: tuple[str, ...] = ()
        if any(groups[_OWN:]):
            more, unmapped = _own_extras(groups[_OWN:])
            extras += more
        begun, begun_ms = self._instant(started)
        ended, ended_ms = self._instant(finished)
        first_ms, stamps = ended_ms, f'"started_at":"{begun}Z"'
        if first:
            first, first_ms = self._instant(first)
            stamps = f'{stamps},"first_token_at":"{first}Z"'
        took_ms = ended_ms - begun_ms
        if not (begun <= (first or begun) <= ended and took_ms < HOUR_MS and request_id.isprintable()):
            return None
        if reasoning != "0" and int(reasoning) > int(out):
            return None
        repeated = (n - 1) * (int(u) + int(r) + int(w5) + int(w1)) if n > 1 else 0
        line = (
            f"{request_id},{first_ms},{ended_ms},{names},{tier},{status},{source},0,{u},{r},{w5},{w1},{out},{reasoning},"
            f"{took_ms},{repeated},1"
        )
        record = (
            f'{{"schema":"{SCHEMA}","request_id":"{request_id}",{stamps},"finished_at":"{ended}Z",{identity},'
            f'"tokens":{{"input_uncached":{u},"input_cache_read":{r},"input_cache_write_5m":{w5},"input_cache_write_1h":{w1},'
            f'"output":{out},"output_reasoning":{reasoning}}},"usage_source":"{source}","status":"{status}",'
            f'"service_tier":"{tier}"{extras}}}'
        )
        return Prepared(position, request_id, first_ms, ended_ms, line, record.encode(), unmapped)

    def _instant(self, text: str) -> tuple[str, int]:
        """The stamp in canonical form without its zone (so stamps compare as texts), and its whole ms. ValueError for no time."""
        seconds, second = self._shapes.seconds, text[:19]
        ms = seconds.get(second)
        if ms is None:
            ms = _kept(seconds, second, epoch_ms(datetime.fromisoformat(second + "+00:00")))
        fraction = text[20:]
        if not fraction:
            return text, ms
        if fraction in ("000", "000000"):
            return second, ms
        return (text if len(fraction) == 6 else text + "000"), ms + int(fraction[:3])

    def _identity(self, groups: Groups) -> tuple[str, str]:
        """The line's name columns and the record's ``deployment`` and ``tenant``. ValueError when they are not in good order."""
        found = self._shapes.identities.get(groups)
        return found or _kept(self._shapes.identities, groups, _identity(groups[0] or "", groups[1] or "{}"))

    def _extras(self, groups: Groups) -> tuple[str, int]:
        """What the record says of them after its service tier, and ``n``."""
        found = self._shapes.extras.get(groups)
        return found or _kept(self._shapes.extras, groups, _extras(groups))


def _kept(values: dict[_K, _V], key: _K, value: _V) -> _V:
    if len(values) >= _VALUES_KEPT:
        values.clear()
    values[key] = value
    return value


def _identity(deployment: str, tenant: str) -> tuple[str, str]:
    places, parts = _names(deployment, DEPLOYMENT_KEYS), _names(tenant, TENANT_KEYS)
    if not places["model_id"]:
        raise ValueError("no model")
    columns = ",".join([*places.values(), *parts.values()])
    return columns, f'"deployment":{orjson.dumps(places).decode()},"tenant":{orjson.dumps(parts).decode()}'


def _names(text: str, keys: tuple[str, ...]) -> dict[str, str]:
    found = orjson.loads(text)
    names = {key: found.pop(key, "") for key in keys}
    if found or not all(type(name) is str and len(name) <= MAX_NAME and _is_plain(name) for name in names.values()):
        raise ValueError("not plain names")
    return names


def _is_plain(name: str) -> bool:
    return name.isprintable() and '"' not in name and "\\" not in name and "," not in name


def _extras(groups: Groups) -> tuple[str, int]:
    text = "".join([_extra(*field, value) for field, value in zip(_EXTRAS, groups, strict=False)])
    n = groups[_N]
    return text, int(n) if n and n != "null" else 1


def _own_extras(groups: Groups) -> tuple[str, tuple[str, ...]]:
    *labels, raw = groups
    text = "".join([_extra(*field, value) for field, value in zip(_EXTRAS[-len(groups) :], labels, strict=False)])
    kept = without_texts(orjson.loads(raw)) if raw else {}
    if not kept:
        return text, ()
    return f'{text},"raw":{orjson.dumps(kept).decode()}', unmapped_names(kept)


def _extra(name: str, _: str, default: str, value: str | None) -> str:
    if not value:
        return ""
    if name in _QUOTED:
        if not value.isprintable():
            raise ValueError(name)
        return f',"{name}":"{value}"'
    return "" if value in (default, "null") else f',"{name}":{value}'


def _compiled(shape: Shape) -> _Pattern:
    comma, colon = (", ", ": ") if shape.is_spaced else (",", ":")
    found: list[str] = []
    parts = [f'"{name}"{colon}{_field(name, shape.tokens, comma, colon, found)}' for name in shape.keys]
    groups = {name: number for number, name in enumerate(found, 1)}
    wanted = (*_ORDER, *(name for name, _, _ in _EXTRAS))
    order = tuple(groups.get(name, len(found) + 1) for name in wanted)
    return _Pattern(re.compile(f"\\{{{comma.join(parts)}\\}}()", re.ASCII), order)


def _field(name: str, tokens: tuple[str, ...], comma: str, colon: str, found: list[str]) -> str:
    """The pattern of one field's value; the names of its groups are added to ``found``."""
    if name == "schema":
        return f'"{SCHEMA}"'
    if name == "tokens":
        found += tokens
        counts = (f'"{token}"{colon}{_COUNT}' for token in tokens)
        return r"\{" + comma.join(counts) + r"\}"
    found.append(name)
    return _PATTERNS[name]

"""Declared field mappings: where a foreign log keeps each field, as a YAML file (ours for known gateways, or a person's own).

``fields`` names for each canonical field one path or several (the first that holds a value counts). A path is keys joined by
dots; a key that holds dots itself is found too; ``*`` takes any key, a number an element of a list; `` @ms`` after a path is its
own unit. ``times`` gives each time's unit, ``input_includes_cached`` and ``output_includes_reasoning`` say what the counts hold,
``json_in`` which values are JSON in a string,
``labels`` names likewise what identity rules see beside the fields (``key_alias``, ``tags``, ``header.NAME``, ``metadata.NAME``),
``constants`` what every record has, ``empty`` which texts mean "nothing".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import orjson
import yaml

from core.errors import BadInput, BadRecord
from core.identity_codec import identity_facts

UNITS: Mapping[str, int | None] = {"iso": None, "s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds of one unit; an ISO time needs none."""
TIMES = ("started_at", "finished_at", "first_token_at")
SPANS = ("duration", "first_token_after")
COUNTS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "reasoning")
TENANT = ("org", "team", "project", "user", "key_id")
NAMES = (
    "response_id", "gateway_id", "trace_id", "session_id", "model", "requested_model", "backend", "cluster", "namespace",
    "finish_reason", "service_tier", "provider",
)  # fmt: skip
FIELDS = frozenset({*TIMES, *SPANS, *COUNTS, *TENANT, *NAMES, "usage", "http_status", "failed", "aborted", "stream"})
KEYS = frozenset(
    {
        "fields", "times", "json_in", "constants", "empty", "input_includes_cached", "output_includes_reasoning",
        "naive_times_are", "labels",
    }
)  # fmt: skip
LABELS = ("key_alias", "tags", "header.NAME", "metadata.NAME")
"""What a mapping may hand to identity rules beside the fields."""


@dataclass(frozen=True, slots=True)
class FieldMap:
    """A checked mapping. ``units`` are those of times and spans; ``source`` names the file in messages."""

    source: str
    fields: Mapping[str, tuple[str, ...]]
    units: Mapping[str, str]
    json_in: tuple[str, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    empty: frozenset[str] = frozenset({"", "-"})
    input_includes_cached: bool = True
    output_includes_reasoning: bool = True
    naive_is_utc: bool = False
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def unit_us(self, name: str, path: str) -> int | None:
        """Microseconds of the unit of a time or span found at ``path``; None: an ISO time."""
        _, at, own = path.partition(" @")
        return UNITS[own if at else self.units.get(name, "iso")]

    def found(self, item: Any, name: str) -> tuple[str, Any]:
        """The first path of a field that holds a value, and the value; ("", None) when none does."""
        for path in self.fields.get(name, ()):
            value = at_path(item, path.partition(" @")[0])
            if value is not None and not (isinstance(value, str) and value in self.empty):
                return path, value
        return "", self.constants.get(name)

    def identity(self, item: Any) -> dict[str, Any]:
        """The record's facts for identity rules; the gateway is called as the mapping's file."""
        said = {name: self._label(item, name) for name in self.labels}
        tags = said.get("tags")
        return identity_facts(
            key_alias=str(said.get("key_alias") or ""),
            gateway=PurePath(self.source).stem,
            tags=tags if isinstance(tags, list) else [tag.strip() for tag in str(tags or "").split(",")],
            headers={name.removeprefix("header."): value for name, value in said.items() if name.startswith("header.")},
            metadata={name.removeprefix("metadata."): value for name, value in said.items() if name.startswith("metadata.")},
        )

    def _label(self, item: Any, name: str) -> Any:
        found = (value for path in self.labels[name] if (value := at_path(item, path)) is not None)
        return next((value for value in found if not (isinstance(value, str) and value in self.empty)), None)

    def unpacked(self, item: Any) -> Any:
        """The item with its JSON-in-a-string values read."""
        for name in self.json_in:
            if isinstance(item, dict) and isinstance(item.get(name), str):
                try:
                    item = item | {name: orjson.loads(item[name])}
                except orjson.JSONDecodeError as error:
                    raise BadRecord("is not JSON in a string", field=name) from error
        return item


def read_mapping(path: Path) -> FieldMap:
    """A mapping file. Raises BadInput naming file, key and what to do."""
    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput("the mapping cannot be read", where=str(path), field="--mapping", hint="give a YAML file") from error
    except yaml.YAMLError as error:
        raise BadInput(f"is not YAML: {' '.join(str(error).split())[:120]}", where=str(path), field="--mapping") from error
    return check_mapping(body, path.name)


def check_mapping(body: Any, source: str) -> FieldMap:
    """A mapping's YAML value. Raises BadInput."""
    if not isinstance(body, dict) or not isinstance(body.get("fields"), dict):
        raise BadInput("must be a mapping with `fields`", where=source, hint="see docs/formats.md")
    for key in body.keys() - KEYS:
        raise BadInput("is not a key of a mapping", where=source, field=str(key), hint=f"use {', '.join(sorted(KEYS))}")
    for key in {*body["fields"], *body.get("constants", {})} - FIELDS:
        raise BadInput("is not a field of usage", where=source, field=str(key), hint=f"use {', '.join(sorted(FIELDS))}")
    labels = body.get("labels") or {}
    for key in labels if isinstance(labels, dict) else ("labels",):
        if key not in LABELS[:2] and not str(key).startswith(("header.", "metadata.")):
            raise BadInput("is not a label", where=source, field=f"labels.{key}", hint=f"use {', '.join(LABELS)}")
    fields = {name: _paths(value, source, name) for name, value in body["fields"].items()}
    return FieldMap(
        source=source,
        fields=fields,
        units=_units(body.get("times", {}), fields, source),
        json_in=tuple(body.get("json_in", ())),
        constants={name: str(value) for name, value in body.get("constants", {}).items()},
        empty=frozenset(map(str, body["empty"])) if "empty" in body else frozenset({"", "-"}),
        input_includes_cached=_flag(body, "input_includes_cached", source),
        output_includes_reasoning=_flag(body, "output_includes_reasoning", source),
        naive_is_utc=body.get("naive_times_are") == "UTC",
        labels={str(name): _paths(value, source, str(name)) for name, value in labels.items()},
    )


def at_path(item: Any, path: str) -> Any:
    """The value at a dotted path, None when there is none."""
    if not path:
        return item
    if isinstance(item, dict):
        if path in item:
            return item[path]
        return next((found for key, rest in _steps(item, path) if (found := at_path(item[key], rest)) is not None), None)
    if isinstance(item, list):
        head, _, rest = path.partition(".")
        return at_path(item[int(head)], rest) if head.isdecimal() and int(head) < len(item) else None
    return None


def _steps(item: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Keys of the object the path may begin with (the longest first), with the rest of the path."""
    parts = path.split(".")
    if parts[0] == "*":
        yield from ((key, ".".join(parts[1:])) for key in item)
    for length in range(len(parts) - 1, 0, -1):
        if (key := ".".join(parts[:length])) in item:
            yield key, ".".join(parts[length:])


def check_paths(mapping: FieldMap, items: Sequence[Any]) -> None:
    """Raises BadInput naming a field whose path is in none of a log's first records: it is misspelt, not merely empty."""
    for name, paths in mapping.fields.items():
        if items and not any(at_path(item, path.partition(" @")[0]) is not None for item in items for path in paths):
            raise BadInput(
                f"no record among the first {len(items)} has this path",
                where=mapping.source,
                field=f"fields.{name}",
                value=", ".join(paths),
                hint="correct the path, or take the field out of the mapping",
            )


def _paths(value: Any, source: str, name: str) -> tuple[str, ...]:
    paths = value if isinstance(value, list) else [value]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise BadInput("must be a path or a list of paths", where=source, field=f"fields.{name}", value=value)
    for path in paths:
        _, at, unit = path.partition(" @")
        if at and unit not in UNITS:
            raise BadInput("has an unknown unit", where=source, field=f"fields.{name}", value=path, hint="use iso, s, ms or us")
    return tuple(paths)


def _units(times: Any, fields: Mapping[str, Any], source: str) -> dict[str, str]:
    units = {name: "iso" for name in TIMES} | (times if isinstance(times, dict) else {})
    for name in (*TIMES, *SPANS):
        unit, plain = units.get(name), [path for path in fields.get(name, ()) if " @" not in path]
        if plain and (unit not in UNITS or (name in SPANS and unit == "iso")):
            raise BadInput("needs a unit", where=source, field=f"times.{name}", value=unit, hint="use iso, s, ms or us")
    return units


def _flag(body: Mapping[str, Any], name: str, source: str) -> bool:
    value = body.get(name, True)
    if not isinstance(value, bool):
        raise BadInput("must be true or false", where=source, field=name, value=value)
    return value

"""The table of telemetry names (``conventions.yaml``), read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import yaml

from core.errors import BadInput
from core.texts import MAX_ITEMS, is_kept_name
from core.vendor_place import OWN_PROVIDERS

Role = Literal["counted", "tool", "other"]
USAGE = ("input", "output", "cache_read", "cache_write", "reasoning")
FIELDS = (
    "response_id", "request_model", "response_model", "provider", "server_address", "server_port", "session", "finish_reason",
    "stream", "n", "http_status", "error_type", "resent", "queue_s", "first_token_s", "first_token_ms", "duration_s", "tool_name",
    "service_tier", "cluster", "namespace", "org", "team", "project", "user", "key_id", "service",
)  # fmt: skip
TOKEN_TYPES = ("input", "output", "cached_input", "cache_creation_input", "reasoning")
WHOLES = ("input", "output")
"""Only these may be added up; the other types are parts of them."""
BY_ATTRIBUTE = "by_attribute"
Scalar = str | int | float | bool
Attributes = Mapping[str, Scalar]
Names = tuple[str, ...]
Shapes = dict[Names, "Shape"]
MOST_SHAPES = 4_096
"""Sets of attribute names remembered; a sender that invents more costs time, not memory."""
Facts = Mapping[str, Scalar]
"""Canonical field -> its value."""


class Shape(NamedTuple):
    """What attributes of these names can tell, whatever their values: a sender's spans have few shapes, so this is found once."""

    fields: tuple[tuple[str, Names], ...]
    """Field -> its attributes that are there, best first."""
    usage: Mapping[str, Names]
    numbers: Names
    """Those under ``usage_prefixes``."""
    unmapped: frozenset[str]
    """Those of ``numbers`` that no rule explains."""
    is_plain: bool
    """Whether the names of ``numbers`` are all such as a record keeps."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One attribute that tells what a span is: ``counted`` values are one call of a model, ``tool`` values run a tool."""

    attribute: str
    counted: frozenset[str]
    tool: frozenset[str]


@dataclass(frozen=True)
class Conventions:
    """``usage`` and ``fields``: canonical name -> attributes, best first. ``metrics``: metric name -> token type."""

    version: int
    operations: tuple[Operation, ...]
    kinds_without_operation: frozenset[int]
    input_only: frozenset[str]
    usage: Mapping[str, Names]
    usage_prefixes: Names
    usage_explained: frozenset[str]
    fields: Mapping[str, Names]
    identity: Names
    inherited: Names
    first_token_events: frozenset[str]
    streaming_operations: frozenset[str]
    aborted_error_types: frozenset[str]
    self_hosted: frozenset[str]
    vendor_hosts: Names
    metrics: Mapping[str, str]
    token_type_attributes: Names
    token_types: Mapping[str, str]
    token_types_of_sums: frozenset[str]
    inference_events: frozenset[str]
    event_name_attribute: str

    @cached_property
    def explained(self) -> frozenset[str]:
        """Every usage number some rule accounts for."""
        return self.usage_explained | {name for names in self.usage.values() for name in names}

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Every attribute the table reads; no other is ever looked at, so no text is."""
        named = [*self.usage.values(), *self.fields.values(), self.token_type_attributes]
        single = [operation.attribute for operation in self.operations] + [self.event_name_attribute]
        return (
            frozenset(name for names in named for name in names)
            | frozenset(single)
            | self.usage_explained
            | frozenset(self.identity)
        )

    def role(self, attributes: Attributes, kind: int) -> tuple[Role, str]:
        """What a span is, and the value that told it ('' when none did)."""
        for operation in self.operations:
            value = attributes.get(operation.attribute)
            if isinstance(value, str) and value:
                if value in operation.counted:
                    return "counted", value
                return ("tool" if value in operation.tool else "other"), value
        is_call = kind in self.kinds_without_operation and self.has_usage(attributes) and bool(model_of(self.read(attributes)))
        return ("counted" if is_call else "other"), ""

    def has_usage(self, attributes: Attributes) -> bool:
        return not self._wholes.isdisjoint(attributes)

    @cached_property
    def _wholes(self) -> frozenset[str]:
        return frozenset((*self.usage["input"], *self.usage["output"]))

    @cached_property
    def _shapes(self) -> Shapes:
        return {}

    def shape(self, attributes: Attributes) -> Shape:
        """What these attributes can tell by their names."""
        names = tuple(attributes)
        found = self._shapes.get(names)
        if found is None:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            found = self._shapes[names] = self._shape_of(frozenset(names), names)
        return found

    def _shape_of(self, there: frozenset[str], names: Names) -> Shape:
        numbers = tuple(name for name in names if name.startswith(self.usage_prefixes))
        return Shape(
            tuple((field, told) for field, known in self.fields.items() if (told := _present(known, there))),
            {kind: _present(known, there) for kind, known in self.usage.items()},
            numbers,
            frozenset(numbers) - self.explained,
            len(numbers) < MAX_ITEMS and all(is_kept_name(name) for name in numbers),
        )

    def read(self, attributes: Attributes) -> Facts:
        """Every field the attributes tell, each by its most preferred attribute that is not ''."""
        found: dict[str, Scalar] = {}
        for field, names in self.shape(attributes).fields:
            for name in names:
                value = attributes[name]
                if value != "":
                    found[field] = value
                    break
        return found

    def first(self, attributes: Attributes, field: str) -> Scalar | None:
        """The value of the first attribute of ``field`` that is present and not ''."""
        for name in self.fields[field]:
            value = attributes.get(name)
            if value is not None and value != "":
                return value
        return None


def _present(names: Names, there: frozenset[str]) -> Names:
    return tuple(name for name in names if name in there)


def model_of(facts: Facts) -> Scalar | None:
    """The model that answered, else the one asked for."""
    return facts.get("response_model", facts.get("request_model"))


@cache
def conventions() -> Conventions:
    """The table of this package. Raises BadInput naming the entry that is wrong."""
    return parse(files("ingest.otlp").joinpath("conventions.yaml").read_text())


def parse(text: str) -> Conventions:
    """A table from YAML text. Raises BadInput."""
    raw = yaml.safe_load(text)
    usage = _names(raw, "usage", USAGE)
    fields = _names(raw, "fields", FIELDS)
    metrics = {entry["name"]: entry["type"] for entry in raw["metrics"]}
    token_types = dict(raw["token_types"])
    for name, kind in [*metrics.items(), *token_types.items()]:
        if kind not in (*TOKEN_TYPES, BY_ATTRIBUTE):
            raise BadInput(f"must be one of {', '.join(TOKEN_TYPES)}", where="conventions.yaml", field=str(name), value=kind)
    return Conventions(
        version=raw["version"],
        operations=tuple(_operation(entry) for entry in raw["operations"]),
        kinds_without_operation=frozenset(raw["span_kinds_without_operation"]),
        input_only=frozenset(raw["input_only"]),
        usage=usage,
        usage_prefixes=tuple(raw["usage_prefixes"]),
        usage_explained=frozenset(raw["usage_explained"]),
        fields=fields,
        identity=tuple(raw["identity"]),
        inherited=tuple(name for field in raw["inherited"] for name in fields[field]),
        first_token_events=frozenset(raw["first_token_events"]),
        streaming_operations=frozenset(raw["streaming_operations"]),
        aborted_error_types=frozenset(raw["aborted_error_types"]),
        self_hosted=OWN_PROVIDERS | frozenset(raw["self_hosted"]),
        vendor_hosts=tuple(f".{host}" for host in raw["vendor_hosts"]),
        metrics=metrics,
        token_type_attributes=tuple(raw["token_type_attributes"]),
        token_types=token_types,
        token_types_of_sums=frozenset(raw["token_types_of_sums"]),
        inference_events=frozenset(raw["events"]["inference"]),
        event_name_attribute=raw["events"]["name_attribute"],
    )


def _operation(entry: Mapping[str, Any]) -> Operation:
    return Operation(entry["attribute"], frozenset(entry["counted"]), frozenset(entry.get("tool", ())))


def _names(raw: Mapping[str, Any], section: str, wanted: Names) -> dict[str, Names]:
    given = raw[section]
    for name in {*given} ^ {*wanted}:
        raise BadInput("is unknown or missing", where="conventions.yaml", field=f"{section}.{name}")
    return {name: tuple(given[name]) for name in wanted}

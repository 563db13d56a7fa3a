"""The version table of exposed metric names (``names.yaml``), read once and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from core.engine import COUNTERS, GAUGES
from core.errors import BadInput

SUFFIXES = ("_total", "_count", "_sum", "_bucket", "_created")


@dataclass(frozen=True, slots=True)
class Source:
    """One exposed series that can tell a canonical number."""

    series: str
    most: float
    scale: int = 1
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)
    info: tuple[str, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(name) in allowed for name, allowed in self.where.items())


@dataclass(frozen=True, slots=True)
class NameTable:
    """Canonical name -> its sources, best first; series names are without their prefix."""

    version: int
    prefixes: tuple[str, ...]
    model_label: str
    engine_label: str
    replica_label: str
    process_start: str
    created: tuple[str, ...]
    info_series: str
    counters: Mapping[str, tuple[Source, ...]]
    gauges: Mapping[str, tuple[Source, ...]]
    unused: tuple[str, ...]
    read: frozenset[str]
    """Every series some source or stamp reads."""

    def bare(self, exposed: str) -> str | None:
        """The name without its engine prefix, None for a name of something else on the page."""
        return next((exposed.removeprefix(p) for p in self.prefixes if exposed.startswith(p)), None)

    def is_wanted(self, exposed: str) -> bool:
        """Whether the series is to be looked at: the table reads it, or an engine exposes it and the table does not know it."""
        bare = self.bare(exposed)
        if bare is None:
            return exposed == self.process_start
        return bare in self.read or not self.is_known(bare)

    def is_known(self, bare: str) -> bool:
        """Whether the family is read or deliberately left."""
        family = bare
        if bare in self.read:
            return True
        for suffix in SUFFIXES:
            family = family.removesuffix(suffix)
        names = {bare, family}
        if any(name + suffix in self.read for name in names for suffix in SUFFIXES):
            return True
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.unused)


@cache
def name_table() -> NameTable:
    """The table that ships."""
    return parse_names(files("ingest.engine").joinpath("names.yaml").read_text("utf-8"))


def parse_names(text: str) -> NameTable:
    """Raises BadInput for a canonical name that does not exist or a table that lacks a part."""
    try:
        body: dict[str, Any] = yaml.safe_load(text)
        counters = _sources(body, COUNTERS, "counters")
        gauges = _sources(body, GAUGES, "gauges")
        created = tuple(body["created"])
        series = {source.series for sources in (*counters.values(), *gauges.values()) for source in sources}
        return NameTable(
            version=int(body["version"]),
            prefixes=tuple(body["prefixes"]),
            model_label=body["model_label"],
            engine_label=body["engine_label"],
            replica_label=body["replica_label"],
            process_start=body["process_start"],
            created=created,
            info_series=body["info_series"],
            counters=counters,
            gauges=gauges,
            unused=tuple(body["unused"]),
            read=frozenset({*series, *created, body["info_series"]}),
        )
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise BadInput(f"not a name table: {error!r}", where="names.yaml") from error


def _sources(body: Mapping[str, Any], known: Sequence[str], part: str) -> dict[str, tuple[Source, ...]]:
    for name in body[part]:
        if name not in known:
            raise BadInput("is not a canonical name", where="names.yaml", field=f"{part}.{name}", hint=f"use {', '.join(known)}")
    most = float(body["most"])
    return {name: tuple(_source(row, most) for row in rows) for name, rows in body[part].items()}


def _source(row: Mapping[str, Any], most: float) -> Source:
    return Source(
        series=row["series"],
        most=float(row.get("most", most)),
        scale=int(row.get("scale", 1)),
        where={label: frozenset(values) for label, values in row.get("where", {}).items()},
        info=tuple(row.get("info", ())),
    )

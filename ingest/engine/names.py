"""The version table of exposed metric names (folder ``table``, see its README), read once and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from core.errors import BadInput

Kind = Literal["engine", "gpu", "gateway"]
KINDS: tuple[Kind, ...] = ("engine", "gpu", "gateway")
SUFFIXES = ("_total", "_count", "_sum", "_bucket", "_created")
PROCESS_START = "process_start_time_seconds"
CANONICAL = "canonical.yaml"


@dataclass(frozen=True, slots=True)
class Canonical:
    """A canonical name."""

    name: str
    unit: str
    type: Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class Source:
    """One exposed series that can tell a canonical number; see ``table/README.md`` for each field."""

    series: str
    most: float
    scale: int = 1
    per: int = 1
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)
    without: Mapping[str, frozenset[str]] = field(default_factory=dict)
    of: Literal["sum", "mean"] = "sum"
    plus: tuple[str, ...] = ()
    device: bool = False
    info: tuple[str, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether a series with these labels is one of the source's; an absent label is ''."""
        return all(labels.get(name, "") in allowed for name, allowed in self.where.items()) and not any(
            labels.get(name, "") in refused for name, refused in self.without.items()
        )


@dataclass(frozen=True, slots=True)
class Family:
    """One file of the table. Series names are without their prefix; canonical name -> its sources, best first."""

    name: str
    kind: Kind
    version: int
    prefixes: tuple[str, ...]
    labels: Mapping[str, tuple[str, ...]]
    """What a label tells (model, engine, gpu, mig, node, gpu_model) -> its names, first present wins."""
    replica: str
    copied_with: tuple[str, ...]
    page_wide: frozenset[str]
    """Series of the whole page, without a model or engine."""
    shared: tuple[str, ...]
    """Prefixes that others use too: under these only the names it knows are the family's."""
    whole: frozenset[str]
    """Values of the ``mig`` label that mean the whole GPU."""
    blanks: frozenset[float]
    created: tuple[str, ...]
    info_series: str
    counters: Mapping[str, tuple[Source, ...]]
    gauges: Mapping[str, tuple[Source, ...]]
    unused: tuple[str, ...]
    read: frozenset[str]
    """Every series some source or stamp reads."""

    def label(self, what: str, labels: Mapping[str, str]) -> str:
        """The first label present of those that tell ``what``, '' when there is none."""
        return next((value for name in self.labels.get(what, ()) if (value := labels.get(name))), "")

    def bare(self, exposed: str) -> str | None:
        """The name without its prefix, None for a name of something else."""
        return next((exposed.removeprefix(p) for p in self.prefixes if exposed.startswith(p)), None)

    def is_known(self, bare: str) -> bool:
        """Whether the series is read or deliberately left."""
        if bare in self.read:
            return True
        family = bare
        for suffix in SUFFIXES:
            family = family.removesuffix(suffix)
        names = {bare, family}
        if any(name + suffix in self.read for name in names for suffix in SUFFIXES):
            return True
        return any(fnmatchcase(name, pattern) for name in names for pattern in self.unused)


@dataclass(frozen=True)
class NameTable:
    """All families. Exposed names are looked up once each."""

    families: tuple[Family, ...]
    canonical: Mapping[Kind, Mapping[str, Canonical]]
    _found: dict[str, tuple[Family, str] | None] = field(default_factory=dict, repr=False, compare=False)

    process_start = PROCESS_START
    MOST_NAMES = 100_000
    """Names remembered; a page that invents more costs time, not memory."""

    def find(self, exposed: str) -> tuple[Family, str] | None:
        """The family that an exposed name belongs to and the name without prefix; None for something else.

        Families share prefixes: the one that knows the name has it, else the first.
        """
        if exposed not in self._found:
            if len(self._found) >= self.MOST_NAMES:
                self._found.clear()
            self._found[exposed] = self._look_up(exposed)
        return self._found[exposed]

    def is_wanted(self, exposed: str) -> bool:
        """Whether a scrape looks at the series: a family of engines or GPUs reads it, or has its prefix and does not know it."""
        found = self.find(exposed)
        if found is None:
            return exposed == self.process_start
        family, bare = found
        return family.kind != "gateway" and (bare in family.read or not family.is_known(bare))

    def version(self, kind: Kind) -> str:
        """Which files of a kind were in force: ``vllm.3 sglang.1 …``."""
        return " ".join(f"{family.name}.{family.version}" for family in self.families if family.kind == kind)

    def _look_up(self, exposed: str) -> tuple[Family, str] | None:
        fitting = [(family, bare) for family in self.families if (bare := family.bare(exposed)) is not None]
        known = next(((family, bare) for family, bare in fitting if family.is_known(bare)), None)
        return known or next(((family, bare) for family, bare in fitting if not exposed.startswith(family.shared)), None)


@cache
def name_table() -> NameTable:
    """The table that ships."""
    folder = files("ingest.engine").joinpath("table")
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".yaml")}
    return parse_table(texts)


def parse_table(texts: Mapping[str, str]) -> NameTable:
    """The table of files by name. Raises BadInput, naming file and field, for what is not a table or names nothing canonical."""
    if CANONICAL not in texts:
        raise BadInput("is missing", where=CANONICAL)
    canonical = _canonical(_loaded(CANONICAL, texts[CANONICAL]))
    families = tuple(_family(name, _loaded(name, text), canonical) for name, text in sorted(texts.items()) if name != CANONICAL)
    return NameTable(families, canonical)


def _loaded(name: str, text: str) -> dict[str, Any]:
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadInput(f"not a name table: {error}", where=name) from error
    if not isinstance(body, dict):
        raise BadInput("not a name table", where=name)
    return body


def _canonical(body: Mapping[str, Any]) -> dict[Kind, dict[str, Canonical]]:
    try:
        return {
            kind: {name: Canonical(name, facts["unit"], facts["type"]) for name, facts in body[kind].items()} for kind in KINDS
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"not a list of canonical names: {error!r}", where=CANONICAL) from error


def _family(file: str, body: Mapping[str, Any], canonical: Mapping[Kind, Mapping[str, Canonical]]) -> Family:
    try:
        known = canonical[body["kind"]]
        counters, gauges = (_sources(file, body, part, known) for part in ("counters", "gauges"))
        created, info_series = tuple(body.get("created", ())), body.get("info_series", "")
        sources = [source for rows in (*counters.values(), *gauges.values()) for source in rows]
        return Family(
            name=body["family"],
            kind=body["kind"],
            version=int(body["version"]),
            prefixes=tuple(body["prefixes"]),
            labels={what: tuple(body.get(what, ())) for what in ("model", "engine", "gpu", "mig", "node", "gpu_model")},
            replica=body.get("replica", ""),
            copied_with=tuple(body.get("copied_with", ())),
            page_wide=frozenset(body.get("page_wide", ())),
            shared=tuple(body.get("shared", ())),
            whole=frozenset(body.get("whole", ())),
            blanks=frozenset(float(value) for value in body.get("blanks", ())),
            created=created,
            info_series=info_series,
            counters=counters,
            gauges=gauges,
            unused=tuple(body["unused"]),
            read=frozenset({*(s for source in sources for s in (source.series, *source.plus)), *created, info_series} - {""}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"not a name table: {error!r}", where=file) from error


def _sources(file: str, body: Mapping[str, Any], part: str, known: Mapping[str, Canonical]) -> dict[str, tuple[Source, ...]]:
    for name in body[part]:
        if name not in known or known[name].type != part.removesuffix("s"):
            names = ", ".join(one.name for one in known.values() if one.type == part.removesuffix("s"))
            raise BadInput("is not a canonical name", where=file, field=f"{part}.{name}", hint=f"use {names}")
    most = float(body["most"])
    return {name: tuple(_source(file, row, most) for row in rows) for name, rows in body[part].items()}


def _source(file: str, row: Mapping[str, Any], most: float) -> Source:
    unknown = set(row) - set(Source.__dataclass_fields__)
    if unknown:
        raise BadInput(
            "is not a field of a source", where=file, field=f"{row['series']}.{min(unknown)}", hint="see table/README.md"
        )
    return Source(
        series=row["series"],
        most=float(row.get("most", most)),
        scale=int(row.get("scale", 1)),
        per=int(row.get("per", 1)),
        where=_allowed(row.get("where", {})),
        without=_allowed(row.get("without", {})),
        of=row.get("of", "sum"),
        plus=tuple(row.get("plus", ())),
        device=bool(row.get("device", False)),
        info=tuple(row.get("info", ())),
    )


def _allowed(labels: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    return {label: frozenset(values) for label, values in labels.items()}


def canonical_names(kind: Kind, type_: Literal["counter", "gauge"]) -> tuple[str, ...]:
    """The canonical names of a kind and type, in the order of ``canonical.yaml``."""
    return tuple(one.name for one in name_table().canonical[kind].values() if one.type == type_)

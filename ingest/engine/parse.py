"""One metrics page -> one sample per engine and model, and per GPU, in canonical names."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from prometheus_client.samples import Sample

from core.engine import EngineKey, EngineSample
from core.gpu import GpuSample
from core.ports import Page
from core.usage import Deployment
from ingest.engine.families import read_series
from ingest.engine.faults import Fault
from ingest.engine.gpus import gpu_samples
from ingest.engine.names import Family, NameTable, Source, name_table
from ingest.engine.origin import Origin, TargetKind
from ingest.engine.values import number, of_all

__all__ = ["Origin", "ParsedPage", "TargetKind", "parse_page"]

YEAR_2100 = datetime(2100, 1, 1, tzinfo=UTC)
FIRST = "0"
"""The engine of a page that numbers none."""
_OnFault = Callable[..., None]
_Key = tuple[str, str]
"""Engine label and model."""


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """``unmapped`` lists engine and GPU series the name table does not know (kept in the full record, by name)."""

    samples: tuple[EngineSample, ...]
    faults: tuple[Fault, ...] = ()
    unmapped: tuple[str, ...] = ()
    gpus: tuple[GpuSample, ...] = ()


@dataclass(slots=True)
class _Page:
    """A page's series, sorted out."""

    engines: dict[str, dict[_Key, dict[str, list[Sample]]]] = field(default_factory=lambda: defaultdict(_engines))
    """By family, engine and model."""
    loose: list[tuple[Family, str, Sample]] = field(default_factory=list)
    """Series of a model that do not say of which of its engines."""
    info: list[tuple[Family, Sample]] = field(default_factory=list)
    wide: list[tuple[Family, str, Sample]] = field(default_factory=list)
    """Series of the page as a whole."""
    gpus: list[tuple[Family, str, Sample]] = field(default_factory=list)
    families: dict[str, Family] = field(default_factory=dict)
    unmapped: set[str] = field(default_factory=set)
    nameless: set[str] = field(default_factory=set)
    copies: set[str] = field(default_factory=set)
    starts: list[Sample] = field(default_factory=list)


def _engines() -> dict[_Key, dict[str, list[Sample]]]:
    return defaultdict(lambda: defaultdict(list))


def parse_page(page: Page, origin: Origin, names: NameTable | None = None) -> ParsedPage:
    """Raises BadInput when the page as a whole cannot be read; single bad values become faults and are absent."""
    table = names or name_table()
    faults: list[Fault] = []

    def fault(kind: str, subject: str, **detail: object) -> None:
        faults.append(Fault(kind, page.target, page.at, subject, detail))  # type: ignore[arg-type]

    held = _sorted_out(read_series(page.body, page.content_type, page.target, table.is_wanted), table, origin)
    started = _stamp(held.starts, table.process_start, fault)
    samples = [sample for name in sorted(held.engines) for sample in _samples(page, origin, held, name, started, fault)]
    gpus = gpu_samples(page, origin, held.gpus, fault)
    _missing(held, origin, bool(samples), bool(gpus), fault)
    return ParsedPage(tuple(samples), tuple(faults), tuple(sorted(held.unmapped)), tuple(gpus))


def _sorted_out(series: Sequence[Sample], table: NameTable, origin: Origin) -> _Page:
    held = _Page()
    for sample in series:
        found = table.find(sample.name)
        if found is None:
            held.starts += [sample] if sample.name == table.process_start else []
            continue
        family, bare = found
        if any(label in sample.labels for label in family.copied_with):
            held.copies.add(sample.name)
        elif bare not in family.read:
            held.unmapped.add(sample.name)
        elif family.kind == "gpu":
            held.gpus.append((family, bare, sample))
        else:
            _place(held, family, bare, sample, origin)
    _place_loose(held)
    _place_wide(held)
    return held


def _place(held: _Page, family: Family, bare: str, sample: Sample, origin: Origin) -> None:
    held.families[family.name] = family
    if bare in family.page_wide:
        held.wide.append((family, bare, sample))
        return
    model = family.label("model", sample.labels) if family.labels["model"] else origin.model_id or ""
    if not model:
        if bare == family.info_series:
            held.info.append((family, sample))
        else:
            held.nameless.add(sample.name)
        return
    if family.labels["engine"] and not family.label("engine", sample.labels):
        held.loose.append((family, model, sample))
        return
    held.engines[family.name][_engine_label(family, sample.labels), model][bare].append(sample)


def _place_loose(held: _Page) -> None:
    """A series without an engine label is its model's first engine's (the only one, where engines are not numbered).

    ``cache_config_info`` has no model label, and no engine label before 0.9: it speaks of every engine it may mean.
    """
    numbered = {name: sorted(engines) for name, engines in held.engines.items()}
    for family, model, sample in held.loose:
        label = _engine_label(family, sample.labels)
        mine = [
            key
            for key in numbered.get(family.name, ())
            if key[1] == model and key[0].partition("@")[2] == label.partition("@")[2]
        ]
        bare = family.bare(sample.name) or ""
        held.engines[family.name][min(mine, key=_first) if mine else (label, model)][bare].append(sample)
    for family, sample in held.info:
        said = family.label("engine", sample.labels)
        for (label, _model), series in held.engines[family.name].items():
            if not said or _engine_label(family, sample.labels) == label:
                series[family.info_series].append(sample)


def _place_wide(held: _Page) -> None:
    """What belongs to the page's processes goes to the first of its engines; to none where it serves several models."""
    first = {name: min(keys, key=_first) for name, keys in held.engines.items() if len({model for _, model in keys}) == 1}
    for family, bare, sample in held.wide:
        if family.name in first:
            held.engines[family.name][first[family.name]][bare].append(sample)
        else:
            held.nameless.add(sample.name)


def _first(key: _Key) -> tuple[int, str]:
    return len(key[0]), key[0]


def _engine_label(family: Family, labels: Mapping[str, str]) -> str:
    engine, replica = family.label("engine", labels) or FIRST, labels.get(family.replica)
    return f"{engine}@{replica}" if replica else engine


def _missing(held: _Page, origin: Origin, has_engines: bool, has_gpus: bool, fault: _OnFault) -> None:
    """What the page should have held and did not."""
    if held.copies:
        hint = "a router repeats its engines' numbers here: scrape the engines themselves"
        fault("router_page", "", series=sorted(held.copies), hint=hint)
    if held.nameless:
        fault("no_model_label", "", series=sorted(held.nameless))
    if origin.kind == "gpu" and not has_gpus:
        fault("no_gpu_metrics", "", hint="the page shows no GPU this program knows: is it a DCGM or device-metrics exporter?")
    if origin.kind == "engine" and not has_engines and not has_gpus:
        fault("no_engine_metrics", "", hint="the page has no engine families: was vLLM started with --disable-log-stats?")


def _samples(page: Page, origin: Origin, held: _Page, name: str, started: datetime | None, fault: _OnFault) -> list[EngineSample]:
    engines, family = held.engines[name], held.families[name]
    models = {model for _, model in engines}
    rename = {m: origin.model_id for m in models if origin.model_id} if len(models) == 1 else {}
    return [
        _sample(page, origin, family, (label, rename.get(model) or model), series, started, fault)
        for (label, model), series in sorted(engines.items())
    ]


def _sample(
    page: Page,
    origin: Origin,
    family: Family,
    key: _Key,
    series: Mapping[str, Sequence[Sample]],
    started: datetime | None,
    fault: _OnFault,
) -> EngineSample:
    label, model_id = key

    def values(part: Mapping[str, Sequence[Source]]) -> dict[str, int]:
        known: dict[str, int] = {}
        for name, sources in part.items():
            value, problem = number(series, sources, family, of_all)
            if problem:
                fault("bad_value", f"{label}/{model_id}/{name}", engine=label, model_id=model_id, name=name, value=problem)
            if value is not None:
                known[name] = value
        return known

    created = next((series[name] for name in family.created if name in series), [])
    info = series.get(family.info_series, [])
    return EngineSample(
        key=EngineKey(page.target, label, model_id),
        at=page.at,
        deployment=Deployment(origin.cluster, origin.namespace, model_id),
        node=origin.node,
        process_started_at=started,
        created_at=_stamp(created, "created", fault),
        watched_since=origin.watched_since,
        interval_ms=origin.interval_ms,
        counters=values(family.counters),
        gauges=values(family.gauges),
        info=dict(info[0].labels) if info else {},
    )


def _stamp(rows: Sequence[Sample], name: str, fault: _OnFault) -> datetime | None:
    if not rows:
        return None
    value = rows[0].value
    if not (math.isfinite(value) and 0 < value < YEAR_2100.timestamp()):
        fault("bad_value", name, name=name, value=str(value))
        return None
    return datetime.fromtimestamp(value, UTC)

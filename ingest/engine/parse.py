"""One metrics page -> one engine sample per engine and model, in canonical names."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from prometheus_client.samples import Sample

from core.engine import EngineKey, EngineSample
from core.ports import Page
from core.usage import Deployment
from ingest.engine.families import read_series
from ingest.engine.faults import Fault
from ingest.engine.names import NameTable, Source, name_table

YEAR_2100 = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the page itself does not say. ``model_id`` renames the page's only model; ``interval_ms`` is the schedule."""

    cluster: str = ""
    namespace: str = ""
    node: str = ""
    model_id: str | None = None
    watched_since: datetime | None = None
    interval_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """``unmapped`` lists engine families the name table does not know (kept in the full record, by name)."""

    samples: tuple[EngineSample, ...]
    faults: tuple[Fault, ...] = ()
    unmapped: tuple[str, ...] = ()


@dataclass(slots=True)
class _Engine:
    """The series of one (engine, model) by name without prefix."""

    series: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))


def parse_page(page: Page, origin: Origin, names: NameTable | None = None) -> ParsedPage:
    """Raises BadInput when the page as a whole cannot be read; single bad values become faults and are absent."""
    table = names or name_table()
    series = read_series(page.body, page.content_type, page.target, table.is_wanted)
    faults: list[Fault] = []

    def fault(kind: str, subject: str, **detail: object) -> None:
        faults.append(Fault(kind, page.target, page.at, subject, detail))  # type: ignore[arg-type]

    engines, unmapped, nameless = _by_engine(series, table)
    if nameless:
        fault("no_model_label", "", series=sorted(nameless))
    if not engines:
        fault("no_engine_metrics", "", hint="the page has no vllm families: was the engine started with --disable-log-stats?")
    models = {model for _, model in engines}
    rename = {m: origin.model_id for m in models if origin.model_id} if len(models) == 1 else {}
    started = _stamp([s for s in series if s.name == table.process_start], table.process_start, fault)
    samples = [
        _sample(page, origin, table, (label, rename.get(model) or model), engine, started, fault)
        for (label, model), engine in sorted(engines.items())
    ]
    return ParsedPage(tuple(samples), tuple(faults), tuple(sorted(unmapped)))


_OnFault = Callable[..., None]


def _by_engine(series: Sequence[Sample], table: NameTable) -> tuple[dict[tuple[str, str], _Engine], set[str], set[str]]:
    engines: dict[tuple[str, str], _Engine] = defaultdict(_Engine)
    unmapped: set[str] = set()
    nameless: set[str] = set()
    for sample in series:
        bare = table.bare(sample.name)
        if bare is None:
            continue
        if bare not in table.read:
            unmapped.add(sample.name)
            continue
        model = sample.labels.get(table.model_label)
        if model:
            engines[_engine_label(sample.labels, table), model].series[bare].append(sample)
        elif bare != table.info_series:
            nameless.add(sample.name)
    _add_info(series, engines, table)
    return dict(engines), unmapped, nameless


def _add_info(series: Sequence[Sample], engines: Mapping[tuple[str, str], _Engine], table: NameTable) -> None:
    """``cache_config_info`` has no model label, and no engine label before 0.9: it speaks of every engine it may mean."""
    for sample in series:
        if table.bare(sample.name) != table.info_series or table.model_label in sample.labels:
            continue
        for (label, _model), engine in engines.items():
            if table.engine_label not in sample.labels or _engine_label(sample.labels, table) == label:
                engine.series[table.info_series].append(sample)


def _engine_label(labels: Mapping[str, str], table: NameTable) -> str:
    engine, replica = labels.get(table.engine_label, "0"), labels.get(table.replica_label)
    return f"{engine}@{replica}" if replica else engine


def _sample(
    page: Page, origin: Origin, table: NameTable, key: tuple[str, str], engine: _Engine, started: datetime | None, fault: _OnFault
) -> EngineSample:
    label, model_id = key

    def value(name: str, sources: Sequence[Source]) -> int | None:
        found, problem = _value(engine, sources)
        if problem:
            fault("bad_value", f"{label}/{model_id}/{name}", engine=label, model_id=model_id, name=name, value=problem)
        return found

    created = next((engine.series[name] for name in table.created if name in engine.series), [])
    info = engine.series.get(table.info_series, [])
    counters = {name: value(name, sources) for name, sources in table.counters.items()}
    gauges = {name: value(name, sources) for name, sources in table.gauges.items()}
    return EngineSample(
        key=EngineKey(page.target, label, model_id),
        at=page.at,
        deployment=Deployment(origin.cluster, origin.namespace, model_id),
        node=origin.node,
        process_started_at=started,
        created_at=_stamp(created, "created", fault),
        watched_since=origin.watched_since,
        interval_ms=origin.interval_ms,
        counters={name: v for name, v in counters.items() if v is not None},
        gauges={name: v for name, v in gauges.items() if v is not None},
        info=dict(info[0].labels) if info else {},
    )


def _value(engine: _Engine, sources: Sequence[Source]) -> tuple[int | None, str | None]:
    """The number, or None with what was there instead; (None, None) when no source is on the page."""
    for source in sources:
        if source.series not in engine.series:
            continue
        if source.info:
            product = _info_product(engine.series[source.series][0].labels, source.info)
            if product is None:
                continue
            return (product, None) if product <= source.most else (None, str(product))
        rows = [s for s in engine.series[source.series] if source.takes(s.labels)]
        if rows:
            return _total(rows, source)
    return None, None


def _total(rows: Sequence[Sample], source: Source) -> tuple[int | None, str | None]:
    if len({frozenset(row.labels.items()) for row in rows}) < len(rows):
        return None, f"{source.series} is on the page twice"
    total = 0
    for row in rows:
        if not 0 <= row.value <= source.most:
            return None, f"{row.value} is not within 0 to {source.most:g}"
        if source.scale == 1 and row.value != int(row.value):
            return None, f"{row.value} is not whole"
        total += round(row.value * source.scale)
    return total, None


def _info_product(labels: Mapping[str, str], wanted: Sequence[str]) -> int | None:
    """The product of whole positive label values; None when one is absent, "None" or 0 (not known yet at start)."""
    product = 1
    for name in wanted:
        text = labels.get(name, "")
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            return None
        product *= int(text)
    return product or None


def _stamp(rows: Sequence[Sample], name: str, fault: _OnFault) -> datetime | None:
    if not rows:
        return None
    value = rows[0].value
    if not (math.isfinite(value) and 0 < value < YEAR_2100.timestamp()):
        fault("bad_value", name, name=name, value=str(value))
        return None
    return datetime.fromtimestamp(value, UTC)

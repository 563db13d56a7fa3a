"""Any metrics page as a table of canonical names: what this program understands of an engine's, exporter's or gateway's page."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from prometheus_client.samples import Sample

from core.ports import Page
from ingest.engine.families import read_series
from ingest.engine.faults import Fault
from ingest.engine.names import Canonical, Family, Kind, NameTable, name_table
from ingest.engine.parse import Origin, parse_page
from ingest.engine.values import number, of_all


@dataclass(frozen=True, slots=True, order=True)
class PageValue:
    """``subject`` is engine/model, GPU/MIG instance, or a gateway's model."""

    kind: Kind
    subject: str
    name: str
    value: int
    unit: str
    type: str


@dataclass(frozen=True, slots=True)
class PageTable:
    """``unmapped`` are names of known families that their table does not know."""

    families: tuple[str, ...]
    values: tuple[PageValue, ...]
    faults: tuple[Fault, ...]
    unmapped: tuple[str, ...]


def page_table(page: Page, origin: Origin, names: NameTable | None = None) -> PageTable:
    """Raises BadInput when the page as a whole cannot be read."""
    table = names or name_table()
    parsed = parse_page(page, origin, table)
    series = read_series(page.body, page.content_type, page.target, lambda name: table.find(name) is not None)
    found = [(*known, sample) for sample in series if (known := table.find(sample.name)) is not None]
    gateways = [(family, bare, sample) for family, bare, sample in found if family.kind == "gateway"]
    values, faults = _gateway_values(gateways, table, page)
    for engine in parsed.samples:
        numbers = {**engine.counters, **engine.gauges}
        values += _values(table, "engine", f"{engine.key.engine}/{engine.key.model_id}", numbers)
    for gpu in parsed.gpus:
        values += _values(table, "gpu", gpu.key.engine, {**gpu.counters, **gpu.gauges})
    others = [fault for fault in parsed.faults if not (gateways and fault.kind == "no_engine_metrics")]
    strange = {sample.name for family, bare, sample in gateways if not family.is_known(bare)}
    families = sorted({family.name for family, _, _ in found})
    return PageTable(tuple(families), tuple(sorted(values)), (*others, *faults), tuple(sorted({*parsed.unmapped, *strange})))


def _gateway_values(found: list[tuple[Family, str, Sample]], table: NameTable, page: Page) -> tuple[list[PageValue], list[Fault]]:
    """Per gateway and model; a canonical name's series are added up over keys, teams and routes."""
    by_model: dict[tuple[str, str], dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    families = {family.name: family for family, _, _ in found}
    for family, bare, sample in found:
        if bare in family.read:
            by_model[family.name, family.label("model", sample.labels)][bare].append(sample)
    values: list[PageValue] = []
    faults: list[Fault] = []
    for (name, model), series in sorted(by_model.items()):
        family, numbers = families[name], {}
        for canonical, sources in {**family.counters, **family.gauges}.items():
            value, problem = number(series, sources, family, of_all)
            if value is not None:
                numbers[canonical] = value
            elif problem:
                faults.append(Fault("bad_value", page.target, page.at, f"{name}/{model}/{canonical}", {"value": problem}))
        values += _values(table, "gateway", model, numbers)
    return values, faults


def _values(table: NameTable, kind: Kind, subject: str, numbers: dict[str, int]) -> list[PageValue]:
    def one(canonical: Canonical, value: int) -> PageValue:
        return PageValue(kind, subject, canonical.name, value, canonical.unit, canonical.type)

    return [one(table.canonical[kind][name], value) for name, value in numbers.items()]

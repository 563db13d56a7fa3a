"""What one metrics page says of an engine: its counters since the start, its gauges, the labels of its cache settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core.engine import EngineSample
from core.errors import BadInput
from core.fleet_facts import Seen
from core.ports import Page
from ingest.engine.names import name_table
from ingest.engine.origin import Origin
from ingest.engine.page_table import page_table
from ingest.engine.parse import parse_page
from ingest.fleet.vllm import cache_config


@dataclass(frozen=True, slots=True)
class PageTold:
    """``cores``: engine cores on the page; ``numbers`` are sums over those that show them all. ``software`` is the family of the
    engine's names, '' where there is none; ``problem``: why the page is none."""

    where: str
    cores: int = 0
    software: str = ""
    models: tuple[str, ...] = ()
    has_start: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)
    seen: Mapping[str, Seen] = field(default_factory=dict)
    problem: str = ""


def read_page(page: Page, where: str) -> PageTold:
    """Never raises: a page that cannot be read is a ``problem``."""
    try:
        parsed, families = parse_page(page, Origin()), page_table(page, Origin()).families
    except BadInput as error:
        return PageTold(where, problem=f"answers, but not with a metrics page: {error.message}")
    engines = {family.name for family in name_table().families if family.kind == "engine"}
    software = next((name for name in families if name in engines), "")
    router = next((fault for fault in parsed.faults if fault.kind == "router_page"), None)
    if router is not None and not parsed.samples:
        return PageTold(where, problem="is a router's page, which repeats its engines' numbers: name the engines themselves")
    samples = parsed.samples
    return PageTold(
        where,
        cores=len(samples),
        software=software if samples else "",
        models=tuple(sorted({sample.key.model_id for sample in samples})),
        has_start=bool(samples) and all(sample.process_started_at or sample.created_at for sample in samples),
        numbers=_sums(samples),
        seen=_smallest(samples, where),
    )


def _sums(samples: Sequence[EngineSample]) -> dict[str, int]:
    """A sum that lacks one core's part would be too small: it is left out."""
    numbers = [{**sample.counters, **sample.gauges} for sample in samples]
    shown = Counter(name for one in numbers for name in one)
    totals = {name: sum(one[name] for one in numbers) for name, times in shown.items() if times == len(samples)}
    if "kv_usage_ppm" in totals:
        totals["kv_usage_ppm"] = max(one["kv_usage_ppm"] for one in numbers)
    return totals


def _smallest(samples: Sequence[EngineSample], where: str) -> dict[str, Seen]:
    """The cache configuration of the core with the least KV room: it is the one that runs out first."""
    with_info = [sample for sample in samples if sample.info]
    if not with_info:
        return {}
    least = min(with_info, key=lambda sample: sample.gauges.get("kv_capacity_tokens", 0))
    return cache_config(least.info, f"{where}, vllm:cache_config_info")

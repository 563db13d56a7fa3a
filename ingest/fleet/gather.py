"""One round over the fleet: the facts of every engine and gateway, from each source in its order, and what the checks find."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime

import httpx

from core.errors import BadInput, Refused, Unavailable
from core.fleet_checks import Finding, check_engine, check_gateway
from core.fleet_facts import ON, EngineFacts, GatewayFacts, Seen, first_seen
from core.fleet_gateway import host_port, usage_asked
from core.ports import FoundTarget, TargetSource
from ingest.discovery.kubernetes import KubernetesTargets
from ingest.engine.claims import address_of
from ingest.engine.faults import Fault
from ingest.engine.scraper import LivePages, ScrapeSettings, Target
from ingest.fleet.args_file import arguments_of
from ingest.fleet.arguments import StartArguments
from ingest.fleet.calls import new_client
from ingest.fleet.litellm import ask_litellm, completed
from ingest.fleet.pages import PageTold, read_page
from ingest.fleet.pods import pod_arguments
from ingest.fleet.stored_pages import stored_pages
from ingest.fleet.vllm import ServerTold, ask_server
from ingest.prometheus.settings import PrometheusSettings

WORKERS = 16
PAGE_TIMEOUT_S = 5.0
V1_ONLY = (0, 11)
"""From here on chunked prefill and prefix caching are on unless the command says otherwise."""


@dataclass(frozen=True, slots=True)
class StoredEngines:
    """A Prometheus whose samples are read, and the GPUs behind each of its engines."""

    settings: PrometheusSettings
    gpu: str = ""
    gpu_count: int = 0


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Where to look. ``gateways`` are (URL, key); ``arguments`` by HOST:PORT; ``declared`` are GPU type and count by target as
    the inventory has them; ``gateway_config`` is what a configuration file told."""

    sources: Mapping[str, TargetSource]
    stored: Sequence[StoredEngines] = ()
    gateways: Sequence[tuple[str, str]] = ()
    arguments: Mapping[str, StartArguments] = field(default_factory=dict)
    declared: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    gateway_config: GatewayFacts | None = None


@dataclass(slots=True)
class _Engine:
    """One engine while it is asked. ``is_stored``: its page is read from a Prometheus."""

    target: str
    found: FoundTarget
    page: PageTold
    down: str = ""
    server: ServerTold = field(default_factory=ServerTold)


def inspect(plan: FleetPlan, now: Callable[[], datetime]) -> list[Finding]:
    """Ask everything once. What does not answer is a finding, never an error. Raises BadInput for a wrong address."""
    targets, broken = _targets(plan.sources)
    stored, lost = _stored(plan.stored, {address_of(Target(found.url).name) for found in targets})
    engines = [*_scraped(targets, now), *stored]
    _ask_servers(engines)
    pods, why = _pods(plan.sources)
    gateways = [completed(ask_litellm(url, key), plan.gateway_config) for url, key in plan.gateways]
    if not plan.gateways and plan.gateway_config is not None:
        gateways = [plan.gateway_config]
    facts = [_facts(engine, plan, pods, why, gateways) for engine in engines]
    findings = [*broken, *lost, *(finding for one in facts for finding in check_engine(one))]
    return findings + [finding for one in gateways for finding in check_gateway(_with_engines(one, facts))]


def _unreachable(subject: str, reason: str) -> Finding:
    return Finding(subject, "engine", "answers", "fail", "", subject, reason, "tokenfuse doctor")


def _targets(sources: Mapping[str, TargetSource]) -> tuple[list[FoundTarget], list[Finding]]:
    found: dict[str, FoundTarget] = {}
    broken: list[Finding] = []
    for name, source in sources.items():
        try:
            told = [target for target in source.targets() if target.kind == "engine"]
        except (Unavailable, Refused, BadInput) as error:
            broken.append(_unreachable(f"discovery {name}", str(error)))
            continue
        for target in told:
            try:
                found.setdefault(address_of(Target(target.url).name), target)
            except BadInput as error:
                broken.append(_unreachable(target.url, str(error)))
    return list(found.values()), broken


def _scraped(targets: Sequence[FoundTarget], now: Callable[[], datetime]) -> list[_Engine]:
    pages = LivePages([Target(found.url) for found in targets], ScrapeSettings(timeout_s=PAGE_TIMEOUT_S, workers=WORKERS), now)
    try:
        told = {page.target: read_page(page, page.target) for page in pages.pages()}
        faults = {fault.source: _reason(fault) for fault in pages.faults}
    finally:
        pages.close()
    engines: list[_Engine] = []
    for found in targets:
        name = Target(found.url).name
        page = told.get(name, PageTold(""))
        engines.append(_Engine(name, found, page, faults.get(name, page.problem)))
    return engines


def _reason(fault: Fault) -> str:
    words = {
        "target_down": "does not answer",
        "target_timeout": "does not answer in time",
        "http_status": "answers with an error",
    }
    said = ", ".join(str(value) for name, value in fault.detail.items() if name != "timeout_s")
    return f"{words.get(fault.kind, fault.kind.replace('_', ' '))}{f': {said}' if said else ''}"


def _stored(stored: Sequence[StoredEngines], scraped: set[str]) -> tuple[list[_Engine], list[Finding]]:
    """Engines that a Prometheus holds and nobody scrapes."""
    engines: dict[str, _Engine] = {}
    lost: list[Finding] = []
    for one in stored:
        pages, why = stored_pages(one.settings)
        if why:
            lost.append(_unreachable(f"prometheus {one.settings.name}", why))
        for page in pages:
            if address_of(page.target) in scraped:
                continue
            found = FoundTarget(page.target, one.gpu, one.gpu_count)
            told = read_page(page, f"{page.target}, stored by prometheus {one.settings.name}")
            engines.setdefault(page.target, _Engine(page.target, found, told, told.problem))
    return list(engines.values()), lost


def _ask_servers(engines: Sequence[_Engine]) -> None:
    """Only vLLM servers that are up: what else would be asked is not theirs."""
    asked = [one for one in engines if not one.down and one.page.software in ("", "vllm") and "://" in one.target]
    with new_client() as client, ThreadPoolExecutor(WORKERS, thread_name_prefix="fleet") as pool:
        for engine, told in zip(asked, pool.map(lambda one: _server(client, one.target), asked), strict=True):
            engine.server = told


def _server(client: httpx.Client, target: str) -> ServerTold:
    return ask_server(client, target.partition("#")[0])


def _pods(sources: Mapping[str, TargetSource]) -> tuple[dict[str, StartArguments], str]:
    found: dict[str, StartArguments] = {}
    why = ""
    for source in sources.values():
        if isinstance(source, KubernetesTargets):
            told, said = pod_arguments(source)
            found, why = {**told, **found}, why or said
    return found, why


def _facts(
    engine: _Engine, plan: FleetPlan, pods: Mapping[str, StartArguments], why: str, gateways: Sequence[GatewayFacts]
) -> EngineFacts:
    by_pod = pods.get(host_port(engine.target).rpartition(":")[0].strip("[]"))
    by_file = arguments_of(engine.target, plan.arguments)
    told = [one for one in (by_pod, by_file) if one is not None]
    seen = first_seen([engine.page.seen, *engine.server.seen, *(one.seen for one in told)])
    silent = dict(engine.server.silent)
    if not told or any(one.opaque for one in told):
        opaque = next((one.opaque for one in told if one.opaque), "")
        silent["start arguments"] = opaque or why or "neither a pod nor --args-file tells them"
    if engine.down:
        silent["its page"] = engine.down
    models = tuple(sorted({*engine.page.models, *engine.server.models}))
    gpu, count = plan.declared.get(engine.target, (engine.found.gpu, engine.found.count))
    return EngineFacts(
        target=engine.target,
        down=engine.down,
        software=engine.page.software,
        page=engine.page.where if not engine.down else "",
        cores=engine.page.cores,
        models=models,
        has_start=engine.page.has_start,
        seen=_with_defaults(seen, told),
        numbers=engine.page.numbers,
        silent=silent,
        gpu=engine.found.gpu or gpu,
        gpu_count=engine.found.count or count,
        gateway_usage=usage_asked(engine.target, frozenset(models), gateways),
    )


def _with_defaults(seen: Mapping[str, Seen], told: Sequence[StartArguments]) -> dict[str, Seen]:
    """What a whole command does not say is the default of its version, for the two switches whose default changed."""
    version = seen.get("version")
    parts = re.match(r"v?(\d+)\.(\d+)", version.value) if version is not None else None
    whole = bool(told) and not any(one.opaque for one in told)
    if version is None or parts is None or not whole or tuple(map(int, parts.groups())) < V1_ONLY:
        return dict(seen)
    default = Seen(ON, f"not given: the default of vLLM {version.value}")
    return {**{name: default for name in ("chunked_prefill", "prefix_caching")}, **seen}


def _with_engines(gateway: GatewayFacts, engines: Sequence[EngineFacts]) -> GatewayFacts:
    return replace(
        gateway,
        engines=frozenset(host_port(one.target) for one in engines),
        served=frozenset(model for one in engines for model in one.models),
        unasked=sum(not one.models for one in engines),
    )

"""Doctor's checks of Prometheus servers and of discovery."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import httpx

from cli.doctor import Finding
from cli.settings import Settings
from cli.settings_sources import PrometheusSetting
from cli.sources import access, cursor_file, discovery_sources, prometheus_settings, servers_read
from cli.wiring import database_url, utc_now
from core.errors import BadInput, Refused, TokenfuseError, Unavailable
from core.ports import FoundTarget
from ingest.engine.claims import address_of
from ingest.engine.names import NameTable, name_table
from ingest.engine.scraper import Target
from ingest.prometheus.api import PrometheusApi
from ingest.prometheus.cursor import load_cursor
from ingest.prometheus.gaps import usual_step_ms
from ingest.prometheus.reader import SKEW, is_read
from models.database import open_engine, transaction
from models.found_repo import in_service, served_since

ANSWER_S = 4.0
RECENT = timedelta(minutes=15)
GPU_HINT = 'give the labels gpu = "A10G" and count = "1", set gpu and count in the block, or use `tokenfuse node declare`'
UNPAID_HINT = "set gpu and count in the block, or use `tokenfuse node declare`"


def prometheus_findings(settings: Settings) -> Iterator[Finding]:
    """Each server: reachable and signed in, its clock, the canonical names it holds, its scrape interval and retention."""
    for setting in settings.prometheus:
        check = f"prometheus {setting.name}"
        try:
            api = PrometheusApi(access(setting))
        except TokenfuseError as error:
            yield Finding(check, "error", error.message, error.hint)
            continue
        try:
            yield from _server(check, setting, settings, api)
        except (Unavailable, Refused, BadInput) as error:
            yield Finding(check, "error", error.message, error.hint)
        finally:
            api.close()
    servers_read(settings)


def _server(check: str, setting: PrometheusSetting, settings: Settings, api: PrometheusApi) -> Iterator[Finding]:
    now = api.now()
    ahead_s = round((now - utc_now()).total_seconds(), 1)
    if abs(ahead_s) > SKEW.total_seconds():
        yield Finding(check, "warning", f"answers; its clock is {ahead_s:+} s from ours", "set both clocks by one time server")
    else:
        yield Finding(check, "ok", f"answers at {setting.url}")
    match = prometheus_settings(setting).match
    held = [name for name in api.names(now - RECENT, now, match) if is_read(name)]
    yield _names(check, held)
    up = api.raw(",".join(part for part in ('__name__="up"', match) if part), now - RECENT, now)
    steps = sorted({step for one in up if (step := usual_step_ms([at for at, _ in one.points])) is not None})
    if steps:
        yield Finding(check, "ok", f"scrapes every {' and '.join(f'{step / 1000:g} s' for step in steps)}")
    else:
        yield Finding(check, "warning", "holds no scrapes of the last 15 minutes", "check match, and what it scrapes")
    kept = api.flags().get("storage.tsdb.retention.time", "")
    told = kept if kept not in ("", "0s") else "15d, its default" if kept == "0s" else ""
    yield Finding(check, "ok", f"keeps samples for {told}" if told else "does not tell how long it keeps samples")
    cursor = load_cursor(cursor_file(settings, setting.name)) if setting.read else None
    if cursor is not None:
        yield from unpaid(check, settings, {name for name, one in cursor.targets.items() if not one.gone})


def unpaid(check: str, settings: Settings, targets: set[str]) -> Iterator[Finding]:
    """Engines that were read lately and whose GPUs are not in the inventory."""
    engine = open_engine(database_url(settings))
    try:
        with transaction(engine) as connection:
            engines = served_since(connection, sorted(targets), utc_now() - RECENT)
            unknown = sorted(set(engines) - in_service(connection))
    finally:
        engine.dispose()
    for name in unknown:
        yield Finding(check, "error", f"{name}: no GPU is in service for it: its cost is unknown", UNPAID_HINT)


def _names(check: str, held: list[str]) -> Finding:
    table = name_table()
    canonical = canonical_names(table, held)
    needed = [name for name in ("prompt_tokens", "generation_tokens") if name not in canonical]
    if not canonical:
        return Finding(check, "error", "holds no engine metrics of the last 15 minutes", "check match, and what it scrapes")
    if needed:
        return Finding(check, "error", f"holds {len(canonical)} names, but not {' and '.join(needed)}", "does it drop series?")
    return Finding(check, "ok", f"holds {len(canonical)} canonical names: {', '.join(canonical)}")


def canonical_names(table: NameTable, held: list[str]) -> list[str]:
    """Which canonical counters and gauges the exposed names can tell."""
    told: dict[str, None] = {}
    for family, bare in (found for name in held if (found := table.find(name)) is not None):
        rows = {**family.counters, **family.gauges}
        told |= dict.fromkeys(name for name, sources in rows.items() if any(source.series == bare for source in sources))
    return sorted(told)


def discovery_findings(settings: Settings) -> Iterator[Finding]:
    """Each source: what it finds now, and whether the GPUs behind every target are known."""
    if not settings.discovery:
        return
    seen: dict[str, str] = {}
    for name, source in discovery_sources(settings).items():
        check = f"discovery {name}"
        try:
            targets = source.targets()
        except (Unavailable, Refused, BadInput) as error:
            yield Finding(check, "error", str(error), error.hint)
            continue
        if name != "settings":
            verdict, hint = ("ok", "") if targets else ("warning", "check the selector, the names or the files")
            yield Finding(check, verdict, f"finds {len(targets)} targets", hint)  # type: ignore[arg-type]
        for target in targets:
            first = seen.setdefault(address_of(target.url), name)
            if first != name:
                yield Finding(check, "warning", f"{target.url} is also found by {first}", "it is scraped once, as the first says")
            elif name != "settings":
                yield from _gpu(check, target)


def _gpu(check: str, target: FoundTarget) -> Iterator[Finding]:
    missing = [
        word for word, there in (("GPU type", target.gpu), ("GPU count", target.count), ("node", target.node)) if not there
    ]
    if missing or target.unknown:
        why = target.unknown or f"no {' and no '.join(missing)}"
        yield Finding(check, "error", f"{target.url}: {why}: its cost is unknown", GPU_HINT)
    else:
        yield _answer(check, target)


def _answer(check: str, target: FoundTarget) -> Finding:
    """Whether the found address gives a page now: discovery lists what should be there."""
    about = f"{target.url}: {target.count} × {target.gpu} on {target.node}"
    try:
        status = httpx.get(Target(target.url).address, timeout=ANSWER_S, follow_redirects=False).status_code
    except (httpx.HTTPError, BadInput) as error:
        why = f"does not answer ({type(error).__name__})"
    else:
        if status == httpx.codes.OK:
            return Finding(check, "ok", about)
        why = f"answers {status}"
    return Finding(check, "error", f"{about}, but it {why}", "is the engine up, and may this machine reach it?")

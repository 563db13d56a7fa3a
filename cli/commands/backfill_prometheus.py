"""``tokenfuse backfill --prometheus``: engine history from the samples a server kept, and what it covers per day."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from cli.options import Run
from cli.output import Progress, print_rows
from cli.settings import Settings
from cli.settings_sources import PrometheusSetting
from cli.sources import cursor_file, prometheus_settings
from cli.wiring import database, event_log, utc_now
from core.errors import BadInput
from core.windows import MINUTE_MS, Window, epoch_ms, floor_time, from_epoch_ms
from eventlog.spool import SpoolLog
from ingest.prometheus.cursor import load_cursor
from ingest.prometheus.reader import PrometheusReader, Step
from models.database import transaction
from models.found_repo import first_seen
from models.partitions import PartitionKeeper

WINDOW_S = 1800.0
DAY = timedelta(days=1)
HISTORY = "#before-"
"""Added to the name of a target whose later samples are counted already: its history is an engine of its own, for counters are
followed forward only."""


def backfill_prometheus(run: Run, since: timedelta) -> None:
    """Read every server back to ``since``; broken off, it goes on where it was. Repeating it changes no total."""
    if not run.settings.prometheus:
        hint = "add a [[prometheus]] block, see tokenfuse.example.toml"
        raise BadInput("is empty", where="settings", field="prometheus", hint=hint)
    rows: list[dict[str, Any]] = []
    with database(run.settings) as engine, event_log(run.settings) as log:
        for setting in run.settings.prometheus:
            rows += read_history(run.settings, setting, engine, log, since)
    print_rows(rows, as_json=run.as_json, empty="No server holds a sample of an engine in that time that is not counted already.")


@dataclass(frozen=True, slots=True)
class Plan:
    """Made when a backfill starts and kept until it is done, so that one that was broken off goes on under the same names.

    ``begun``: unix ms from which a target's samples are counted already.
    """

    start_ms: int
    until_ms: int
    begun: Mapping[str, int]

    def name(self, target: str, at_ms: int) -> str | None:
        """What the target's samples of that time are called, None when they are counted already."""
        before = self.begun.get(target)
        if before is None:
            return target
        return f"{target}{HISTORY}{before // 1000}" if at_ms < before else None


def read_history(
    settings: Settings, setting: PrometheusSetting, engine: Engine, log: SpoolLog, since: timedelta
) -> list[dict[str, Any]]:
    """One server's rows of coverage: day, target, samples, minutes with a sample of the minutes asked for."""
    file, plan_file = cursor_file(settings, setting.name, ".backfill"), cursor_file(settings, setting.name, ".backfill-plan")
    live = cursor_file(settings, setting.name)
    plan = _load(plan_file) or _plan(engine, live, plan_file, since)
    read = replace(prometheus_settings(setting), since=utc_now() - from_epoch_ms(plan.start_ms), window_s=WINDOW_S, overlap_s=0.0)
    seen: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    reader = PrometheusReader(
        read, log, file, utc_now, ensure_partitions=PartitionKeeper(engine), until=from_epoch_ms(plan.until_ms), rename=plan.name,
        kin=live if live.exists() else None,
    )  # fmt: skip
    progress, done = Progress(f"{setting.name}: scrapes read", every=10_000), 0
    try:
        for step in _steps(reader):
            for target, times in step.times.items():
                for at_ms in times:
                    seen[target, f"{from_epoch_ms(at_ms):%Y-%m-%d}"][at_ms // MINUTE_MS] += 1
            done += sum(map(len, step.times.values()))
            progress(done)
    finally:
        reader.close()
    for path in (file, plan_file):
        path.unlink(missing_ok=True)
    return list(_coverage(setting.name, seen, Window(from_epoch_ms(plan.start_ms), from_epoch_ms(plan.until_ms))))


def _steps(reader: PrometheusReader) -> Iterator[Step]:
    while True:
        step = reader.step()
        yield step
        if step.caught_up:
            return


def _coverage(server: str, seen: Mapping[tuple[str, str], Counter[int]], asked: Window) -> Iterator[dict[str, Any]]:
    for target in sorted({target for target, _ in seen}):
        for day in _days(asked):
            minutes = seen.get((target, f"{day.start:%Y-%m-%d}"), Counter())
            of_minutes = max(1, day.overlap(asked) // timedelta(minutes=1))
            share = (Decimal(min(len(minutes), of_minutes)) / of_minutes).quantize(Decimal("0.0001"))
            yield {
                "server": server,
                "day": f"{day.start:%Y-%m-%d}",
                "target": target,
                "samples": minutes.total(),
                "minutes": len(minutes),
                "of_minutes": of_minutes,
                "coverage": share,
            }


def _days(asked: Window) -> Iterator[Window]:
    at = floor_time(asked.start, DAY)
    while at < asked.end:
        yield Window(at, at + DAY)
        at += DAY


def _plan(engine: Engine, live_file: Path, file: Path, since: timedelta) -> Plan:
    now: datetime = utc_now()
    with transaction(engine) as connection:
        seen = {name: epoch_ms(at) for name, at in first_seen(connection).items() if HISTORY not in name}
    live = load_cursor(live_file)
    followed = dict.fromkeys(live.targets, live.origin_ms) if live else {}
    plan = Plan(epoch_ms(now - since), epoch_ms(now), {**followed, **seen})
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(plan), indent=1))
    return plan


def _load(file: Path) -> Plan | None:
    try:
        return Plan(**json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"is no plan: {error}", where=str(file), field="plan", hint="delete it and the cursor beside it"
        ) from error

"""The ``scrape`` process: live targets on one schedule, found targets that come and go, and Prometheus queries beside them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Engine

from cli.fleet_plan import keep_checking
from cli.inventory import FoundInventory
from cli.settings import Settings
from cli.settings_sources import PrometheusSetting
from cli.sources import cursor_file, discovery_sources, prometheus_settings, scrape_target_of, servers_read
from cli.wiring import database_url, event_log, utc_now
from core.errors import Unavailable
from core.ports import FoundTarget
from eventlog.spool import SpoolLog
from ingest.discovery.follow import Change, Discovery
from ingest.engine.claims import Claims
from ingest.engine.faults import Fault
from ingest.engine.scraper import Target, run_scraper
from ingest.engine.service import EngineIngest
from ingest.prometheus.reader import PrometheusReader, Step, follow_query
from models.database import open_engine, transaction
from models.outbox_repo import beat
from models.partitions import PartitionKeeper

log = logging.getLogger("tokenfuse")
INVENTORY_EVERY = timedelta(minutes=1)


class Scraping:
    """Runs until ``stop`` is set. A part that breaks ends the whole process, which its supervisor starts again."""

    def __init__(self, settings: Settings, engine: Engine, spool: SpoolLog, stop: threading.Event) -> None:
        self._settings, self._engine, self._spool, self._stop = settings, engine, spool, stop
        self._claims, self._broken = Claims(), threading.Event()
        self._discovery = Discovery(discovery_sources(settings), utc_now)
        self._found = FoundInventory("discovery")
        self._faults = EngineIngest(spool, utc_now, PartitionKeeper(engine))

    def run(self) -> int:
        """Returns 1 when a part broke."""
        self._look(first=True)
        parts: list[tuple[str, Callable[[], None]]] = [
            (f"prometheus-{setting.name}", lambda s=setting: self._read(s))  # type: ignore[misc]
            for setting in servers_read(self._settings)
        ]
        if self._settings.discovery:
            parts.append(("discovery", self._keep_looking))
        threads = [threading.Thread(target=self._guarded, args=part, name=part[0]) for part in parts]
        for thread in threads:
            thread.start()
        checks = (self._settings, self._engine, self._stop)
        threading.Thread(target=keep_checking, args=checks, name="fleet-checks", daemon=True).start()  # never waited for
        try:
            self._scrape()
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        return int(self._broken.is_set())

    def _guarded(self, name: str, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception:
            log.exception("%s broke; the process ends and is started again", name)
            self._broken.set()
            self._stop.set()

    def _scrape(self) -> None:
        run_scraper(
            self._targets(),
            self._spool,
            self._settings.scrape_interval_s,
            self._stop,
            utc_now,
            ensure_partitions=PartitionKeeper(self._engine),
            on_round=self._beat,
            find=self._targets,
        )

    def _targets(self) -> Sequence[Target]:
        return [scrape_target_of(found) for found in self._discovery.current]

    def _beat(self, samples: int, faults: int) -> None:
        with transaction(self._engine) as connection:
            beat(connection, "scrape", utc_now(), {"samples": samples, "faults": faults})

    def _keep_looking(self) -> None:
        every_s = min(setting.refresh_s for setting in self._settings.discovery)
        while not self._stop.wait(every_s):
            self._look(first=False)

    def _look(self, *, first: bool) -> None:
        change = self._discovery.look()
        self._claims.scrape([Target(found.url).name for found in change.now])
        self._report(_news(change, first))
        if not self._settings.discovery:
            return
        declared = {target.url for target in self._settings.targets}
        found = [target for target in change.now if target.url not in declared]
        with transaction(self._engine) as connection:
            self._found.keep(connection, found, change.at)
            self._found.drop(connection, [Target(target.url).name for target in change.went], change.at)
            if change.whole:
                self._found.drop_missing(connection, [Target(target.url).name for target in change.now], change.at)

    def _report(self, faults: list[Fault]) -> None:
        """A log that is full costs the faults, not the process."""
        try:
            self._faults.report(faults)
        except Unavailable:
            log.warning("the log takes no faults now", extra={"lost": len(faults)})

    def _read(self, setting: PrometheusSetting) -> None:
        settings = prometheus_settings(setting)
        file = cursor_file(self._settings, setting.name)
        partitions = PartitionKeeper(self._engine)
        reader = PrometheusReader(settings, self._spool, file, utc_now, ensure_partitions=partitions, claims=self._claims)
        inventory = ReadInventory(setting, self._engine)

        def on_step(step: Step) -> None:
            with transaction(self._engine) as connection:
                detail = {"read_to": step.end.isoformat(), "samples": step.samples, "faults": step.faults}
                beat(connection, f"prometheus {setting.name}", utc_now(), detail)
            inventory.after(step)

        try:
            follow_query(reader, settings.poll_s, self._stop, on_step)
        finally:
            reader.close()


class ReadInventory:
    """GPUs behind the engines of one Prometheus, where its block says what they are."""

    def __init__(self, setting: PrometheusSetting, engine: Engine) -> None:
        self._setting, self._engine = setting, engine
        self._inventory = FoundInventory(f"prometheus {setting.name}")
        self._seen: set[str] = set()
        self._kept_at: datetime | None = None

    def after(self, step: Step) -> None:
        """Once a minute: declare what was seen."""
        self._seen |= set(step.times)
        now = utc_now()
        if not (self._setting.gpu and self._setting.count) or (self._kept_at and now - self._kept_at < INVENTORY_EVERY):
            return
        self._kept_at = now
        found = [
            FoundTarget(name, self._setting.gpu, self._setting.count, self._setting.node or Target(name).address.host)
            for name in sorted(self._seen)
        ]
        with transaction(self._engine) as connection:
            self._inventory.keep(connection, found, now)


def _news(change: Change, first: bool) -> list[Fault]:
    """A process that just started has seen nothing go."""
    return [fault for fault in change.faults if not (first and fault.kind == "target_vanished")]


def run_scrape(settings: Settings, stop: threading.Event) -> int:
    engine = open_engine(database_url(settings))
    try:
        with event_log(settings) as spool:
            return Scraping(settings, engine, spool, stop).run()
    finally:
        engine.dispose()

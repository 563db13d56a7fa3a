"""The control loop: woken by every loader commit and settings change, and at least once a second.

The deciding lane (this thread) measures budgets, folds breakers and publishes the policy; the ledger lane closes quarter hours,
the outbox lane delivers effects, the budget lane keeps how every budget stands for pages to read, the join lane gives bills to a
changed inventory's machines, the rules lane judges settled windows, and the standing lane compares finished days with the raw
archive, each in a thread of its own: a slow webhook never delays a refusal. Everything is level-triggered from the database: the
loop may die at any point and start again. One runner at a time holds an advisory lock; another waits as a standby. A failing step
is logged and does not stop the others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from sqlalchemy import Engine

from control.budget_outlook import refresh_outlooks
from control.budget_standing import keep_standings
from control.budget_watch import WatchReport, watch
from control.burn_alerts import watch_burns
from control.channels import channel_effectors, sync_tickets
from control.charge_join import JoinPlace, rejoin_due
from control.fleet.actions import settle
from control.fleet.effector import fleet_effectors
from control.fleet.registry import FleetSettings, registry
from control.incidents import remind_due
from control.ledger_close import CloseSettings, close_due
from control.notify.webhook import WebhookEffector, WebhookSettings
from control.outbox import drain
from control.policy_publish import POLICY_TTL, GuardRules, publish
from control.rule_watch import watch_rules
from control.standing_check import check_next
from control.workload_versions import Schedule, add_new_classes, train_due
from core.breaker_values import Breaker, BreakerPolicy
from core.errors import TokenfuseError
from core.ports import Effector
from models.database import open_engine, transaction
from models.outbox_repo import beat
from models.policy_repo import PublishedPolicy

T = TypeVar("T")
log = logging.getLogger("tokenfuse.control")
RUNNER_LOCK = 7360705
CHANNELS = ("tokenfuse_loaded", "tokenfuse_settings")
HEARTBEAT = timedelta(seconds=5)
RECONNECT_S = 1.0


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """What the loop needs to know; ``cli`` fills it. Times in seconds. ``data_dir`` holds the raw archive that finished days are
    compared with; None: no standing checks here."""

    database_url: str
    policy: BreakerPolicy = field(default_factory=BreakerPolicy)
    policy_ttl: timedelta = POLICY_TTL
    close: CloseSettings = field(default_factory=CloseSettings)
    webhook: WebhookSettings | None = None
    tick_s: float = 1.0
    ledger_every_s: float = 30.0
    outbox_every_s: float = 1.0
    budgets_every_s: float = 5.0
    burn_every_s: float = 30.0
    data_dir: Path | None = None
    standing_every_s: float = 300.0
    join_every_s: float = 60.0
    tickets_every_s: float = 30.0
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    rules_every_s: float = 15.0
    classes_every_s: float = 10.0
    training_every_s: float = 3600.0
    node_tags: tuple[str, ...] = ()
    fleet: FleetSettings = field(default_factory=FleetSettings)
    fleet_every_s: float = 2.0
    now: Callable[[], datetime] = utc_now


@dataclass(frozen=True, slots=True)
class PassReport:
    """One pass of the deciding lane."""

    watched: WatchReport
    published: PublishedPolicy | None
    duration_ms: int


def decide(engine: Engine, settings: ControlSettings, rules: GuardRules | None = None) -> PassReport:
    """Measure budgets, fold breakers, publish what changed. ``rules`` remembers the identity rules between passes."""
    started, now = time.monotonic_ns(), settings.now()
    watched = _guarded("watching budgets", watch, engine, now, settings.policy) or WatchReport()
    for breaker in watched.changed:
        log.warning("breaker %s of %s is %s (epoch %d): %s", *_told(breaker))
    published = _publish(engine, settings, rules)
    return PassReport(watched, published, (time.monotonic_ns() - started) // 1_000_000)


def _publish(engine: Engine, settings: ControlSettings, rules: GuardRules | None) -> PublishedPolicy | None:
    with transaction(engine) as connection:
        return publish(connection, settings.now(), settings.policy_ttl, rules)


def _told(breaker: Breaker) -> tuple[int, str, str, int, str]:
    phase = breaker.phase if breaker.enforced else f"{breaker.phase} in shadow"
    return breaker.id, breaker.scope, phase, breaker.epoch, breaker.reason


def effectors(settings: ControlSettings) -> dict[str, Effector]:
    """The channels by kind of effect; a kind without one waits in the outbox and is given up by name after a day."""
    found: dict[str, Effector] = {}
    if settings.webhook is not None:
        found["notify"] = WebhookEffector(settings.webhook, settings.now)
    return found


def run(settings: ControlSettings, stop: threading.Event) -> None:
    """Run until ``stop`` is set. Waits for the database and for another runner to end; returns after its lanes have ended."""
    engine = open_engine(settings.database_url, pool_size=5)
    lanes = _Lanes(engine, settings, stop)
    try:
        while not stop.is_set():
            try:
                _as_runner(engine, settings, stop, lanes)
            except (psycopg.Error, TokenfuseError) as error:
                log.warning("the control loop lost the database and tries again: %s", error)
                stop.wait(RECONNECT_S)
    finally:
        stop.set()
        lanes.join()
        engine.dispose()


def _as_runner(engine: Engine, settings: ControlSettings, stop: threading.Event, lanes: _Lanes) -> None:
    url = settings.database_url.replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(url, autocommit=True, application_name="tokenfuse-control") as connection:
        while not _sole_runner(connection):
            if stop.wait(RECONNECT_S):
                return
        for channel in CHANNELS:
            connection.execute(f"LISTEN {channel}")
        lanes.start()
        beaten, rules = settings.now() - HEARTBEAT, GuardRules()
        while not stop.is_set():
            report = _guarded("deciding", decide, engine, settings, rules)
            if settings.now() >= beaten + HEARTBEAT:
                beaten = settings.now()
                _guarded("heartbeat", _beat, engine, settings, report)
            lanes.wake.set()
            _await_notification(connection, settings.tick_s)


def _sole_runner(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (RUNNER_LOCK,)).fetchone()
    return bool(row and row[0])


def _await_notification(connection: psycopg.Connection[Any], timeout_s: float) -> None:
    """What queued up meanwhile is one wake-up."""
    list(connection.notifies(timeout=timeout_s, stop_after=1))
    list(connection.notifies(timeout=0))


def _guarded(step: str, act: Callable[..., T], *args: Any) -> T | None:
    try:
        return act(*args)
    except Exception:
        log.exception("%s failed; the next round tries again", step)
        return None


def _remind(engine: Engine, now: datetime) -> None:
    with transaction(engine) as connection:
        remind_due(connection, now)


def _beat(engine: Engine, settings: ControlSettings, report: PassReport | None) -> None:
    detail: Mapping[str, Any] = {"ok": False}
    if report is not None:
        failed = sorted(report.watched.failed)
        detail = {"ok": not failed, "scopes": report.watched.scopes, "pass_ms": report.duration_ms, "failed": failed}
    with transaction(engine) as connection:
        beat(connection, "control", settings.now(), detail)


class _Lanes:
    """The slow lanes, started once this process is the runner."""

    def __init__(self, engine: Engine, settings: ControlSettings, stop: threading.Event) -> None:
        self._engine, self._settings, self._stop = engine, settings, stop
        self._threads: list[threading.Thread] = []
        self.wake = threading.Event()

    def start(self) -> None:
        if self._threads:
            return
        for target in (
            self._ledger,
            self._fleet,
            self._outbox,
            self._tickets,
            self._budgets,
            self._standing,
            self._classes,
            self._join,
            self._rules,
        ):
            name = f"control-{target.__name__.removeprefix('_')}"
            thread = threading.Thread(target=target, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def join(self) -> None:
        self.wake.set()
        for thread in self._threads:
            thread.join()

    def _ledger(self) -> None:
        while not self._stop.is_set():
            report = _guarded("closing the ledger", lambda: close_due(self._engine, self._settings.now(), self._settings.close))
            if report is not None and report.failures:
                log.error("%d quarter hours could not be closed: %s", len(report.failures), "; ".join(report.failures[:3]))
            more = report is not None and report.more
            self._stop.wait(0 if more else self._settings.ledger_every_s)

    def _outbox(self) -> None:
        fixed = effectors(self._settings) | fleet_effectors(self._engine, self._settings.fleet, self._settings.now)
        while not self._stop.is_set():
            _guarded("reminding", _remind, self._engine, self._settings.now())
            channels = _guarded("reading the channels", channel_effectors, *self._channels()) or {}
            _guarded("draining the outbox", drain, self._engine, {**fixed, **channels}, self._settings.now())
            self.wake.wait(self._settings.outbox_every_s)
            self.wake.clear()

    def _channels(self) -> tuple[Engine, Callable[[], datetime], Mapping[str, str]]:
        return self._engine, self._settings.now, self._settings.environ

    def _tickets(self) -> None:
        """Status and assignee of open incidents' tickets, read back."""
        while not self._stop.wait(self._settings.tickets_every_s):
            _guarded("reading tickets back", sync_tickets, *self._channels())

    def _fleet(self) -> None:
        """What a former run left standing beyond its time is put back first."""
        reachable = registry(self._settings.fleet)
        while not self._stop.is_set():
            _guarded("acting on the fleet", settle, self._engine, reachable, self._settings.now())
            self._stop.wait(self._settings.fleet_every_s)

    def _budgets(self) -> None:
        """What is kept says when the next round is due, the time a round takes included."""
        every_s = took_s = self._settings.budgets_every_s
        burned = -self._settings.burn_every_s
        while not self._stop.is_set():
            began = time.monotonic()
            _guarded("measuring budgets", keep_standings, self._engine, self._settings.now(), every_s + took_s)
            if began >= burned + self._settings.burn_every_s:
                burned = began
                _guarded("watching how budgets burn", watch_burns, self._engine, self._settings.now())
            _guarded("looking ahead for budgets", refresh_outlooks, self._engine, self._settings.now())
            took_s = time.monotonic() - began
            self._stop.wait(every_s)

    def _join(self) -> None:
        """Bills against what the inventory and people's matches have become."""
        while self._settings.data_dir is not None and not self._stop.wait(self._settings.join_every_s):
            place = JoinPlace(self._settings.data_dir, self._settings.node_tags)
            changed = _guarded("joining bills to machines", rejoin_due, self._engine, place, self._settings.now())
            if changed:
                log.info("the charges of %d deliveries are joined anew to the machines", changed)

    def _rules(self) -> None:
        """Rules whose newest window is settled; while the stream catches up a pass judges nothing."""
        while not self._stop.is_set():
            report = _guarded("evaluating rules", watch_rules, self._engine, self._settings.now())
            for rule, scope, event in report.events if report is not None else ():
                log.warning("rule %s %s on %s", rule, event, scope)
            self._stop.wait(self._settings.rules_every_s)

    def _classes(self) -> None:
        """A burst of requests unlike every class gets one of its own; once a week classes are found anew. Whether they are due,
        and the archive holds enough, is asked once an hour: the asking takes a sample of it."""
        tried = -self._settings.training_every_s
        while self._settings.data_dir is not None and not self._stop.wait(self._settings.classes_every_s):
            place, now, began = self._settings.data_dir, self._settings.now(), time.monotonic()
            for burst, made in _guarded("looking for new classes", add_new_classes, self._engine, place, now) or ():
                told = made.classes[-1]
                log.warning("new workload class %d (%s): %d requests", told.number, told.name, burst.requests)
            if began >= tried + self._settings.training_every_s:
                tried = began
                _guarded("training workload classes", train_due, self._engine, place, Schedule(), now)

    def _standing(self) -> None:
        """One day a turn: each reads some days of the archive."""
        while self._settings.data_dir is not None and not self._stop.wait(self._settings.standing_every_s):
            day = _guarded("a standing check", check_next, self._engine, self._settings.data_dir, self._settings.now())
            if day is not None:
                log.info("the rollups of %s were compared with the raw archive", day)

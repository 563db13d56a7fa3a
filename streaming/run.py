"""The supervisor of the stream: one Flink job at a time, its loader, its epochs, and the way every line gets into the archive.

Crash-only: a phase ends by killing the job's process group, and the next start recovers from the newest checkpoint.
``python -m streaming.run SETTINGS.json [--until-idle]``.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from core.errors import Conflict, TokenfuseError, Unavailable
from eventlog.layout import make_folder
from models.database import open_engine
from streaming import checkpoints
from streaming.delta_columns import note_columns
from streaming.features import FeatureKeeper
from streaming.flink_rest import FlinkRest
from streaming.jobs.main import refusal, write_spec
from streaming.loader import Loader
from streaming.phases import Phase, next_phase, read_folder
from streaming.plan import current_plan
from streaming.process import JobProcess, free_port, only_run, start_job
from streaming.settings import StreamSettings
from streaming.warmup import write_warmup
from streaming.watch import Watch

LOOK_S = 0.3
MAX_FAILURES = 5
"""Starts in a row that did not live for HEALTHY_S; then a person must look."""
HEALTHY_S = 180.0
AWAY = (Unavailable, DBAPIError)
AWAY_WAIT_S = 2.0

log = logging.getLogger("tokenfuse.stream")


def main(settings: StreamSettings, until_idle: bool, *, now: Callable[[], datetime], stop: threading.Event | None = None) -> int:
    """Run until ``stop`` is set, or with ``until_idle`` until every line is read and applied; 0, or 1 when the job does not live.

    While another run works on the data folder, ``until_idle`` waits for that one's progress. Raises Conflict when another run
    holds the folder and this one is to stay, or when the log was partly read by a run whose checkpoints are gone.
    """
    stopping = stop or threading.Event()
    engine = open_engine(settings.database_url)
    with ExitStack() as stack:
        stack.callback(engine.dispose)
        watch = Watch(settings, engine, now, until_idle=until_idle)
        if not _own_the_run(stack, settings, watch, stopping, until_idle):
            return 0
        features = FeatureKeeper(engine, settings.data_dir, settings.keep_archive_days, now)
        if settings.load:
            loader = _loaded(Loader(engine, settings.deltas, now), stopping, wait=not until_idle)
            stack.enter_context(_in_background(loader))
            stack.enter_context(_in_background(features))
        code = Supervisor(settings, watch, now, stopping).serve(until_idle)
        if settings.load and until_idle and code == 0 and not stopping.is_set():
            features.catch_up()
        return code


def _own_the_run(stack: ExitStack, settings: StreamSettings, watch: Watch, stop: threading.Event, until_idle: bool) -> bool:
    """True once this process holds the run lock; False when, with ``until_idle``, the run that holds it has done everything."""
    while True:
        try:
            stack.enter_context(only_run(settings.run))
            return True
        except Conflict:
            if not until_idle:
                raise
        if watch.idle_elsewhere() or stop.wait(LOOK_S):
            return False


def _loaded(loader: Loader, stop: threading.Event, *, wait: bool) -> Loader:
    """The loader after its first round. Without the database it waits, or raises Unavailable when not to ``wait``."""
    while not stop.is_set():
        try:
            loader.run_once()
            loader.import_side_topics()
            break
        except Unavailable as error:
            if not wait:
                raise
            log.warning("the stream waits for the database", extra={"reason": str(error)})
            stop.wait(error.retry_after_s)
    return loader


@contextmanager
def _in_background(worker: Loader | FeatureKeeper) -> Iterator[None]:
    """The worker's thread, ended with the block."""
    stop = threading.Event()
    thread = threading.Thread(target=worker.run_forever, args=(stop,), name=type(worker).__name__, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Supervisor:
    """Starts phase after phase of the job (``streaming.phases``) and watches each."""

    def __init__(self, settings: StreamSettings, watch: Watch, now: Callable[[], datetime], stop: threading.Event) -> None:
        self._settings, self._watch, self._now, self._stop = settings, watch, now, stop
        self._plan = current_plan(settings.dedupe_horizon_days)
        self._failures = 0

    def serve(self, until_idle: bool) -> int:
        """See ``main``."""
        watch = self._watch
        if until_idle and watch.nothing_to_do():
            return 0
        while not self._stop.is_set():
            try:
                phase = next_phase(self._settings, self._plan)
                watch.check_start(phase)
                outcome = self._run_phase(phase, watch)
            except AWAY as error:
                log.warning("the stream waits", extra={"reason": str(error)})
                self._stop.wait(AWAY_WAIT_S)
                continue
            if outcome == "idle":
                return 0
            if outcome == "died":
                self._failures += 1
                log.error("the job ended by itself and is started again", extra={"output": str(self._output)})
                if self._failures >= MAX_FAILURES:
                    log.error("the job does not stay up", extra={"starts": self._failures, "output": str(self._output)})
                    return 1
                self._stop.wait(min(2.0**self._failures, 30.0))
        return 0

    @property
    def _output(self) -> Path:
        return self._settings.run / "flink.log"

    def _run_phase(self, phase: Phase, watch: Watch) -> str:
        settings = self._settings
        if phase.warms_up and not phase.restore:
            horizon = self._now() - timedelta(days=settings.dedupe_horizon_days)
            lines = write_warmup(settings.data_dir, phase.epochs, horizon.date())
            log.info("a changed plan starts without state", extra={"warm_up_lines": lines, "fingerprint": phase.plan.fingerprint})
        run = checkpoints.start_run(settings.checkpoints, phase.plan, phase.epochs)
        port = settings.web_port or free_port()
        job = self._start(phase, run, port)
        log.info(
            "job starts",
            extra={"run": run.number, "epochs": dict(phase.epochs), "restore": phase.restore, "web": f"http://127.0.0.1:{port}"},
        )
        try:
            return self._watch_phase(phase, run, job, FlinkRest(port), watch)
        finally:
            job.end()

    def _raise_refusal(self) -> None:
        told = refusal(self._settings.run)
        if told.exists():
            raise Conflict(told.read_text())

    def _start(self, phase: Phase, run: checkpoints.Run, port: int) -> JobProcess:
        settings = self._settings
        folders = {topic: read_folder(settings, topic, epoch) for topic, epoch in phase.epochs.items()}
        for folder in folders.values():
            make_folder(folder)
        note_columns(settings.deltas, phase.plan.deltas)
        places = {**folders, "checkpoints": run.folder, "deltas": settings.deltas}
        refusal(settings.run).unlink(missing_ok=True)
        spec = run.folder / "job.json"
        write_spec(spec, phase.plan, settings, {**places, "restore": phase.restore, "new_sources": phase.new_sources}, port)
        (settings.run / "flink.port").write_text(str(port))
        return start_job([settings.python, "-m", "streaming.jobs.main", str(spec)], settings.run, self._output)

    def _looked(self, watch: Watch, checkpoint: int) -> bool:
        """One look; while the database is away the job goes on, for its files wait for the loader."""
        try:
            return watch.look(checkpoint)
        except AWAY as error:
            log.warning("progress cannot be seen", extra={"reason": str(error)})
            self._stop.wait(AWAY_WAIT_S)
            return False

    def _watch_phase(self, phase: Phase, run: checkpoints.Run, job: JobProcess, rest: FlinkRest, watch: Watch) -> str:
        """Until the job dies ("died"), another phase is due ("next"), everything is read ("idle") or the stop ("stopped")."""
        watch.begin(phase)
        swept, begun = False, time.monotonic()
        while not self._stop.wait(LOOK_S):
            if not job.alive:
                self._raise_refusal()
                return "died"
            checkpoint = rest.last_checkpoint()
            if checkpoint and not swept:
                swept = checkpoints.sweep(self._settings.checkpoints, run.number)
            if self._looked(watch, checkpoint or 0):
                return "idle"
            if time.monotonic() - begun > HEALTHY_S:
                self._failures = 0
            if not next_phase(self._settings, self._plan).same_place(phase):
                return "next"
        return "stopped"


def _from_command_line(arguments: list[str]) -> int:
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO)
    settings = StreamSettings.from_json(Path(arguments[0]).read_text())
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return main(settings, "--until-idle" in arguments[1:], now=lambda: datetime.now(UTC), stop=stop)
    except TokenfuseError as error:
        log.error(str(error), extra={"code": error.code})
        return 1


if __name__ == "__main__":
    sys.exit(_from_command_line(sys.argv[1:]))

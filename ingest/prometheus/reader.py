"""Follows one query: a window of raw samples, into the log, and only then the cursor."""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from core.errors import BadInput, Refused, TokenfuseError, Unavailable
from core.ports import EventLog
from core.windows import epoch_ms, from_epoch_ms
from ingest.engine.claims import Claims
from ingest.engine.faults import Fault
from ingest.engine.names import name_table
from ingest.engine.service import EngineIngest
from ingest.prometheus.api import PrometheusApi, Series, TooMuch, split
from ingest.prometheus.cursor import Cursor, load_cursor, save_cursor
from ingest.prometheus.follow import Following, Read, Rename
from ingest.prometheus.scrapes import origin_of, page_address, sort_out, target_name
from ingest.prometheus.settings import PrometheusSettings

SKEW = timedelta(seconds=30)
NAMES_PER_QUERY = 60


@dataclass(frozen=True, slots=True)
class Step:
    """One window read. ``times`` of the pages taken (unix ms) by target; ``caught_up``: there is no more to be read now."""

    start: datetime
    end: datetime
    samples: int = 0
    faults: int = 0
    caught_up: bool = True
    times: Mapping[str, Sequence[int]] = field(default_factory=dict)


class PrometheusReader:
    """Not shared between threads. The first read starts ``settings.since`` before the server's now, later ones where the cursor
    file says. ``until`` and ``rename`` are for a backfill: where it ends, and under which name history goes into the log.
    ``kin`` is another reader's cursor of the same server, whose names of targets are kept.
    """

    def __init__(
        self,
        settings: PrometheusSettings,
        log: EventLog,
        cursor_file: Path,
        now: Callable[[], datetime],
        *,
        ensure_partitions: Callable[[Iterable[datetime]], None],
        claims: Claims | None = None,
        until: datetime | None = None,
        rename: Rename = lambda target, _: target,
        kin: Path | None = None,
    ) -> None:
        self._settings, self._file, self._now, self._until = settings, cursor_file, now, until
        self._names, self._api = name_table(), PrometheusApi(settings.access)
        self._log, self._ensure_partitions = log, ensure_partitions
        self._ingest = self._new_ingest()
        self._cursor = load_cursor(cursor_file)
        self._kin = load_cursor(kin) if kin else None
        self._following = Following(
            settings, self.source, lambda target: claims is None or claims.may_read(settings.name, target), rename
        )
        self._sent: dict[str, set[int]] = defaultdict(set)
        self._told: set[str] = set()

    @property
    def source(self) -> str:
        """How faults name it."""
        return f"prometheus {self._settings.name}"

    def close(self) -> None:
        self._api.close()

    def step(self) -> Step:
        """Read the next window. Raises Unavailable, Refused or BadInput when the server or the log does not take part: the cursor
        stays then, and the same window is read again."""
        server_now = self._api.now()
        cursor = deepcopy(self._cursor) or self._begin(server_now)
        lag, late = (timedelta(seconds=s) for s in (self._settings.lag_s, self._settings.overlap_s))
        limit = min(server_now - lag, self._until or server_now)
        start = from_epoch_ms(cursor.start_ms((lag + late) // timedelta(milliseconds=1)))
        end = min(limit, from_epoch_ms(cursor.read_to_ms) + timedelta(seconds=self._settings.window_s))
        if end <= start or epoch_ms(end) <= cursor.read_to_ms:
            return Step(start, start)
        series = self._series(start, end)
        self._name_targets(cursor, series)
        found, homeless = sort_out(series, self._settings, cursor.names, self._names.process_start)
        read = self._following.window(cursor, found, self._sent, epoch_ms(end))
        read.faults += [*self._skew(server_now), *self._left_out(read, homeless, end)]
        samples, faults = self._append(read)
        cursor.read_to_ms, cursor.read_at_ms = epoch_ms(end), epoch_ms(server_now)
        save_cursor(self._file, cursor)
        self._cursor = cursor
        return Step(start, end, samples, faults, end >= limit, read.times)

    def report(self, error: TokenfuseError) -> None:
        """Write that the server was not read; a log that is full does not take this either."""
        try:
            self._ingest.report([Fault("source_down", self.source, self._now(), detail={"reason": str(error)})])
        except Unavailable:
            return

    def _begin(self, server_now: datetime) -> Cursor:
        at_ms = epoch_ms(server_now - self._settings.since)
        return Cursor(at_ms, at_ms, at_ms, names=deepcopy(self._kin.names) if self._kin else {})

    def _new_ingest(self) -> EngineIngest:
        return EngineIngest(self._log, self._now, self._ensure_partitions)

    def _append(self, read: Read) -> tuple[int, int]:
        """Late pages lie before those the ingest remembers, so they are compared with nothing."""
        taken = self._ingest.take(sorted(read.fresh, key=lambda pair: (pair[0].at, pair[0].target)), read.faults)
        late = self._new_ingest().take(sorted(read.late, key=lambda pair: pair[0].at)) if read.late else None
        for page, _ in [*read.fresh, *read.late]:
            self._sent[page.target].add(epoch_ms(page.at))
        self._forget([page.at for page, _ in read.fresh])
        return taken.samples + (late.samples if late else 0), taken.faults + (late.faults if late else 0)

    def _forget(self, times: Iterable[datetime]) -> None:
        """Times so old that no window comes back to them."""
        newest = max(times, default=None)
        if newest is None:
            return
        keep_s = 2 * (self._settings.lag_s + self._settings.overlap_s + self._settings.window_s)
        oldest_ms = epoch_ms(newest - timedelta(seconds=keep_s))
        for target, sent in list(self._sent.items()):
            self._sent[target] = {at for at in sent if at >= oldest_ms}

    def _series(self, start: datetime, end: datetime) -> list[Series]:
        """Engine series, the process starts of the jobs that have engines, and ``up``."""
        match, start_name = self._settings.match, self._names.process_start
        held = self._api.names(start, end, match)
        wanted = [name for name in held if name != start_name and is_read(name)]
        found: list[Series] = []
        for i in range(0, len(wanted), NAMES_PER_QUERY):
            found += self._raw([_any_of("__name__", wanted[i : i + NAMES_PER_QUERY]), match], start, end)
        jobs = sorted({one.labels["job"] for one in found if "job" in one.labels})
        if start_name in held and jobs:
            found += self._raw([_any_of("__name__", [start_name]), _any_of("job", jobs), match], start, end)
        return found + self._raw(['__name__="up"', match], start, end)

    def _raw(self, matchers: Iterable[str], start: datetime, end: datetime) -> list[Series]:
        text = ",".join(part for part in matchers if part)
        try:
            return self._api.raw(text, start, end)
        except TooMuch:
            halves = split(start, end)
            if not halves:
                raise
            return [one for a, b in halves for one in self._raw([text], a, b)]

    def _name_targets(self, cursor: Cursor, series: Iterable[Series]) -> None:
        """Name each new target by the address the server scrapes, where it tells (Thanos, Mimir and VictoriaMetrics clusters have
        no such page); one that is gone, or that a server just started does not list yet, by its instance and its job's page."""
        pairs = {origin_of(one.labels) for one in series if one.labels.get("__name__") != "up"}
        fresh = {(job, instance) for job, instance in pairs if instance and instance not in cursor.names.get(job, {})}
        if not fresh:
            return
        try:
            told = _addresses(self._api.targets())
        except (BadInput, Unavailable, Refused):
            told = {}
        pages = self._api.pages() if fresh - set(told) else {}
        for job, instance in fresh:
            address = told.get((job, instance)) or page_address(instance, *pages.get(job, ("http", "/metrics")))
            cursor.names.setdefault(job, {})[instance] = target_name(address)

    def _skew(self, server_now: datetime) -> list[Fault]:
        ahead = server_now - self._now()
        if abs(ahead) <= SKEW:
            return []
        detail = {"ahead_s": round(ahead.total_seconds(), 1), "hint": "set both clocks by one time server"}
        return [Fault("clock_skew", self.source, server_now, detail=detail)]

    def _left_out(self, read: Read, homeless: set[str], at: datetime) -> list[Fault]:
        """Each thing once per run: it is true for as long as it lasts."""
        faults: list[Fault] = []
        for target, offered in read.twice:
            if self._first_time(f"{target}|{offered}"):
                hint = "one reading of an engine is enough; the other one is not counted"
                faults.append(Fault("read_twice", target, at, offered, {"left_out": offered, "hint": hint}))
        fresh = sorted(name for name in homeless if name != "up" and self._first_time(name))
        if fresh:
            hint = "series without an instance label belong to no engine and are left out"
            faults.append(Fault("no_target_label", self.source, at, detail={"names": fresh, "hint": hint}))
        return faults

    def _first_time(self, subject: str) -> bool:
        known = subject in self._told
        self._told.add(subject)
        return not known


def is_read(name: str) -> bool:
    """Whether a page would be read for it: no buckets, no recording rules (which hold a second colon)."""
    return name_table().is_wanted(name) and not name.endswith("_bucket") and name.count(":") < 2


def follow_query(reader: PrometheusReader, poll_s: float, stop: threading.Event, on_step: Callable[[Step], None]) -> None:
    """Read until ``stop`` is set; what could not be read is reported and tried again."""
    while not stop.is_set():
        try:
            step = reader.step()
        except (Unavailable, Refused, BadInput) as error:
            reader.report(error)
            stop.wait(poll_s)
            continue
        on_step(step)
        if step.caught_up:
            stop.wait(poll_s)


def _any_of(label: str, values: Iterable[str]) -> str:
    """An anchored regular expression matcher of exactly these values."""
    text = "|".join(re.escape(value) for value in values)
    return f"{label}=~{json.dumps(text, ensure_ascii=False)}"


def _addresses(rows: Iterable[Mapping[str, object]]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        labels = row.get("labels")
        if isinstance(labels, Mapping) and isinstance(row.get("scrapeUrl"), str):
            found[str(labels.get("job", "")), str(labels.get("instance", ""))] = str(row["scrapeUrl"])
    return found

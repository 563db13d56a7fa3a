"""Keeps the features of requests, and the sums of bought requests, up to date with the raw archive.

Level-triggered: a new file of the archive marks the hours it touches, in one transaction with its name; a marked hour is computed
anew from the archive and replaces its rows in one transaction with its mark's removal. A kill at any point repeats work and
changes nothing; a late record is a mark on old hours.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from datetime import time as day_time
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from core.errors import TokenfuseError, Unavailable
from core.features import HOUR_MS, SESSION_MS
from core.windows import from_epoch_ms
from eventlog.archive_manifest import entries, last_sequence
from eventlog.bought_sql import archived_bought
from eventlog.feature_sql import COPIES_MS, archived_features, file_span_ms
from models.bought_repo import replace_bought
from models.database import transaction
from models.features_repo import (
    dirty_hours,
    forget_files,
    lock_features,
    note_files,
    replace_hour,
    take_mark,
    unnoted_files,
)

LOOK_S = 15.0
OVERLAP_SEGMENTS = 50_000
"""An epoch's most: a segment is archived at most so many after its successors."""
OPEN_EVERY_S = 300.0
CLOSED_EVERY_S = 60.0
SETTLED = timedelta(minutes=2)
PATIENCE = 20
"""An hour is computed again after at least so many times what it took: at most a twentieth of one core."""
NOTE_BATCH = 500
HOUR = timedelta(milliseconds=HOUR_MS)

log = logging.getLogger("tokenfuse.stream")


@dataclass(slots=True)
class FeatureKeeper:
    """``now`` is an aware UTC clock; ``keep_days`` how long the archive is kept."""

    engine: Engine
    data_dir: Path
    keep_days: int
    now: Callable[[], datetime]
    _seen: int = 0
    _again_at_s: dict[datetime, float] = field(default_factory=dict)

    def run_forever(self, stop: threading.Event) -> None:
        """Look again and again until ``stop`` is set; a lost database is waited for."""
        while not stop.wait(LOOK_S):
            try:
                self.note()
                for hour in self._due():
                    if stop.is_set():
                        return
                    self.compute(hour)
            except (TokenfuseError, DBAPIError, OSError) as error:
                log.warning("features of requests wait", extra={"reason": str(error)})
            except Exception:  # a thread that ends would stop the features without a word
                log.exception("features of requests failed and are tried again")

    def catch_up(self) -> int:
        """Compute every hour that is marked or about to be; returns their number. Raises Unavailable without the database."""
        try:
            self.note()
            with transaction(self.engine) as connection:
                waiting = dirty_hours(connection)
            for hour in waiting:
                self.compute(hour)
        except DBAPIError as error:
            raise Unavailable(f"the database did not take features: {error.orig}", hint="run `tokenfuse doctor`") from error
        return len(waiting)

    def note(self) -> int:
        """Mark the hours of files that are new in the archive; returns how many were new."""
        newest = last_sequence(self.data_dir, "usage")
        since = max(self._seen - OVERLAP_SEGMENTS, 0)
        names = [file.name for entry in entries(self.data_dir, "usage", from_seq=since) for file in entry.files]
        fresh = 0
        for start in range(0, len(names), NOTE_BATCH):
            fresh += self._note(names[start : start + NOTE_BATCH])
        self._seen = newest
        return fresh

    def _note(self, names: list[str]) -> int:
        now = self.now()
        with transaction(self.engine) as connection:
            lock_features(connection)
            fresh = unnoted_files(connection, names)
            hours = {hour for name in fresh for hour in self._hours_of(name, now)}
            note_files(connection, fresh, hours, now)
            if fresh:
                forget_files(connection, now - timedelta(days=self.keep_days + 2))
        return len(fresh)

    def _hours_of(self, name: str, now: datetime) -> Iterator[datetime]:
        """From the hour before (a copy may bear an earlier time) to the last whose sessions may go on from here; hours to come
        are marked by their own files."""
        span = file_span_ms(self.data_dir, name)
        if span is None:
            return
        first, last = span[0] - COPIES_MS, span[1] + SESSION_MS
        for hour_ms in range(first // HOUR_MS * HOUR_MS, last + 1, HOUR_MS):
            hour = from_epoch_ms(hour_ms)
            if hour <= now or hour_ms <= span[1]:
                yield hour

    def _due(self) -> list[datetime]:
        with transaction(self.engine) as connection:
            waiting = dirty_hours(connection)
        at = time.monotonic()
        self._again_at_s = {hour: again for hour, again in self._again_at_s.items() if again > at}
        return [hour for hour in waiting if hour not in self._again_at_s]

    def compute(self, hour: datetime) -> bool:
        """Replace a marked hour's rows, with nobody else marking or computing; False when it has no mark. An hour of which the
        archive is no longer whole keeps the rows it has."""
        begun = time.monotonic()
        kept_since = datetime.combine((self.now() - timedelta(days=self.keep_days)).date(), day_time(0), UTC)
        with transaction(self.engine) as connection:
            lock_features(connection)
            if not take_mark(connection, hour):
                return False
            if hour - timedelta(milliseconds=SESSION_MS + COPIES_MS) >= kept_since:
                replace_hour(connection, hour, archived_features(self.data_dir, hour))
                replace_bought(connection, hour, archived_bought(self.data_dir, hour), self.now())
        took_s = time.monotonic() - begun
        is_open = self.now() < hour + HOUR + SETTLED
        self._again_at_s[hour] = time.monotonic() + max(OPEN_EVERY_S if is_open else CLOSED_EVERY_S, PATIENCE * took_s)
        return True

"""The ingest boundary: rows in, verdicts out; what is accepted is in the log before its verdict is given."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Literal, NamedTuple

import orjson

from core.errors import BadRecord
from core.ports import EventLog, LogBatch
from core.usage import UsageRecord
from core.windows import epoch_ms, from_epoch_ms
from ingest.usage.bought_place import in_its_place
from ingest.usage.classes import ClassScorer
from ingest.usage.identity_map import IdentityMapper
from ingest.usage.rows import BadRow, ParsedRow, Prepared, ReadRow, prepare

AHEAD = timedelta(minutes=5)
"""A clock may be this much ahead of ours; a record further in the future is quarantined."""
DEDUPE_HORIZON = timedelta(days=7)
DAY_MS = 86_400_000
_DAYS_KEPT = 10_000
Outcome = Literal["accepted", "duplicate", "quarantined"]


class Verdict(NamedTuple):
    """What became of one row. ``position`` is its line (from 1) or its index in a JSON array (from 0)."""

    position: int
    request_id: str
    verdict: Outcome
    field: str = ""
    reason: str = ""


class RecentIds:
    """The last ids accepted, at least ``size`` and at most twice as many."""

    def __init__(self, size: int = 200_000) -> None:
        self._size, self._lock = size, threading.Lock()
        self._young: set[str] = set()
        self._old: set[str] = set()

    def among(self, request_ids: Collection[str]) -> set[str]:
        """Those of some ids that are among the last."""
        with self._lock:
            return self._young.intersection(request_ids) | self._old.intersection(request_ids)

    def add(self, request_ids: Iterable[str]) -> None:
        with self._lock:
            self._young.update(request_ids)
            if len(self._young) >= self._size:
                self._old, self._young = self._young, set()


class UsageIngest:
    """Judges rows and appends them. Several threads may share one.

    ``ensure_partitions`` makes the database's partitions for some instants; ``archive_has`` says which of some ids the raw
    archive holds. The ``duplicate`` verdict is best effort (this batch, recent ids, the archive for
    old rows): the stream decides.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        now: Callable[[], datetime],
        ensure_partitions: Callable[[set[datetime]], None],
        archive_has: Callable[[Collection[str]], set[str]],
        horizon: timedelta = DEDUPE_HORIZON,
        recent_ids: RecentIds | None = None,
        identity: IdentityMapper | None = None,
        classes: ClassScorer | None = None,
    ) -> None:
        self._log, self._now, self._horizon = log, now, horizon
        self._ensure, self._archive_has = ensure_partitions, archive_has
        self._recent = RecentIds() if recent_ids is None else recent_ids
        self._identity, self._classes = identity, classes
        self._days: set[int] = set()
        self.unmapped: Counter[str] = Counter()
        """How often a source field nobody explains was seen, by name."""

    def accept(
        self, rows: Iterable[ParsedRow | UsageRecord], *, source: str = "api", within: tuple[str, ...] = ()
    ) -> list[Verdict]:
        """One verdict per row, in order. Raises DiskFull (retryable): then nothing was accepted, send it again.

        What a vendor answered is put into the vendor's deployment, then identity rules are applied; ``within`` is the tenant path
        a caller is bound to, beyond which no rule may lead.
        """
        parsed: Sequence[ParsedRow] = [in_its_place(prepare(row) if isinstance(row, UsageRecord) else row) for row in rows]
        if self._identity is not None:
            parsed = self._identity.apply(parsed, within)
        batch = _Batch(self._now(), self._horizon, self._recent.among([row.request_id for row in parsed]))
        for row in parsed:
            batch.judge(row)
        if batch.old:
            batch.drop(self._archive_has(list(batch.old)))
        self._quarantine(batch.bad, source)
        self._append([row for row in batch.fresh if row is not None])
        return batch.verdicts

    def _quarantine(self, bad: list[BadRow], source: str) -> None:
        if bad:
            received_at = self._now()
            self._log.append("quarantine", LogBatch([quarantine_line(row, source, received_at) for row in bad]))

    def _append(self, fresh: list[Prepared]) -> None:
        if not fresh:
            return
        days = {row.first_ms // DAY_MS for row in fresh} | {row.finished_ms // DAY_MS for row in fresh}
        if new := days - self._days:
            self._ensure({from_epoch_ms(day * DAY_MS) for day in new})
            self._days = new | (self._days if len(self._days) < _DAYS_KEPT else set())
        lines = [row.line for row in fresh] if self._classes is None else self._classes.lines(fresh)
        self._log.append("usage", LogBatch(lines, [row.record for row in fresh]))
        self._recent.add([row.request_id for row in fresh])
        for row in fresh:
            if row.unmapped:
                self.unmapped.update(row.unmapped)


class _Batch:
    """Verdicts of one batch while it is judged. ``taken`` are the ids already accepted; those accepted here join them."""

    def __init__(self, now: datetime, horizon: timedelta, taken: set[str]) -> None:
        self.now, self.taken = now, taken
        self.latest_ms, self.horizon_ms = epoch_ms(now + AHEAD), epoch_ms(now - horizon)
        self.verdicts: list[Verdict] = []
        self.fresh: list[Prepared | None] = []
        self.bad: list[BadRow] = []
        self.old: dict[str, tuple[int, int]] = {}

    def judge(self, row: ParsedRow) -> None:
        if isinstance(row, Prepared):
            self._judge_record(row)
        elif isinstance(row, ReadRow):
            self.verdicts.append(Verdict(row.position, row.request_id, "duplicate", "call_type", row.reason))
        else:
            self._refuse(row)

    def _judge_record(self, row: Prepared) -> None:
        position, request_id, _, finished_ms = row[:4]
        if finished_ms > self.latest_ms:
            at, now = from_epoch_ms(finished_ms).isoformat(), self.now.astimezone(UTC).isoformat()
            error = BadRecord(
                f"is more than 5 minutes after now ({now})", field="finished_at", value=at, hint="check the sender's clock"
            )
            self._refuse(BadRow(position, error, {"request_id": request_id, "finished_at": at}, request_id))
        elif request_id in self.taken:
            self.verdicts.append(Verdict(position, request_id, "duplicate", "request_id", "was already accepted"))
        else:
            if finished_ms < self.horizon_ms:
                self.old[request_id] = len(self.verdicts), len(self.fresh)
            self.taken.add(request_id)
            self.fresh.append(row)
            self.verdicts.append(Verdict(position, request_id, "accepted"))

    def drop(self, archived: set[str]) -> None:
        """Old records the archive already holds are duplicates."""
        for request_id in archived & self.old.keys():
            place, number = self.old[request_id]
            position = self.verdicts[place].position
            self.verdicts[place] = Verdict(position, request_id, "duplicate", "request_id", "is in the archive")
            self.fresh[number] = None

    def _refuse(self, row: BadRow) -> None:
        self.bad.append(row)
        self.verdicts.append(Verdict(row.position, row.request_id, "quarantined", row.error.field, reason(row.error)))


def reason(error: BadRecord) -> str:
    """Why, without the place: message, value and hint. A value that could be text is left out."""
    value = error.value
    shown = f" (value {str(value)[:60]!r})" if isinstance(value, (int, float)) or _label(value) else ""
    return f"{error.message}{shown}. {error.hint}".rstrip(" .") + "."


def _label(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 40 and value.isprintable()


def quarantine_line(row: BadRow, source: str, received_at: datetime) -> str:
    """The JSON line of topic ``quarantine``. Its id is a hash of source, place, reason and body: a second run adds nothing."""
    place, why, field = f"{source}:{row.position}", _clean(reason(row.error)), _clean(row.error.field)[:120]
    body = orjson.dumps(row.body, option=orjson.OPT_SORT_KEYS)
    digest = blake2b("\0".join((place, field, why)).encode() + body, digest_size=16).hexdigest()
    line = {
        "id": digest, "received_at": received_at, "source": source, "place": place, "field": field, "reason": why,
        "body": row.body,
    }  # fmt: skip
    return orjson.dumps(line, option=orjson.OPT_UTC_Z).decode()


def _clean(text: str) -> str:
    """Valid UTF-8 without NUL, which PostgreSQL does not take."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")

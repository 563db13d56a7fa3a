"""Standing check: the usage rollups of every finished day are the sums of its raw archive rows, deployment by deployment.

A day is compared a while after its end, again when a difference was seen, and again every week as long as its archive is kept;
one day is one slice of work. A difference seen twice, an hour or more apart, is a data fault with a name: late records may for a
moment be in the rollups and not yet in the archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from sqlalchemy import Engine

from core.usage import Deployment
from core.windows import Window, require_utc
from eventlog.archive_manifest import files_of
from eventlog.archive_sql import MINUTE_MEASURES, usage_sums
from models.database import transaction
from models.standing_repo import (
    LEVELS,
    StandingCheck,
    Sums,
    checked_days,
    list_checks,
    note_fault,
    replace_checks,
    rollup_sums,
)

SETTLED_AFTER = timedelta(hours=3)
"""After its end a day's requests (an hour at most) have finished, been sent and been archived."""
LOOK_BACK = timedelta(days=35)
AGAIN_AFTER = timedelta(days=7)
CONFIRM_AFTER = timedelta(hours=1)


def check_day(engine: Engine, data_dir: Path, day: date, now: datetime) -> list[StandingCheck]:
    """Compare one UTC day now and keep the result; nothing for a day without archive files and rollups."""
    start = datetime.combine(day, time(0), UTC)
    raw = {
        Deployment(*place): dict(zip(MINUTE_MEASURES, sums, strict=True))
        for place, sums in usage_sums(data_dir, Window(start, start + timedelta(days=1))).items()
    }
    with transaction(engine) as connection:
        rollups = rollup_sums(connection, day)
        before = {check.deployment: check for check in list_checks(connection, day, day)}
        checks = [
            _compared(day, place, raw.get(place, {}), rollups.get(place, {}), before.get(place), now)
            for place in sorted({*raw, *rollups})
        ]
        replace_checks(connection, day, checks)
        for check in checks:
            if check.differs_since is not None and now - check.differs_since >= CONFIRM_AFTER:
                note_fault(connection, check)
    return checks


def check_next(engine: Engine, data_dir: Path, now: datetime) -> date | None:
    """Compare the one finished day that waits longest for it; returns the day, None when none is due."""
    day = next(due_days(engine, data_dir, now), None)
    if day is not None:
        check_day(engine, data_dir, day, now)
    return day


def due_days(engine: Engine, data_dir: Path, now: datetime) -> Iterator[date]:
    """Finished, archived days to compare: those with a difference, those never compared (newest first), those due again."""
    last = (require_utc(now) - SETTLED_AFTER).date() - timedelta(days=1)
    first = last - LOOK_BACK
    archived = {_day_of(path) for path in files_of(data_dir, "usage", first, last)}
    with transaction(engine) as connection:
        checked = checked_days(connection, first)
    yield from sorted(day for day in archived if day in checked and checked[day][1] and now - checked[day][0] >= CONFIRM_AFTER)
    yield from sorted((day for day in archived if day not in checked), reverse=True)
    again = [day for day in archived if day in checked and not checked[day][1] and now - checked[day][0] >= AGAIN_AFTER]
    yield from sorted(again, key=lambda day: checked[day][0])


def _day_of(path: Path) -> date:
    return date.fromisoformat(path.parent.name.removeprefix("date="))


def _compared(
    day: date, place: Deployment, raw: Sums, rollups: dict[str, Sums], before: StandingCheck | None, now: datetime
) -> StandingCheck:
    detail = {}
    for name in MINUTE_MEASURES:
        said = {"archive": raw.get(name, 0), **{level: rollups.get(level, {}).get(name, 0) for level in LEVELS}}
        if len(set(said.values())) > 1:
            detail[name] = said
    since = (before.differs_since if before is not None and before.differs_since else now) if detail else None
    return StandingCheck(day, place, "difference" if detail else "ok", raw.get("requests", 0), detail, since, now)

"""Standing checks: the rollups' sums of a day, and what the last comparison said."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import Connection, delete, select, text
from sqlalchemy.dialects.postgresql import insert

from core.usage import Deployment
from models.tables_quality import StandingCheckRow
from models.tables_usage import USAGE_MEASURES, DataFaultRow

LEVELS: tuple[str, ...] = ("minute", "hour", "day")
Sums = Mapping[str, int]
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class StandingCheck:
    """One day of one deployment; see ``StandingCheckRow``."""

    day: date
    deployment: Deployment
    status: str
    requests: int
    detail: Mapping[str, Any]
    differs_since: datetime | None
    checked_at: datetime


def rollup_sums(connection: Connection, day: date) -> dict[Deployment, dict[str, Sums]]:
    """Sums of each usage rollup that holds the UTC day, by deployment and level."""
    start = datetime.combine(day, time(0), UTC)
    sums = ", ".join(f"sum({name})::numeric AS {name}" for name in USAGE_MEASURES)
    found: dict[Deployment, dict[str, Sums]] = {}
    for level in LEVELS:
        query = text(
            f"SELECT cluster, namespace, model_id, {sums} FROM usage_{level} WHERE {level} >= :start AND {level} < :end "
            "GROUP BY cluster, namespace, model_id"
        )
        for row in connection.execute(query, {"start": start, "end": start + DAY}).mappings():
            deployment = Deployment(row["cluster"], row["namespace"], row["model_id"])
            found.setdefault(deployment, {})[level] = {name: int(row[name]) for name in USAGE_MEASURES}
    return found


def checked_days(connection: Connection, first: date) -> dict[date, tuple[datetime, bool]]:
    """Days from ``first`` on that were checked: when last, and whether a difference stands."""
    c = StandingCheckRow
    found: dict[date, tuple[datetime, bool]] = {}
    for day, at, differs in connection.execute(select(c.day, c.checked_at, c.status != "ok").where(c.day >= first)):
        last, differed = found.get(day, (at, False))
        found[day] = (min(last, at), differed or differs)
    return found


def replace_checks(connection: Connection, day: date, checks: Collection[StandingCheck]) -> None:
    """Put the newest comparison of a day in the place of the one before."""
    connection.execute(delete(StandingCheckRow).where(StandingCheckRow.day == day))
    for check in checks:
        place = check.deployment
        connection.execute(
            insert(StandingCheckRow).values(
                day=day, cluster=place.cluster, namespace=place.namespace, model_id=place.model_id, status=check.status,
                requests=check.requests, detail=dict(check.detail), differs_since=check.differs_since,
                checked_at=check.checked_at,
            )
        )  # fmt: skip


def list_checks(connection: Connection, first: date, last: date) -> list[StandingCheck]:
    """Newest comparisons of the UTC days ``first..last``, newest day first."""
    c = StandingCheckRow
    query = select(c).where(c.day >= first, c.day <= last).order_by(c.day.desc(), c.cluster, c.namespace, c.model_id)
    return [
        StandingCheck(
            row.day, Deployment(row.cluster, row.namespace, row.model_id), row.status, row.requests, row.detail,
            row.differs_since, row.checked_at,
        )
        for row in connection.execute(query)
    ]  # fmt: skip


def newest_check(connection: Connection) -> datetime | None:
    """When a day was last compared; None: never."""
    query = select(StandingCheckRow.checked_at).order_by(StandingCheckRow.checked_at.desc()).limit(1)
    return connection.execute(query).scalar_one_or_none()


def note_fault(connection: Connection, check: StandingCheck) -> None:
    """A difference that stands becomes a data fault of its day, once."""
    start = datetime.combine(check.day, time(0), UTC)
    connection.execute(
        insert(DataFaultRow)
        .values(
            id=f"standing:{check.day.isoformat()}:{check.deployment}", kind="rollup_difference", source=str(check.deployment),
            window_start=start, window_end=start + DAY, detail=dict(check.detail), noticed_at=check.checked_at,
        )
        .on_conflict_do_nothing(index_elements=["id"])
    )  # fmt: skip

"""Features of requests: which hours are to be computed, their rows, and the figures people read of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import insert

from core.features import MEASURES, HourFeatures
from models.tables_features import FeatureDirtyRow, FeatureFileRow, FeatureHourRow, ToolEdgeHourRow

FEATURE_KEYS = ("cluster", "namespace", "model_id", "org", "team")
EDGE_KEYS = ("cluster", "namespace", "model_id", "org", "from_tool", "to_tool")
FEATURES_LOCK = 7_360_713
"""Advisory lock of whoever marks or computes hours: two take turns."""


def lock_features(connection: Connection) -> None:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": FEATURES_LOCK})


def unnoted_files(connection: Connection, names: Sequence[str]) -> list[str]:
    """Those of ``names`` whose hours were never marked, in their order."""
    found = connection.execute(text("SELECT name FROM feature_file WHERE name = ANY(:names)"), {"names": list(names)})
    known = set(found.scalars())
    return [name for name in names if name not in known]


def note_files(connection: Connection, names: Collection[str], hours: Iterable[datetime], now: datetime) -> None:
    """Remember the files and mark the hours they touch."""
    if names:
        rows = [{"name": name, "noted_at": now} for name in sorted(names)]
        connection.execute(insert(FeatureFileRow).on_conflict_do_nothing(), rows)
    marked = [{"hour": hour} for hour in sorted(set(hours))]
    if marked:
        connection.execute(insert(FeatureDirtyRow).on_conflict_do_nothing(), marked)


def dirty_hours(connection: Connection) -> list[datetime]:
    """Hours to compute, newest first."""
    found = connection.execute(text("SELECT hour FROM feature_dirty ORDER BY hour DESC"))
    return [hour.astimezone(UTC) for hour in found.scalars()]


def take_mark(connection: Connection, hour: datetime) -> bool:
    """Remove the hour's mark; False when it has none. The caller holds the lock and computes the hour in this transaction."""
    return connection.execute(text("DELETE FROM feature_dirty WHERE hour = :hour"), {"hour": hour}).rowcount == 1


def replace_hour(connection: Connection, hour: datetime, found: HourFeatures) -> None:
    """Put the hour's rows in the place of its former ones."""
    sums = [{**_named(FEATURE_KEYS, key), **_named(MEASURES, row)} for key, row in found.rows.items()]
    steps = [{**_named(EDGE_KEYS, key), "steps": number} for key, number in found.edges.items()]
    for table, rows in ((FeatureHourRow, sums), (ToolEdgeHourRow, steps)):
        connection.execute(text(f"DELETE FROM {table.__tablename__} WHERE hour = :hour"), {"hour": hour})
        if rows:
            connection.execute(insert(table), [{"hour": hour, **row} for row in rows])


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def forget_files(connection: Connection, before: datetime) -> None:
    """Drop the names of files noted before ``before``: retention has removed them from the archive."""
    connection.execute(text("DELETE FROM feature_file WHERE noted_at < :before"), {"before": before})

"""Names of metrics that are not understood, and those that went away: per source, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, text

from core.windows import Window


@dataclass(frozen=True, slots=True)
class StrangeName:
    """``unmapped``: on the page, and in no file of the name table. ``vanished``: was on the page and is no longer; then
    ``last_seen`` is when it was missed (last), and the name is canonical."""

    source: str
    name: str
    state: Literal["unmapped", "vanished"]
    first_seen: datetime
    last_seen: datetime


_NAMES = text("""
    SELECT source, name, state, min(window_start) AS first_seen, max(window_end) AS last_seen FROM (
        SELECT source, jsonb_array_elements_text(detail -> 'names') AS name, 'unmapped' AS state, window_start, window_end
        FROM data_fault WHERE kind = 'unmapped_metrics' AND window_start < :end AND window_end > :start
        UNION ALL
        SELECT source, detail ->> 'name', 'vanished', window_start, window_end
        FROM data_fault WHERE kind = 'metric_vanished' AND window_start < :end AND window_end > :start
    ) AS told GROUP BY source, name, state ORDER BY source, state, name LIMIT :limit
""")


def strange_names(connection: Connection, window: Window, limit: int = 1000) -> list[StrangeName]:
    """By source; what a page still shows is told at least hourly, so ``last_seen`` is right to the hour."""
    rows = connection.execute(_NAMES, {"start": window.start, "end": window.end, "limit": limit})
    return [StrangeName(*row) for row in rows]

"""Brings the topics ``quarantine`` and ``fault`` (one JSON object a line) into their tables, each line once."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.dialects.postgresql import insert

from core.errors import BadInput
from core.ports import LogLine
from core.windows import require_utc
from eventlog.reader import read_log
from models.database import transaction
from models.tables import DataFaultRow, QuarantineRow, StreamStateRow

BATCH = 1_000
TABLES: dict[str, type[QuarantineRow] | type[DataFaultRow]] = {"quarantine": QuarantineRow, "fault": DataFaultRow}
TIMES = frozenset({"received_at", "window_start", "window_end", "noticed_at"})

log = logging.getLogger("tokenfuse.stream")


def import_topic(engine: Engine, log_folder: Path, topic: str, now: datetime) -> int:
    """Insert the lines after the last imported one, in one transaction with the new offset; returns how many were read."""
    with transaction(engine) as connection:
        lines = next_lines(connection, log_folder, topic)
        if not lines:
            return 0
        rows = [row for line in lines if (row := _row(topic, line.offset, line.line)) is not None]
        if rows:
            connection.execute(insert(TABLES[topic]).on_conflict_do_nothing(index_elements=["id"]), rows)
        remember_offset(connection, topic, lines[-1].offset, len(lines), now)
    return len(lines)


def next_lines(connection: Connection, log_folder: Path, topic: str) -> list[LogLine]:
    """At most ``BATCH`` lines after the last remembered one; another import of the topic waits for this transaction."""
    state = connection.execute(text("SELECT checkpoint FROM stream_state WHERE topic = :topic FOR UPDATE"), {"topic": topic})
    return list(read_log(log_folder, topic, state.scalar() or None, BATCH))


def _row(topic: str, offset: str, line: str) -> Mapping[str, Any] | None:
    """The table's row of one line; a line that is none is reported and passed over, for it will never be."""
    try:
        fields = json.loads(line)
        names = [column.name for column in TABLES[topic].__table__.columns]
        return {name: _time(name, fields[name]) if name in TIMES else fields[name] for name in names}
    except (ValueError, KeyError, TypeError, BadInput) as error:
        log.error("line cannot be taken into the database", extra={"topic": topic, "offset": offset, "reason": str(error)})
        return None


def _time(name: str, value: str) -> datetime:
    return require_utc(datetime.fromisoformat(value), name)


def remember_offset(connection: Connection, topic: str, offset: str, lines: int, now: datetime) -> None:
    """The next import of ``topic`` reads on after ``offset``; in the transaction of what these lines changed."""
    state = StreamStateRow.__table__
    start = {"catching_up": False, "log_lines": lines, "read_lines": lines, "checkpoint": offset, "updated_at": now}
    statement = insert(StreamStateRow).values(topic=topic, **start)
    more = {"log_lines": state.c.log_lines + lines, "read_lines": state.c.read_lines + lines}
    statement = statement.on_conflict_do_update(index_elements=["topic"], set_={**more, "checkpoint": offset, "updated_at": now})
    connection.execute(statement)

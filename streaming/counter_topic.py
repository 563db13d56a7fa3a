"""Folds the topic ``counter`` (one JSON point a line) into the gateway counters, each point once.

The points, the states of their series and the offset read up to are changed in one transaction, so a crash repeats nothing; a
point that a sender sent again is known by its series and time.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine

from core.gateway_counter import CounterPoint, SeriesState, by_minute, fold
from core.ports import LogLine
from models.database import transaction
from models.gateway_counter_repo import add_tokens, lock_series, save_series
from streaming.side_topics import next_lines, remember_offset

TOPIC = "counter"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEYS = ("source", "metric", "cluster", "namespace", "model_id", "token_type")
log = logging.getLogger("tokenfuse.stream")


class _Line(NamedTuple):
    series: str
    keys: tuple[str, ...]
    point: CounterPoint


def import_counters(engine: Engine, log_folder: Path, now: datetime) -> int:
    """Fold every line after the last one read; returns how many were read."""
    total = 0
    while True:
        with transaction(engine) as connection:
            lines = next_lines(connection, log_folder, TOPIC)
            if not lines:
                return total
            _fold(connection, [line for given in lines if (line := _parsed(given)) is not None], now)
            remember_offset(connection, TOPIC, lines[-1].offset, len(lines), now)
        total += len(lines)


def _fold(connection: Connection, lines: Sequence[_Line], now: datetime) -> None:
    states = lock_series(connection, {line.series for line in lines})
    changed: dict[str, SeriesState] = {}
    sums: Counter[tuple[Any, ...]] = Counter()
    for line in lines:
        before = states.get(line.series)
        after, increase = fold(before, line.point)
        if after is not before:
            states[line.series] = changed[line.series] = after
        for minute_ms, tokens in by_minute(increase) if increase is not None else ():
            sums[(EPOCH + timedelta(milliseconds=minute_ms), *line.keys)] += tokens
    add_tokens(connection, sums)
    save_series(connection, changed, now)


def _parsed(line: LogLine) -> _Line | None:
    """A line of ``ingest.otlp.genai_metrics``; one that is none is reported and passed over, for it will never be."""
    try:
        given = json.loads(line.line)
        point = CounterPoint(given["start_ns"], given["at_ns"], given["value"], given["delta"])
        return _Line(given["series"], tuple(given[name] for name in _KEYS), point)
    except (ValueError, KeyError, TypeError) as error:
        log.error("line cannot be taken into the database", extra={"topic": TOPIC, "offset": line.offset, "reason": str(error)})
        return None

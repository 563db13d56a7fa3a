"""Workload classes at the boundary: the class number in the log lines of a batch, by the model of each request's finish.

The batch is scored in columns: taking the counts out of the lines is what costs; a handful of requests is scored one by one,
for which columns would be dearer. Records keep their bytes: the class stands in the line alone, which the archive keeps too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import orjson

from core.features import ANSWERED
from core.usage import LINE_COLUMNS, USAGE_SOURCES
from core.windows import epoch_ms
from core.workload import TOOL_ENDS, UNSCORED, WorkloadModel, calls_tool, score, shape
from core.workload_columns import RequestColumns, score_columns
from ingest.usage.refreshed import REFRESH_S, Refreshed
from ingest.usage.rows import Prepared
from models.workload_repo import ActiveModels

FEW = 12
_AFTER = len(LINE_COLUMNS) - LINE_COLUMNS.index("workload_class")
"""Columns from the class on; none of them is ever quoted."""
_SCORED = tuple(f",{status},{source}" for status in sorted(ANSWERED) for source in USAGE_SOURCES if source != "missing")
_RAW = b',"raw":{'
_FINISH = re.compile(rb'"finish_reason":"([^"\\]*+)"')
_ENDS = frozenset(end.encode() for end in TOOL_ENDS)
Load = Callable[[str], "ActiveModels | None"]


class _Facts(NamedTuple):
    """What a line and its record tell; ``head`` is the line before the class, ``tool`` 1, 0 or -1 (unknown)."""

    head: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    tool: int
    known: bool


class ClassScorer:
    """Scores batches; several threads may share one. ``clock`` is monotonic seconds."""

    def __init__(self, load: Load, clock: Callable[[], float], *, refresh_s: float = REFRESH_S) -> None:
        self._models: Refreshed[ActiveModels, _Models] = Refreshed(
            load, _Models, clock, empty=_Models(ActiveModels()), what="workload classes", refresh_s=refresh_s
        )

    def lines(self, rows: Sequence[Prepared]) -> list[str]:
        """The log lines of valid records with their class. Raises what ``load`` raises until models were read once."""
        return self._models.value().lines(rows)


class _Models:
    """The versions of one state by the instant (ms) they hold from."""

    def __init__(self, state: ActiveModels) -> None:
        self._models = state.models
        self._starts = np.array([epoch_ms(model.valid_from) for model in state.models], np.int64)

    def lines(self, rows: Sequence[Prepared]) -> list[str]:
        if not self._models:
            return [row.line for row in rows]
        facts = [_facts(row.line, row.record) for row in rows]
        periods = np.searchsorted(self._starts, np.array([row.finished_ms for row in rows], np.int64), side="right")
        numbers = np.full(len(rows), UNSCORED, np.int64)
        for period in set(periods.tolist()) - {0}:
            places = np.flatnonzero(periods == period)
            numbers[places] = _numbers(self._models[period - 1], [facts[place] for place in places.tolist()])
        return [
            row.line if number == UNSCORED else f"{one.head},{number}{row.line[len(one.head) + 2 :]}"
            for row, one, number in zip(rows, facts, numbers.tolist(), strict=True)
        ]


def _numbers(model: WorkloadModel, facts: Sequence[_Facts]) -> Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    if len(facts) < FEW:
        return [_number(model, one) for one in facts]
    columns = [np.array(column, np.int64) for column in list(zip(*facts, strict=True))[1:]]
    return score_columns(model, RequestColumns(columns[0], columns[1], columns[2], columns[3], columns[4] == 1))


def _number(model: WorkloadModel, one: _Facts) -> int:
    if not one.known:
        return UNSCORED
    tool = None if one.tool < 0 else bool(one.tool)
    return score(model, shape(one.input_tokens, one.cached_tokens, one.output_tokens, tool))


def _facts(line: str, record: bytes) -> _Facts:
    head, _, uncached, read, write_5m, write_1h, output, _ = line.rsplit(",", _AFTER)[:8]
    into = int(uncached) + int(read) + int(write_5m) + int(write_1h)
    return _Facts(head, into, int(read), int(output), _tool(record), head.endswith(_SCORED))


def _tool(record: bytes) -> int:
    """``core.workload.calls_tool`` of a full record. Its own members stand before ``raw``; only ``policy`` could hold names like
    theirs before it, and then the record is parsed."""
    end = record.find(_RAW)
    end = len(record) if end < 0 else end
    if record.find(b'"policy":', 0, end) >= 0:
        found = orjson.loads(record)
        called = calls_tool(found.get("tools") or (), found.get("finish_reason") or "")
        return -1 if called is None else int(called)
    if record.find(b'"tools":["', 0, end) >= 0:
        return 1
    reason = _FINISH.search(record, 0, end)
    if reason is None:
        return 0 if record.find(b'"finish_reason":"', 0, end) >= 0 else -1
    return int(reason[1] in _ENDS) if reason[1] else -1

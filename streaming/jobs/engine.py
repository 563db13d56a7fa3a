"""The engine and GPU folds as one keyed Flink function: state in, a pure step of ``core``, state out. No arithmetic here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, OutputTag, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor

from core import engine_fold, gpu_fold
from core.engine import LINE_COLUMNS
from core.engine_line import is_gpu_line, parse_gpu_line, parse_line
from streaming.plan import Columns

ENGINE_LINES = (
    f"SELECT target || '|' || engine || '|' || model_id AS engine_key, {', '.join(LINE_COLUMNS)}, segment FROM engine_log"
)


def row_type(columns: Columns) -> Any:
    """The type of a fold's rows: exactly a plan's delta columns, for one projection more renumbers an older plan's operators."""
    types = [Types.STRING() if sql_type == "STRING" else Types.LONG() for _, sql_type in columns]
    return Types.ROW_NAMED([name for name, _ in columns], types)


def gpu_change(columns: Columns) -> OutputTag:
    """GPUs are folded beside the engines and leave by a side output, so that the operators of an older plan keep their ids."""
    return OutputTag("gpu-change", row_type(columns))


STATE = "engine.v1"
"""The state's name in every checkpoint, whatever its bytes say: a newer program still drains an older plan's checkpoint."""
WARM_SEGMENT = "warmup-"
"""A line of such a segment (``streaming.warmup``) was counted by an earlier job: it is taken into the state and emits nothing."""


class FoldEngine(KeyedProcessFunction):
    """One engine's or GPU's samples to its minute increases. State: the bytes of ``core.fold.encode_state``, by its own rules.

    Rows have the delta columns of the plan, which may be an older one's; one without GPUs lets their increases go.
    """

    def __init__(self, deltas: Mapping[str, Columns]) -> None:
        self._engine_columns = deltas["engine"]
        self._gpu_columns = deltas.get("gpu")

    def open(self, runtime_context: RuntimeContext) -> None:
        self._gpu_tag = None if self._gpu_columns is None else gpu_change(self._gpu_columns)
        self._state = runtime_context.get_state(ValueStateDescriptor(STATE, Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row | tuple[OutputTag, Row]]:
        held = self._state.value()
        _key, *fields, segment = tuple(value)
        if is_gpu_line(fields):
            after, rows = self._gpu_rows(held, fields)
        else:
            after, rows = self._engine_rows(held, fields)
        self._state.update(after)
        if not segment.startswith(WARM_SEGMENT):
            yield from rows

    def _engine_rows(self, held: bytes | None, fields: Sequence[str]) -> tuple[bytes, list[Row]]:
        state, deltas = engine_fold.fold(None if held is None else engine_fold.decode_state(held), parse_line(fields))
        return engine_fold.encode_state(state), [_row(delta, self._engine_columns) for delta in deltas]

    def _gpu_rows(self, held: bytes | None, fields: Sequence[str]) -> tuple[bytes, list[tuple[OutputTag, Row]]]:
        state, deltas = gpu_fold.fold(None if held is None else gpu_fold.decode_state(held), parse_gpu_line(fields))
        tag, columns = self._gpu_tag, self._gpu_columns
        rows = [] if tag is None or columns is None else [(tag, _row(delta, columns)) for delta in deltas]
        return gpu_fold.encode_state(state), rows


def _row(delta: Any, columns: Columns) -> Row:
    measures = delta.measures
    return Row(*(measures[name] if name in measures else getattr(delta, name) for name, _ in columns))

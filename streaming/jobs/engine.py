"""The engine and GPU folds as one keyed Flink function: state in, a pure step of ``core``, state out. No arithmetic here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, OutputTag, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor

from core import engine_fold, gpu_fold
from core.engine import LINE_COLUMNS
from core.engine_line import is_gpu_line, parse_gpu_line, parse_line
from models.tables_gpu import GPU_KEYS, GPU_MEASURES
from models.tables_usage import ENGINE_MEASURES
from streaming.plan import DELTAS, ENGINE_DIMENSIONS

ENGINE_LINES = (
    f"SELECT target || '|' || engine || '|' || model_id AS engine_key, {', '.join(LINE_COLUMNS)}, segment FROM engine_log"
)


def _row_type(kind: str) -> Any:
    columns = DELTAS[kind]
    types = [Types.STRING() if sql_type == "STRING" else Types.LONG() for _, sql_type in columns]
    return Types.ROW_NAMED([name for name, _ in columns], types)


ENGINE_CHANGE = _row_type("engine")
GPU_CHANGE = OutputTag("gpu-change", _row_type("gpu"))
"""GPUs are folded beside the engines and leave by a side output, so that the operators of an older plan keep their ids."""
STATE = "engine.v1"
"""The state's name in every checkpoint, whatever its bytes say: a newer program still drains an older plan's checkpoint."""
WARM_SEGMENT = "warmup-"
"""A line of such a segment (``streaming.warmup``) was counted by an earlier job: it is taken into the state and emits nothing."""


class FoldEngine(KeyedProcessFunction):
    """One engine's or GPU's samples to its minute increases. State: the bytes of ``core.fold.encode_state``, by its own rules."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor(STATE, Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row | tuple[OutputTag, Row]]:
        held = self._state.value()
        _key, *fields, segment = tuple(value)
        if is_gpu_line(fields):
            after, rows = _gpu_rows(held, fields)
        else:
            after, rows = _engine_rows(held, fields)
        self._state.update(after)
        if not segment.startswith(WARM_SEGMENT):
            yield from rows


def _engine_rows(held: bytes | None, fields: Sequence[str]) -> tuple[bytes, list[Row]]:
    state, deltas = engine_fold.fold(None if held is None else engine_fold.decode_state(held), parse_line(fields))
    rows = [_row(delta, ENGINE_DIMENSIONS, ENGINE_MEASURES) for delta in deltas]
    return engine_fold.encode_state(state), rows


def _gpu_rows(held: bytes | None, fields: Sequence[str]) -> tuple[bytes, list[tuple[OutputTag, Row]]]:
    state, deltas = gpu_fold.fold(None if held is None else gpu_fold.decode_state(held), parse_gpu_line(fields))
    rows = [(GPU_CHANGE, _row(delta, GPU_KEYS, GPU_MEASURES)) for delta in deltas]
    return gpu_fold.encode_state(state), rows


def _row(delta: Any, keys: Sequence[str], measures: Sequence[str]) -> Row:
    return Row(delta.minute_ms, *(getattr(delta, name) for name in keys), *(delta.measures[name] for name in measures))

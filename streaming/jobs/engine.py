"""The engine fold as a keyed Flink function: state in, pure step of ``core.engine_fold``, state out. No arithmetic here."""

from __future__ import annotations

from collections.abc import Iterator

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor

from core.engine import LINE_COLUMNS
from core.engine_fold import decode_state, encode_state, fold, parse_line
from models.tables_usage import ENGINE_MEASURES
from streaming.plan import DELTAS, ENGINE_DIMENSIONS

ENGINE_LINES = (
    f"SELECT target || '|' || engine || '|' || model_id AS engine_key, {', '.join(LINE_COLUMNS)}, segment FROM engine_log"
)
ENGINE_CHANGE = Types.ROW_NAMED(
    [name for name, _ in DELTAS["engine"]],
    [Types.STRING() if sql_type == "STRING" else Types.LONG() for _, sql_type in DELTAS["engine"]],
)


STATE = "engine.v1"
"""The state's name in every checkpoint, whatever its bytes say: a newer program still drains an older plan's checkpoint."""
WARM_SEGMENT = "warmup-"
"""A line of such a segment (``streaming.warmup``) was counted by an earlier job: it is taken into the state and emits nothing."""


class FoldEngine(KeyedProcessFunction):
    """One engine's samples to its minute increases. State: the bytes of ``core.engine_fold.encode_state``."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor(STATE, Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        held = self._state.value()
        _key, *fields, segment = tuple(value)
        state, deltas = fold(None if held is None else decode_state(held), parse_line(fields))
        self._state.update(encode_state(state))
        for delta in () if segment.startswith(WARM_SEGMENT) else deltas:
            names = (getattr(delta, name) for name in ENGINE_DIMENSIONS)
            yield Row(delta.minute_ms, *names, *(delta.measures[name] for name in ENGINE_MEASURES))

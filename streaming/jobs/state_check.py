"""Before a job starts on a checkpoint that may be left behind in part: is it only the old sources' state that nobody claims?"""

from __future__ import annotations

from typing import Any

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from core.errors import Conflict
from streaming.flink_path import local_path


def require_only_sources_unclaimed(env: StreamExecutionEnvironment, restore: str) -> None:
    """Raises Conflict, naming the operators, when the job in ``env`` has no place for state that is not a source's.

    ``restore`` is a checkpoint folder (``streaming.flink_path``). Only sources keep coordinator state, so that tells them apart.
    """
    known = operator_ids(env)
    lost = [
        str(state.getOperatorID())
        for state in _operator_states(restore)
        if str(state.getOperatorID()) not in known and state.getCoordinatorState() is None and _holds_state(state)
    ]
    if lost:
        hint = (
            "this program numbers its operators otherwise: start the version that wrote it, or recompute with `tokenfuse rebuild`"
        )
        raise Conflict(
            f"checkpoint {restore} holds state of operators {', '.join(lost)} that the new job does not have", hint=hint
        )


def operator_ids(env: StreamExecutionEnvironment) -> set[str]:
    """Ids under which the operators of the job look for state; reading the graph leaves it in place."""
    graph = env._j_stream_execution_environment.getStreamGraph(False).getJobGraph()
    found: set[str] = set()
    for vertex in graph.getVerticesAsArray():
        for pair in vertex.getOperatorIDs():
            found.add(str(pair.getGeneratedOperatorID()))
            if pair.getUserDefinedOperatorID().isPresent():
                found.add(str(pair.getUserDefinedOperatorID().get()))
    return found


def _operator_states(restore: str) -> Any:
    jvm = get_gateway().jvm
    file = local_path(restore) / "_metadata"
    stream = jvm.java.io.DataInputStream(jvm.java.io.FileInputStream(str(file)))
    try:
        loader = jvm.Thread.currentThread().getContextClassLoader()
        return jvm.org.apache.flink.runtime.checkpoint.Checkpoints.loadCheckpointMetadata(
            stream, loader, restore
        ).getOperatorStates()
    finally:
        stream.close()


def _holds_state(state: Any) -> bool:
    parts = (state.getState(index) for index in range(state.getParallelism()))
    return any(part is not None and part.hasState() for part in parts)

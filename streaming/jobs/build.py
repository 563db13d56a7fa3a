"""Builds the Flink job of a plan: sources, engine fold, sinks. A JVM numbers operators on, so one process builds one job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource
from pyflink.datastream.formats.csv import CsvReaderFormat, CsvSchema
from pyflink.table import DataTypes, Schema, StreamTableEnvironment

import streaming
from streaming.delta_columns import delta_folder
from streaming.flink_path import flink_path
from streaming.jobs.engine import ENGINE_LINES, FoldEngine, gpu_change, row_type
from streaming.jobs.state_check import require_only_sources_unclaimed
from streaming.plan import Columns, Plan
from streaming.settings import StreamSettings, scratch_folder

OURS = str(Path(streaming.__file__).parents[1])
"""Where our packages lie: the interpreter inside the JVM runs no ``.pth`` files, so an editable install is unknown to it."""


@dataclass(frozen=True, slots=True)
class JobFolders:
    """Where this run reads and writes. ``usage`` and ``engine`` are the epoch folders; ``restore`` a checkpoint folder or ''."""

    usage: Path
    engine: Path
    checkpoints: Path
    deltas: Path
    restore: str = ""
    new_sources: bool = False
    """True when an epoch began: the sources start afresh and the old sources' state is left behind on purpose."""


def _packages_of(paths: Sequence[str]) -> list[str]:
    """Without a folder with a quote in its name, such as the one the job is started in: the interpreter inside the JVM puts
    each path between quotes and fails on it."""
    return [path for path in paths if path and "'" not in path]


def configuration(plan: Plan, settings: StreamSettings, folders: JobFolders, web_port: int) -> Configuration:
    """Every Flink option this job sets."""
    options = {
        "python.executable": settings.python,
        "python.client.executable": settings.python,
        "python.pythonpath": ":".join([OURS, *_packages_of(sys.path)]),
        "python.execution-mode": plan.engine_mode,
        "parallelism.default": settings.parallelism,
        "pipeline.max-parallelism": plan.max_parallelism,
        "pipeline.object-reuse": "true",
        "io.tmp.dirs": scratch_folder(settings),
        "rest.port": web_port,
        "rest.bind-port": web_port,
        "rest.bind-address": "127.0.0.1",
        "rest.address": "127.0.0.1",
        "jobmanager.bind-host": "127.0.0.1",  # else the blob server takes files from any host
        "execution.checkpointing.interval": f"{settings.checkpoint_ms} ms",
        "execution.checkpointing.min-pause": f"{settings.checkpoint_ms // 2} ms",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": flink_path(folders.checkpoints),
        "execution.checkpointing.num-retained": 2,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.tolerable-failed-checkpoints": 3,
        "state.backend.type": settings.state_backend,
        "state.backend.rocksdb.memory.managed": "true",
        "state.backend.rocksdb.use-bloom-filter": "true",
        "state.backend.rocksdb.timer-service.factory": "HEAP",
        "taskmanager.memory.managed.size": "512 mb",
        "taskmanager.memory.network.max": "128 mb",
        "table.exec.state.ttl": f"{plan.state_ttl_ms} ms",
        "table.exec.uid.generation": "ALWAYS",
        "table.local-time-zone": "UTC",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 3,
        "restart-strategy.fixed-delay.delay": "1 s",
    }
    if folders.restore:
        options["execution.state-recovery.path"] = folders.restore
        options["execution.state-recovery.ignore-unclaimed-state"] = str(folders.new_sources).lower()
    found = Configuration()
    for name, value in options.items():
        found.set_string(name, str(value))
    return found


def build(plan: Plan, settings: StreamSettings, folders: JobFolders, web_port: int) -> StreamExecutionEnvironment:
    """The whole job; ``execute()`` starts it. Raises Conflict when it would leave state behind that is not an old source's."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration(plan, settings, folders, web_port))
    tables = StreamTableEnvironment.create(env)
    _register(tables, "usage_log", _source(env, "usage", folders.usage, plan.usage_columns, settings), plan.usage_columns)
    _register(tables, "engine_log", _source(env, "engine", folders.engine, plan.engine_columns, settings), plan.engine_columns)
    lines = tables.to_data_stream(tables.sql_query(ENGINE_LINES))
    changes = lines.key_by(lambda row: row[0], key_type=Types.STRING()).process(
        FoldEngine(plan.deltas), output_type=row_type(plan.deltas["engine"])
    )
    # one Python interpreter is plenty for a scrape per engine every few seconds
    changes.set_parallelism(1).uid("engine-fold").name("engine fold")
    tables.create_temporary_view("engine_change", tables.from_data_stream(changes))
    if "gpu" in plan.deltas:
        tables.create_temporary_view(
            "gpu_change", tables.from_data_stream(changes.get_side_output(gpu_change(plan.deltas["gpu"])))
        )
    for kind, columns in plan.deltas.items():
        tables.execute_sql(sink_sql(kind, columns, folders.deltas))
    for view in plan.views:
        tables.execute_sql(view)
    statements = tables.create_statement_set()
    for insert in plan.inserts:
        statements.add_insert_sql(insert)
    statements.attach_as_datastream()
    if folders.new_sources:
        require_only_sources_unclaimed(env, folders.restore)
    return env


def sink_sql(kind: str, columns: Columns, deltas: Path) -> str:
    """A CSV folder whose files appear, whole, with the checkpoint that completes them."""
    declared = ", ".join(f"`{name}` {sql_type}" for name, sql_type in columns)
    path = flink_path(delta_folder(deltas, kind, columns)).replace("'", "''")
    return f"""CREATE TEMPORARY TABLE {kind}_delta ({declared}) WITH (
  'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')"""


def _source(env: StreamExecutionEnvironment, topic: str, folder: Path, columns: Columns, settings: StreamSettings) -> DataStream:
    builder = CsvSchema.builder()
    for name, sql_type in columns:
        is_number = sql_type == "BIGINT"
        builder = builder.add_number_column(name, DataTypes.BIGINT()) if is_number else builder.add_string_column(name)
    schema = builder.set_quote_char('"').build()
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), flink_path(folder))
    source = source.monitor_continuously(Duration.of_millis(settings.discovery_ms)).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), f"{topic} log")
    return stream.uid(f"{topic}-source-{folder.name}")


def _register(tables: StreamTableEnvironment, name: str, stream: DataStream, columns: Columns) -> None:
    schema = Schema.new_builder()
    for column, sql_type in columns:
        schema = schema.column(column, sql_type)
    tables.create_temporary_view(name, stream, schema.column_by_expression("pt", "PROCTIME()").build())

"""The recording of a real vLLM behind a real LiteLLM as rollup rows, by the pure rules alone (no stream)."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from bench.year import coarser
from core.engine_fold import FoldState, fold
from core.tokens import TokenCounts
from core.usage import LINE_COLUMNS, Deployment, slices
from core.windows import from_epoch_ms
from ingest.engine.parse import Origin, parse_page
from ingest.engine.replay import FolderPages
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import Prepared, SourceOptions
from models.partitions import ensure_months
from models.tables import EngineMinuteRow, UsageMinuteRow
from models.tables_usage import USAGE_KEYS, USAGE_MEASURES

MODEL = "deepseek-tiny"
PLACE = Deployment("lab", "prod", MODEL)
TARGET = "http://vllm:8000/metrics"
AFTER = datetime(2027, 1, 1, tzinfo=UTC)


def load(connection: Connection, recording: Path) -> None:
    """Fill the rollups from the folder ``recordings/open``."""
    usage, engine = usage_rows(recording), engine_rows(recording)
    ensure_months(connection, [row["minute"] for row in (*usage, *engine)])
    connection.execute(insert(UsageMinuteRow), usage)
    connection.execute(insert(EngineMinuteRow), engine)
    for kind in ("usage", "engine"):
        coarser(connection, kind)


def usage_rows(recording: Path) -> list[dict[str, Any]]:
    sums: dict[tuple[Any, ...], dict[str, int]] = defaultdict(lambda: dict.fromkeys(USAGE_MEASURES, 0))
    seen: set[str] = set()
    with gzip.open(recording / "gateway.jsonl.gz") as stream:
        for row in ADAPTERS["litellm"].rows(stream, SourceOptions(deployment=PLACE)):
            if isinstance(row, Prepared) and row.request_id not in seen:
                seen.add(row.request_id)
                _add(sums, dict(zip(LINE_COLUMNS, next(csv.reader([row.line])), strict=True)))
    return [{"minute": from_epoch_ms(key[0]), **dict(zip(USAGE_KEYS, key[1:], strict=True)), **row} for key, row in sums.items()]


def _add(sums: dict[tuple[Any, ...], dict[str, int]], line: dict[str, str]) -> None:
    names = ("input_uncached", "input_cache_read", "input_cache_write_5m", "input_cache_write_1h", "output", "output_reasoning")
    tokens = TokenCounts(*(int(line[name]) for name in names))
    identity = [int(line[key]) if key == "workload_class" else line[key] for key in USAGE_KEYS]
    for part in slices(
        int(line["first_ms"]),
        int(line["finished_ms"]),
        tokens,
        int(line["duration_ms"]),
        int(line["repeated_input"]),
        int(line["ends_operation"]),
    ):
        row = sums[(part.minute_ms, *identity)]
        for name in names:
            row[name] += getattr(part.tokens, name)
        for name in ("requests", "prefill_context", "kv_work_x2", "duration_ms", "repeated_input", "operations", "end_unknown"):
            row[name] += getattr(part, name)


def engine_rows(recording: Path) -> list[dict[str, Any]]:
    states: dict[Any, FoldState] = {}
    sums: dict[tuple[Any, ...], dict[str, int]] = {}
    origin = Origin("lab", "prod", "node1", MODEL)
    for page in FolderPages(recording / "metrics", TARGET, lambda: AFTER).pages():
        for sample in parse_page(page, origin).samples:
            states[sample.key], deltas = fold(states.get(sample.key), sample)
            for delta in deltas:
                key = (delta.minute_ms, delta.target, delta.engine, delta.node)
                row = sums.setdefault(key, dict.fromkeys(delta.measures, 0))
                for name, value in delta.measures.items():
                    row[name] += value
    place = {"cluster": "lab", "namespace": "prod", "model_id": MODEL}
    return [
        {"minute": from_epoch_ms(minute), **place, "target": target, "engine": engine, "node": node, **row}
        for (minute, target, engine, node), row in sums.items()
    ]

"""What the job computes, as data: enough to build it again later, and a fingerprint that says whether old state fits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from core.engine import LINE_COLUMNS as ENGINE_LINE
from models.tables_gpu import GPU_KEYS, GPU_MEASURES
from models.tables_usage import ENGINE_MEASURES, USAGE_KEYS, USAGE_MEASURES
from streaming.jobs import usage_sql

Columns = tuple[tuple[str, str], ...]
FLINK_VERSION = "2.2"
ENGINE_STATE = "engine.v3"
ENGINE_MODE = "thread"
"""Where the fold runs: in the JVM. A worker ("process") opens a dozen ports to any host, and its state has other names."""
MAX_PARALLELISM = 128
DAY_MS = 86_400_000

ENGINE_COLUMNS: Columns = tuple((name, "BIGINT" if name == "at_ms" else "STRING") for name in (*ENGINE_LINE, "segment"))
ENGINE_DIMENSIONS: tuple[str, ...] = ("cluster", "namespace", "model_id", "target", "engine", "node")
DELTAS: dict[str, Columns] = {
    "usage": (
        ("minute_ms", "BIGINT"),
        *((name, "BIGINT" if name == "workload_class" else "STRING") for name in USAGE_KEYS),
        *((name, "BIGINT") for name in USAGE_MEASURES),
        ("length_input", "BIGINT"),
        ("length_output", "BIGINT"),
    ),
    "progress": (("topic", "STRING"), ("segment", "STRING"), ("lines", "BIGINT")),
    "engine": (
        ("minute_ms", "BIGINT"),
        *((name, "STRING") for name in ENGINE_DIMENSIONS),
        *((name, "BIGINT") for name in ENGINE_MEASURES),
    ),
    "gpu": (
        ("minute_ms", "BIGINT"),
        *((name, "STRING") for name in GPU_KEYS),
        *((name, "BIGINT") for name in GPU_MEASURES),
    ),
}
"""Columns of each delta kind's CSV files, in order; the loader reads them by this. A usage row is one slice of one request."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The job without places, parallelism or ports: ``usage_log`` and ``engine_log`` in, delta files out."""

    flink: str
    usage_columns: Columns
    engine_columns: Columns
    deltas: dict[str, Columns]
    views: tuple[str, ...]
    inserts: tuple[str, ...]
    engine_state: str
    engine_mode: str
    max_parallelism: int
    state_ttl_ms: int

    @property
    def fingerprint(self) -> str:
        """sha256 over everything that decides operator ids and state layout."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"fingerprint": self.fingerprint}

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """A stored plan, to drain it under a newer version of this program."""
        known = {name: fields[name] for name in cls.__dataclass_fields__ if name != "engine_mode"}
        known["engine_mode"] = fields.get("engine_mode", "process")  # version 0.1.0 knew no other
        deltas = {kind: _columns(columns) for kind, columns in known.pop("deltas").items()}
        usage, engine = _columns(known.pop("usage_columns")), _columns(known.pop("engine_columns"))
        views, inserts = tuple(known.pop("views")), tuple(known.pop("inserts"))
        return cls(usage_columns=usage, engine_columns=engine, deltas=deltas, views=views, inserts=inserts, **known)


def _columns(pairs: list[list[str]]) -> Columns:
    return tuple((name, kind) for name, kind in pairs)


def current_plan(dedupe_horizon_days: int) -> Plan:
    """The plan of this version of the program."""
    return Plan(
        flink=FLINK_VERSION,
        usage_columns=usage_sql.USAGE_COLUMNS,
        engine_columns=ENGINE_COLUMNS,
        deltas=DELTAS,
        views=usage_sql.views(),
        inserts=(
            *usage_sql.inserts(),
            *(f"INSERT INTO {kind}_delta SELECT {_names(kind)} FROM {kind}_change" for kind in ("engine", "gpu")),
        ),
        engine_state=ENGINE_STATE,
        engine_mode=ENGINE_MODE,
        max_parallelism=MAX_PARALLELISM,
        state_ttl_ms=dedupe_horizon_days * DAY_MS,
    )


def _names(kind: str) -> str:
    return ", ".join(f"`{name}`" for name, _ in DELTAS[kind])

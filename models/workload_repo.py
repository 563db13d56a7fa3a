"""Versions of the workload classes: rows <-> core values. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from core.usage import Deployment
from core.workload import NEW, UNSCORED, WorkloadClass, WorkloadModel
from core.workload_codec import decode_model, encode_model
from core.workload_drift import MinuteCounts
from models.database import transaction
from models.tables_workload import WorkloadClassNameRow, WorkloadModelRow

MODELS_LOCK = 7360761
_M, _N = WorkloadModelRow, WorkloadClassNameRow


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A version as stored; ``valid_from`` None: not activated. ``kind`` is trained or new_class. ``trained`` is JSON: from, to,
    requests, k, stability by number of classes."""

    version: int
    created_at: datetime
    author: str
    kind: str
    reason: str
    weights: tuple[int, ...]
    classes: tuple[WorkloadClass, ...]
    valid_from: datetime | None = None
    trained: Mapping[str, Any] = field(default_factory=dict)

    def model(self, valid_from: datetime) -> WorkloadModel:
        return WorkloadModel(self.version, valid_from, self.weights, self.classes)


@dataclass(frozen=True, slots=True)
class ActiveModels:
    """Every activated version by ``valid_from``; ``revision`` changes with each activation."""

    revision: str = ""
    models: tuple[WorkloadModel, ...] = ()


def lock_models(connection: Connection) -> int:
    """Make other writers of versions wait until this transaction ends; returns the newest version's number (0: none)."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MODELS_LOCK})
    return connection.execute(select(func.max(_M.version))).scalar() or 0


def put_model(connection: Connection, stored: StoredModel) -> None:
    """Write a version; the caller holds ``lock_models``."""
    row = {
        "version": stored.version, "valid_from": stored.valid_from, "created_at": stored.created_at, "author": stored.author,
        "kind": stored.kind, "reason": stored.reason, "model": encode_model(stored.model(stored.created_at)),
        "trained": dict(stored.trained),
    }  # fmt: skip
    connection.execute(insert(_M).values(row))


def set_valid_from(connection: Connection, version: int, valid_from: datetime) -> None:
    """Activate a version; the caller holds ``lock_models`` and has judged the instant."""
    connection.execute(update(_M).where(_M.version == version).values(valid_from=valid_from))


def stored_models(connection: Connection) -> list[StoredModel]:
    """Every version, oldest first."""
    return [_stored(row) for row in connection.execute(select(_M.__table__).order_by(_M.version))]


def _stored(row: Any) -> StoredModel:
    model = decode_model(row.model, row.version, row.valid_from or row.created_at)
    return StoredModel(
        row.version, row.created_at, row.author, row.kind, row.reason, model.weights, model.classes, row.valid_from, row.trained
    )


def newer_models(connection: Connection, held: str) -> ActiveModels | None:
    """The activated versions, or None when ``held`` is the newest revision."""
    count, newest = connection.execute(select(func.count(_M.valid_from), func.max(_M.valid_from))).one()
    revision = f"{count}:{newest.isoformat() if newest else ''}"
    if revision == held:
        return None
    rows = connection.execute(select(_M.__table__).where(_M.valid_from.is_not(None)).order_by(_M.valid_from))
    return ActiveModels(revision, tuple(decode_model(row.model, row.version, row.valid_from) for row in rows))


class StoredModels:
    """Reads the activated versions of a database: given the revision held, the newer ones or None. Raises Unavailable when the
    database is away."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(self, held: str) -> ActiveModels | None:
        with transaction(self._engine) as connection:
            return newer_models(connection, held)


def class_names(connection: Connection) -> dict[int, str]:
    """What people call classes, by number."""
    return {row.number: row.name for row in connection.execute(select(_N.number, _N.name).order_by(_N.number))}


def put_class_name(connection: Connection, number: int, name: str, author: str, now: datetime) -> None:
    row = {"name": name, "author": author, "changed_at": now}
    query = insert(_N).values(number=number, **row)
    connection.execute(query.on_conflict_do_update(index_elements=["number"], set_=row))


_MINUTES = f"""
SELECT cluster, namespace, model_id, minute, sum(requests)::bigint AS scored,
       coalesce(sum(requests) FILTER (WHERE workload_class = {NEW}), 0)::bigint AS fresh
FROM usage_minute
WHERE minute >= :since AND minute <= :until AND workload_class <> {UNSCORED} AND requests > 0
GROUP BY cluster, namespace, model_id, minute ORDER BY cluster, namespace, model_id, minute
"""


def scored_minutes(connection: Connection, since: datetime, until: datetime) -> dict[Deployment, list[MinuteCounts]]:
    """Scored requests by deployment and minute, minutes from ``since`` to ``until``, both included."""
    found: dict[Deployment, list[MinuteCounts]] = {}
    for row in connection.execute(text(_MINUTES), {"since": since, "until": until}):
        found.setdefault(Deployment(*row[:3]), []).append(MinuteCounts(*row[3:]))
    return found

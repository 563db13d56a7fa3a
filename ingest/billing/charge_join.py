"""A delivery's charges to the machines of the inventory: resources are judged one by one, charges as whole columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow
from sqlalchemy import Connection

from core.charge_join import (
    Inventory,
    Machine,
    MatchRule,
    PersonMatch,
    Resolution,
    Subject,
    names_in_tags,
    resolve,
)
from ingest.billing.instance_types import instance_type
from ingest.billing.join_sql import (
    covered_hours,
    place,
    prepare,
    resources,
    tags_of_machines,
    types,
    write_node_charges,
    write_unmatched,
)
from models.join_repo import (
    NODE_CHARGE_COLUMNS,
    UNMATCHED_COLUMNS,
    AppliedJoin,
    JoinState,
    apply_join,
    join_states,
    note_inventory,
    read_machines,
    read_matches,
)

RULES_VERSION = "1"
"""Another one joins every delivery again."""
_TEXT = pyarrow.string()
_NEVER = datetime.min.replace(tzinfo=UTC)
_OWNERS = pyarrow.schema(
    [(name, _TEXT) for name in ("provider", "resource_id", "tags", "cluster", "node", "matched_by")]
    + [(name, pyarrow.timestamp("us")) for name in ("since", "until")]
)
_KNOWN = pyarrow.schema(
    [(name, _TEXT) for name in ("provider", "resource_id", "tags", "instance_type", "reason", "names", "candidates")]
    + [("machine", pyarrow.bool_())]
)
_SHAPES = pyarrow.schema([("provider", _TEXT), ("instance_type", _TEXT), ("gpus", pyarrow.int32())])


@dataclass(frozen=True, slots=True)
class JoinWith:
    """Against what charges are joined. ``node_tags``: tag keys of the settings whose value is a node's name."""

    machines: tuple[Machine, ...]
    matches: tuple[PersonMatch, ...]
    node_tags: tuple[str, ...] = ()
    digest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        seen = repr((RULES_VERSION, sorted(map(repr, self.machines)), sorted(map(repr, self.matches)), self.node_tags))
        object.__setattr__(self, "digest", hashlib.sha256(seen.encode()).hexdigest())


def join_with(connection: Connection, node_tags: Sequence[str] = ()) -> JoinWith:
    """As the database has it now."""
    matches = tuple(one.match for one in read_matches(connection))
    return JoinWith(read_machines(connection), matches, tuple(node_tags))


class DeliveryJoin:
    """One delivery's machine charges in a DuckDB session, judged. ``work`` is a folder of its own for what is written."""

    def __init__(self, session: Any, charges: Path, period: date, work: Path) -> None:
        self._session, self._work = session, work
        self._scales = prepare(session, charges, period)
        self._machine: dict[tuple[str, str, str], bool] = {}

    def judge(self, given: JoinWith) -> dict[Subject, Resolution]:
        """What the rules say of every resource."""
        named: dict[tuple[str, str], dict[tuple[MatchRule, str], None]] = {}
        for provider, resource, tags in tags_of_machines(self._session):
            names = names_in_tags(json.loads(tags), given.node_tags)
            named.setdefault((provider, resource or f"\0{tags}"), {}).update(dict.fromkeys(names))
        subjects = []
        for provider, resource, tags, kind, first, last, machine in resources(self._session):
            names = tuple(named.get((provider, resource or f"\0{tags}"), {}))
            self._machine[provider, resource, tags] = machine
            subjects.append(Subject(provider, resource, tags, kind, names, _utc(first), _utc(last)))
        return resolve(subjects, Inventory(given.machines, given.matches))

    def write(self, resolved: dict[Subject, Resolution], delivery: int) -> tuple[Path, Path]:
        """CSV files of node charges and of what is no machine's: together all joined charges, exactly."""
        self._table("owners", _OWNERS, [row for subject, found in resolved.items() for row in _owners(subject, found)])
        self._table("known", _KNOWN, [self._known(subject, found) for subject, found in resolved.items()])
        shapes = [
            (provider, name, machine.gpus)
            for provider, name in types(self._session)
            if (machine := instance_type(provider, name))
        ]
        self._table("shapes", _SHAPES, shapes)
        place(self._session, self._scales)
        charged = write_node_charges(self._session, delivery, NODE_CHARGE_COLUMNS, self._work / f"nodes-{delivery}.csv")
        rest = write_unmatched(self._session, delivery, UNMATCHED_COLUMNS, self._work / f"unmatched-{delivery}.csv")
        return charged, rest

    def covered(self) -> tuple[datetime | None, datetime | None]:
        first, last = covered_hours(self._session)
        return (_utc(first), _utc(last)) if first else (None, None)

    def _known(self, subject: Subject, found: Resolution) -> tuple[Any, ...]:
        names = json.dumps(list(dict.fromkeys(value for _, value in subject.names)), ensure_ascii=False)
        candidates = json.dumps([[node.cluster, node.node] for node in found.candidates], ensure_ascii=False)
        key = (subject.provider, subject.resource_id, subject.tags)
        machine = self._machine[key] or bool(found.assignments)
        return (*key, subject.instance_type, found.reason, names, candidates, machine)

    def _table(self, name: str, schema: Any, rows: Sequence[tuple[Any, ...]]) -> None:
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
        given = pyarrow.table(
            [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )
        self._session.register(f"given_{name}", given)
        self._session.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM given_{name}")
        self._session.unregister(f"given_{name}")


def _owners(subject: Subject, found: Resolution) -> list[tuple[Any, ...]]:
    key = (subject.provider, subject.resource_id, subject.tags)
    return [
        (*key, one.node.cluster if one.node else None, one.node.node if one.node else None, one.matched_by,
         _naive(one.since), _naive(one.until))
        for one in found.assignments
    ]  # fmt: skip


def _naive(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC).replace(tzinfo=None)


def _utc(at: datetime | None) -> datetime:
    return _NEVER if at is None else at.replace(tzinfo=UTC)


def _digest(resolved: dict[Subject, Resolution]) -> str:
    told = sorted(repr((s.provider, s.resource_id, s.tags, found)) for s, found in resolved.items())
    return hashlib.sha256(repr((RULES_VERSION, told)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class JoinJob:
    """One delivery to join: its row's id, its period, its charges, and the deliveries it took the place of."""

    delivery: int
    period: date
    charges: Path
    gone: tuple[int, ...] = ()


def join_delivery(
    connection: Connection, session: Any, job: JoinJob, given: JoinWith, work: Path, at: datetime
) -> AppliedJoin | None:
    """Join one delivery in the caller's transaction; None when nothing of it would be another than it is."""
    former = join_states(connection).get(job.delivery)
    if former is not None and former.inventory == given.digest:
        return None
    join = DeliveryJoin(session, job.charges, job.period, work)
    resolved = join.judge(given)
    assignments = _digest(resolved)
    if former is not None and former.assignments == assignments:
        note_inventory(connection, job.delivery, given.digest, at)
        return None
    files = join.write(resolved, job.delivery)
    applied = apply_join(connection, job.delivery, job.gone, files, JoinState(given.digest, assignments, *join.covered()), at)
    for file in files:
        file.unlink()
    return applied

"""The join of charges and machines: the inventory's names, a person's matches, and what a delivery's join made. No commits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Table, insert, select, text, update

from core.charge_join import Machine, Node, PersonMatch
from models.copy_csv import copy_csv, file_chunks
from models.rates_repo import lock_prices
from models.tables_join import ChargeMatchRow, ChargeUnmatchedRow, NodeChargeRow, NodeIdentityRow
from models.tables_money import NodeServiceRow

_MATCH = cast(Table, ChargeMatchRow.__table__)
_IDENTITY = cast(Table, NodeIdentityRow.__table__)
NODE_CHARGE_COLUMNS: tuple[str, ...] = tuple(c.name for c in cast(Table, NodeChargeRow.__table__).columns)
UNMATCHED_COLUMNS: tuple[str, ...] = tuple(c.name for c in cast(Table, ChargeUnmatchedRow.__table__).columns)


@dataclass(frozen=True, slots=True)
class ChargeMatch:
    """A person's match as it stands. ``node`` '': ignored. Times None: open."""

    id: int
    resource_id: str
    cluster: str
    node: str
    ignored: bool
    valid_from: datetime | None
    valid_to: datetime | None
    made_by: str
    reason: str
    made_at: datetime
    undone_by: str = ""
    undone_at: datetime | None = None

    @property
    def match(self) -> PersonMatch:
        node = None if self.ignored else Node(self.cluster, self.node)
        return PersonMatch(self.id, self.resource_id, node, self.valid_from, self.valid_to)


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """By what id a cloud bills a node in [valid_from, valid_to). ``instance_type`` '': not told."""

    cluster: str
    node: str
    provider_id: str
    instance_type: str
    source: str
    valid_from: datetime
    valid_to: datetime | None = None


@dataclass(frozen=True, slots=True)
class JoinState:
    """Against what a delivery was joined (digests), and the hours its machine charges cover."""

    inventory: str
    assignments: str
    first_hour: datetime | None
    last_hour: datetime | None


@dataclass(frozen=True, slots=True)
class NodeMoney:
    """Cost of a node (``node`` '': of no machine) in one currency."""

    cluster: str
    node: str
    currency: str
    billed: Decimal
    effective: Decimal


@dataclass(frozen=True, slots=True)
class AppliedJoin:
    """``changed_hours``: hours of a node whose money, GPUs or finality are another; ``marked``: ledger windows to close again."""

    changed_hours: int
    marked: int


def read_machines(connection: Connection) -> tuple[Machine, ...]:
    """Every machine of the inventory: from services (with their GPUs) and from identities (with their provider's id)."""
    n = NodeServiceRow
    services = connection.execute(
        select(n.cluster, n.node, n.target, n.gpu_type, n.gpu_count, n.in_service_from, n.in_service_to)
        .where(n.node != "")
        .order_by(n.cluster, n.node, n.id)
    )
    found: dict[Node, list[Any]] = {}
    for row in services:
        found.setdefault(Node(row.cluster, row.node), []).append(row)
    known = [
        Machine(Node(i.cluster, i.node), i.valid_from, i.valid_to, i.provider_id, i.instance_type) for i in identities(connection)
    ]
    return (*(_in_service(node, rows) for node, rows in found.items()), *known)


def _in_service(node: Node, rows: Collection[Any]) -> Machine:
    """GPUs by type over the node's targets, each target as it served last."""
    last = {row.target: (row.gpu_type, row.gpu_count) for row in rows}
    gpus: dict[str, int] = {}
    for kind, count in last.values():
        gpus[kind] = gpus.get(kind, 0) + count
    ends = [row.in_service_to for row in rows]
    until = None if None in ends else max(ends)
    return Machine(node, min(row.in_service_from for row in rows), until, gpus=tuple(sorted(gpus.items())))


def identities(connection: Connection) -> list[NodeIdentity]:
    """All of them, by node and time."""
    query = select(_IDENTITY).order_by(_IDENTITY.c.cluster, _IDENTITY.c.node, _IDENTITY.c.valid_from, _IDENTITY.c.id)
    return [NodeIdentity(**{k: v for k, v in row._mapping.items() if k != "id"}) for row in connection.execute(query)]


def identify_node(connection: Connection, identity: NodeIdentity) -> bool:
    """Note by what id a node is billed; the same again changes nothing, another one ends the former where it begins."""
    i = _IDENTITY.c
    here = (i.cluster == identity.cluster, i.node == identity.node)
    row = connection.execute(select(_IDENTITY).where(*here, i.valid_to.is_(None)).order_by(i.id.desc()).limit(1)).first()
    if row is not None:
        told = identity.instance_type or row.instance_type
        if row.provider_id == identity.provider_id:
            if told == row.instance_type:
                return False
            connection.execute(update(_IDENTITY).where(i.id == row.id).values(instance_type=told))
            return True
        ended = max(identity.valid_from, row.valid_from)
        connection.execute(update(_IDENTITY).where(*here, i.valid_to.is_(None)).values(valid_to=ended))
    connection.execute(insert(_IDENTITY), [{name: getattr(identity, name) for name in NodeIdentity.__dataclass_fields__}])
    return True


def read_matches(connection: Connection, *, undone: bool = False) -> list[ChargeMatch]:
    """Matches in force, or all there ever were, oldest first."""
    query = select(_MATCH).order_by(_MATCH.c.id)
    if not undone:
        query = query.where(_MATCH.c.undone_at.is_(None))
    return [ChargeMatch(**row._mapping) for row in connection.execute(query)]


def add_match(connection: Connection, match: ChargeMatch) -> ChargeMatch:
    """Store it; its id is the database's."""
    values = {name: getattr(match, name) for name in ChargeMatch.__dataclass_fields__ if name != "id"}
    return ChargeMatch(**connection.execute(insert(_MATCH).values(**values).returning(_MATCH)).one()._mapping)


def undo_match(connection: Connection, match_id: int, by: str, at: datetime) -> ChargeMatch | None:
    """None: there is no such match in force."""
    changed = update(_MATCH).where(_MATCH.c.id == match_id, _MATCH.c.undone_at.is_(None))
    row = connection.execute(changed.values(undone_by=by, undone_at=at).returning(_MATCH)).one_or_none()
    return None if row is None else ChargeMatch(**row._mapping)


def join_states(connection: Connection) -> dict[int, JoinState]:
    """By delivery."""
    query = text("SELECT delivery, inventory, assignments, first_hour, last_hour FROM charge_join")
    return {row[0]: JoinState(*row[1:]) for row in connection.execute(query)}


def node_money(connection: Connection, deliveries: Collection[int]) -> list[NodeMoney]:
    """What these deliveries' joined charges are to each node and currency, and what is no machine's (node '')."""
    query = text("""
    SELECT cluster, node, currency, sum(billed), sum(effective) FROM node_charge WHERE delivery = ANY(:ids) GROUP BY 1, 2, 3
    UNION ALL
    SELECT '', '', currency, sum(billed), sum(effective) FROM charge_unmatched WHERE delivery = ANY(:ids) GROUP BY 3
    ORDER BY 1, 2, 3""")
    return [NodeMoney(*row) for row in connection.execute(query, {"ids": list(deliveries)})]


def note_inventory(connection: Connection, delivery: int, inventory: str, at: datetime) -> None:
    """The inventory changed, the delivery's join did not."""
    query = text("UPDATE charge_join SET inventory = :inventory, joined_at = :at WHERE delivery = :id")
    connection.execute(query, {"inventory": inventory, "at": at, "id": delivery})


def apply_join(
    connection: Connection,
    delivery: int,
    gone: Iterable[int],
    files: tuple[Path, Path],
    state: JoinState,
    at: datetime,
) -> AppliedJoin:
    """A delivery's join in place of its former one and of those of ``gone`` (deliveries it took the place of).

    ``files``: CSV of NODE_CHARGE_COLUMNS and of UNMATCHED_COLUMNS. Closed windows of a node's hour become dirty where the hour's
    money, GPUs or finality changed, and nowhere else.
    """
    connection.execute(text("CREATE TEMP TABLE new_node_charge (LIKE node_charge) ON COMMIT DROP"))
    copy_csv(connection, "new_node_charge", NODE_CHARGE_COLUMNS, file_chunks(files[0]), "node charge")
    lock_prices(connection, shared=False)
    parameters: Mapping[str, Any] = {"ids": [delivery, *gone], "at": at}
    changed = connection.execute(text(_CHANGED), parameters).rowcount
    marked = connection.execute(text(_MARK), parameters).rowcount
    for table in ("node_charge", "charge_unmatched", "charge_join"):
        connection.execute(text(f"DELETE FROM {table} WHERE delivery = ANY(:ids)"), parameters)
    connection.execute(text("INSERT INTO node_charge SELECT * FROM new_node_charge"))
    copy_csv(connection, "charge_unmatched", UNMATCHED_COLUMNS, file_chunks(files[1]), "charge of no machine")
    connection.execute(
        text("INSERT INTO charge_join VALUES (:id, :inventory, :assignments, :first, :last, :at)"),
        {
            "id": delivery, "inventory": state.inventory, "assignments": state.assignments, "first": state.first_hour,
            "last": state.last_hour, "at": at,
        },
    )  # fmt: skip
    connection.execute(text("DROP TABLE new_node_charge, changed_hour"))
    return AppliedJoin(changed, marked)


_SUMS = (
    "sum(c.billed) AS billed, sum(c.effective) AS effective, sum(c.list) AS list, count(c.list) AS listed, "
    "sum(c.contracted) AS contracted, sum(c.hours) AS hours, max(c.gpus) AS gpus, bool_and(d.is_final) AS is_final"
)
_KEYS = "cluster, node, hour, currency"
_CHANGED = f"""
CREATE TEMP TABLE changed_hour ON COMMIT DROP AS
WITH before AS (
  SELECT {_KEYS}, {_SUMS} FROM node_charge c JOIN bill_delivery d ON d.id = c.delivery WHERE delivery = ANY(:ids) GROUP BY {_KEYS}
), now AS (
  SELECT {_KEYS}, {_SUMS} FROM new_node_charge c JOIN bill_delivery d ON d.id = c.delivery GROUP BY {_KEYS}
)
SELECT DISTINCT cluster, node, hour FROM before FULL JOIN now USING ({_KEYS})
WHERE (before.billed, before.effective, before.list, before.listed, before.contracted, before.hours, before.gpus, before.is_final)
  IS DISTINCT FROM (now.billed, now.effective, now.list, now.listed, now.contracted, now.hours, now.gpus, now.is_final)
"""
_MARK = """
INSERT INTO dirty_window (cluster, namespace, model_id, window_start, marked_at)
SELECT DISTINCT h.cluster, h.namespace, h.model_id, h.window_start, CAST(:at AS timestamptz)
FROM changed_hour c
JOIN node_service s ON s.cluster = c.cluster AND s.node = c.node AND s.in_service_from < c.hour + interval '1 hour'
  AND (s.in_service_to IS NULL OR s.in_service_to > c.hour)
JOIN ledger_head h ON h.cluster = s.cluster AND h.namespace = s.namespace AND h.model_id = s.model_id
  AND h.window_start >= c.hour AND h.window_start < c.hour + interval '1 hour'
ORDER BY 1, 2, 3, 4
ON CONFLICT (cluster, namespace, model_id, window_start) DO UPDATE SET marked_at = excluded.marked_at
"""

"""Charges joined anew when the inventory or a person's word changed, and what a person says: confirmed, ignored, undone."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from core.charge_join import Node, identity_key, overlaps
from core.errors import BadInput, Conflict, NotFound, Unavailable
from core.money import plain
from core.windows import require_utc
from ingest.billing.charge_join import JoinJob, JoinWith, join_delivery, join_with
from ingest.billing.lines import open_session
from models.audit_repo import append_audit
from models.billing_repo import BillVersion, deliveries, lock_bills
from models.database import transaction
from models.join_repo import (
    ChargeMatch,
    NodeMoney,
    add_match,
    join_states,
    node_money,
    read_machines,
    read_matches,
    undo_match,
)

log = logging.getLogger("tokenfuse.join")
MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class JoinPlace:
    """Where deliveries' files are, and tag keys that name nodes."""

    data_dir: Path
    node_tags: tuple[str, ...] = ()
    memory_mb: int = 256


@dataclass(frozen=True, slots=True)
class Rejoined:
    """``joined``: deliveries whose node charges are others now; ``moved``: the difference by node, which sums to zero per
    currency; ``marked``: ledger windows that will be closed again."""

    looked_at: int
    joined: int
    marked: int
    moved: tuple[NodeMoney, ...]


@dataclass(frozen=True, slots=True)
class MatchOutcome:
    match: ChargeMatch
    changed: bool
    rejoined: Rejoined


def rejoin(connection: Connection, place: JoinPlace, now: datetime, only: Collection[int] | None = None) -> Rejoined:
    """Join the current deliveries (or ``only`` these) against inventory and matches as they are in this transaction.

    Raises Unavailable when a delivery's files are not there.
    """
    lock_bills(connection)
    given = join_with(connection, place.node_tags)
    todo = [bill for bill in _stale(connection, given) if only is None or bill.id in only]
    before = node_money(connection, [bill.id for bill in todo])
    marked = joined = 0
    for bill in todo:
        applied = _join(connection, bill, given, place, now)
        joined += applied is not None
        marked += applied or 0
    after = node_money(connection, [bill.id for bill in todo])
    return Rejoined(len(todo), joined, marked, _difference(before, after))


def rejoin_due(engine: Engine, place: JoinPlace, now: datetime) -> int:
    """One delivery a transaction, for a loop; returns how many changed. One that fails is logged and holds up no other."""
    with transaction(engine) as connection:
        due = [bill.id for bill in _stale(connection, join_with(connection, place.node_tags))]
    changed = 0
    for delivery in due:
        try:
            with transaction(engine) as connection:
                changed += rejoin(connection, place, now, [delivery]).joined
        except Unavailable as error:
            log.warning("a bill cannot be joined to machines: %s", error)
    return changed


def _stale(connection: Connection, given: JoinWith) -> list[BillVersion]:
    states = join_states(connection)
    return [
        bill
        for bill in deliveries(connection)
        if bill.folder and ((state := states.get(bill.id)) is None or state.inventory != given.digest)
    ]


def _join(connection: Connection, bill: BillVersion, given: JoinWith, place: JoinPlace, now: datetime) -> int | None:
    """Windows marked; None: nothing changed."""
    charges = place.data_dir / bill.folder / "charges.parquet"
    if not charges.is_file():
        raise Unavailable(f"{charges} is not there", hint="is --data-dir right? else ingest the bill again")
    with tempfile.TemporaryDirectory(prefix="tokenfuse-join-") as folder:
        session = open_session(Path(folder), memory_mb=place.memory_mb)
        try:
            job = JoinJob(bill.id, bill.billing_period, charges)
            applied = join_delivery(connection, session, job, given, Path(folder), now)
        finally:
            session.close()
    return None if applied is None else applied.marked


def _difference(before: Iterable[NodeMoney], after: Iterable[NodeMoney]) -> tuple[NodeMoney, ...]:
    sums: dict[tuple[str, str, str], list[Decimal]] = {}
    for sign, rows in ((-1, before), (1, after)):
        for row in rows:
            held = sums.setdefault((row.cluster, row.node, row.currency), [Decimal(0), Decimal(0)])
            held[0] += sign * row.billed
            held[1] += sign * row.effective
    return tuple(NodeMoney(*key, *moved) for key, moved in sorted(sums.items()) if any(moved))


def confirm_match(
    connection: Connection,
    place: JoinPlace,
    resource_id: str,
    node: str,
    actor: str,
    now: datetime,
    *,
    reason: str = "",
    valid_from: datetime | None = None,
    valid_to: datetime | None = None,
) -> MatchOutcome:
    """A person says that a resource is a node (``CLUSTER/NODE``, or NODE where one cluster has it), and charges move there.

    Raises NotFound for a resource no bill names or a node the inventory has not, Conflict where another match holds already.
    """
    found = find_node(connection, node)
    match = ChargeMatch(0, resource_id, found.cluster, found.node, False, valid_from, valid_to, actor, reason, now)
    return _say(connection, place, match)


def ignore_resource(
    connection: Connection, place: JoinPlace, resource_id: str, actor: str, now: datetime, *, reason: str
) -> MatchOutcome:
    """A person says that a resource is no machine of ours: it stays visible apart. A reason is required."""
    if not reason.strip():
        raise BadInput("must say why", field="reason", value=reason, hint="for example: a workstation of the lab")
    return _say(connection, place, ChargeMatch(0, resource_id, "", "", True, None, None, actor, reason, now))


def undo(connection: Connection, place: JoinPlace, match_id: int, actor: str, now: datetime) -> MatchOutcome:
    """Take a match back. Raises NotFound when none in force has this id."""
    match = undo_match(connection, match_id, actor, now)
    if match is None:
        raise NotFound(f"no match {match_id} is in force", hint="see `tokenfuse match list`")
    append_audit(connection, now, actor, "match.undo", f"resource:{match.resource_id}", {"match": match.id, "node": match.node})
    return MatchOutcome(match, True, rejoin(connection, place, now, _deliveries_of(connection, match.resource_id)))


def _say(connection: Connection, place: JoinPlace, match: ChargeMatch) -> MatchOutcome:
    _check(match)
    touched = _deliveries_of(connection, match.resource_id)
    if not touched:
        raise NotFound(
            f"no bill in force charges {match.resource_id!r}", hint="write it as the bill does: `tokenfuse show unmatched`"
        )
    lock_bills(connection)
    for other in read_matches(connection):
        if _same(other, match):
            return MatchOutcome(other, False, rejoin(connection, place, match.made_at, touched))
        if overlaps(other.match, match.match):
            told = f"{other.cluster}/{other.node}" if other.node else "ignored"
            hint = f"`tokenfuse match undo {other.id}` first"
            raise Conflict(f"{other.resource_id} is already {told} (match {other.id} by {other.made_by})", hint=hint)
    stored = add_match(connection, match)
    detail = {
        "match": stored.id, "node": f"{stored.cluster}/{stored.node}" if stored.node else "", "reason": stored.reason,
        "from": None if stored.valid_from is None else stored.valid_from.isoformat(),
        "to": None if stored.valid_to is None else stored.valid_to.isoformat(),
    }  # fmt: skip
    action = "match.ignore" if stored.ignored else "match.confirm"
    append_audit(connection, match.made_at, match.made_by, action, f"resource:{match.resource_id}", detail)
    return MatchOutcome(stored, True, rejoin(connection, place, match.made_at, touched))


def _same(one: ChargeMatch, other: ChargeMatch) -> bool:
    def told(m: ChargeMatch) -> tuple[object, ...]:
        return (identity_key(m.resource_id), m.cluster, m.node, m.ignored, m.valid_from, m.valid_to)

    return told(one) == told(other)


def _check(match: ChargeMatch) -> None:
    if not match.resource_id.strip():
        raise BadInput("must name the resource", field="resource_id", value=match.resource_id)
    if len(match.reason) > MAX_TEXT:
        raise BadInput(f"is longer than {MAX_TEXT} characters", field="reason", value=f"{match.reason[:40]}…")
    for name, at in (("from", match.valid_from), ("to", match.valid_to)):
        if at is not None and (require_utc(at, name).minute, at.second, at.microsecond) != (0, 0, 0):
            raise BadInput("must be a whole hour: charges are joined by UTC hours", field=name, value=at.isoformat())
    if match.valid_from and match.valid_to and match.valid_to <= match.valid_from:
        raise BadInput("must be after from", field="to", value=match.valid_to.isoformat())


def find_node(connection: Connection, name: str) -> Node:
    """A node of the inventory by ``CLUSTER/NODE`` or its name alone. Raises NotFound, and BadInput where several bear it."""
    nodes = sorted({machine.node for machine in read_machines(connection)})
    exact = [node for node in nodes if f"{node.cluster}/{node.node}" == name]
    found = exact or [node for node in nodes if node.node == name]
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(f"{node.cluster}/{node.node}" for node in found)
        raise BadInput("several clusters have a node of this name", field="node", value=name, hint=f"write one of {shown}")
    raise NotFound(f"the inventory has no node {name!r}", hint="see `tokenfuse node list`, or declare it")


def _deliveries_of(connection: Connection, resource_id: str) -> list[int]:
    query = text(
        "SELECT DISTINCT c.delivery FROM charge_day c JOIN bill_delivery d ON d.id = c.delivery "
        "WHERE c.resource_id = :id AND d.status = 'current' ORDER BY 1"
    )
    return list(connection.execute(query, {"id": resource_id}).scalars())


def moved_words(moved: Iterable[NodeMoney]) -> list[str]:
    """``lab/n1: +12.5 USD effective, +20 USD billed``, a line each."""
    return [
        f"{f'{row.cluster}/{row.node}' if row.node else 'no machine'}: {_signed(row.effective)} {row.currency} effective, "
        f"{_signed(row.billed)} {row.currency} billed"
        for row in moved
    ]


def _signed(amount: Decimal) -> str:
    return f"{'+' if amount > 0 else ''}{plain(amount)}"

"""The two lists to work through: charges of no machine, and machines without a charge, each with its likeliest partner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, cast

from sqlalchemy import Connection

from core.charge_join import REASON_WORDS, Machine, Node, Reason
from core.match_suggest import Billed, Serving, Suggestion, suggest
from core.windows import Window
from ingest.billing.instance_types import instance_type
from models.join_repo import read_machines
from models.join_views import not_joined, uncharged_nodes, unmatched_charges

MOST_SUGGESTED = 200
"""Suggestions are sought for this many resources, those of the most money."""


def unmatched(connection: Connection, now: datetime, window: Window | None = None) -> dict[str, Any]:
    """``charges`` to work through, ``ignored`` ones apart, and ``nodes`` whose hours a bill covers without a charge of theirs;
    ``deliveries`` in force and how many of them are ``not_joined`` yet.

    Each row has ``suggestion`` {node or resource_id, score "0.00".."1.00", reason} or None. See ``models.join_views``.
    """
    charges = unmatched_charges(connection, window)
    nodes = uncharged_nodes(connection, now, window)
    serving = _serving(read_machines(connection), {Node(row["cluster"], row["node"]) for row in nodes})
    open_rows = [row for row in charges if row["reason"] not in ("ignored", "names no machine")]
    found = _suggestions(open_rows[:MOST_SUGGESTED], serving)
    for row in charges:
        row["reason_text"] = REASON_WORDS[cast(Reason, row["reason"])]
        row["suggestion"] = _told(found.get(row["resource_id"]))
    for row in nodes:
        row["suggestion"] = _of_node(Node(row["cluster"], row["node"]), found.values())
    return {
        "charges": [row for row in charges if row["reason"] != "ignored"],
        "ignored": [row for row in charges if row["reason"] == "ignored"],
        "nodes": nodes,
        **dict(zip(("deliveries", "not_joined"), not_joined(connection), strict=True)),
    }


def _serving(machines: Sequence[Machine], uncharged: set[Node]) -> list[Serving]:
    """One per node that serves: its times and GPUs from services, its instance types from identities."""
    types: dict[Node, list[str]] = {}
    for machine in machines:
        if machine.instance_type:
            types.setdefault(machine.node, []).append(machine.instance_type)
    return [
        Serving(m.node, m.since, m.until, m.gpus, tuple(types.get(m.node, ())), m.node in uncharged) for m in machines if m.gpus
    ]


def _suggestions(rows: Sequence[Mapping[str, Any]], serving: Sequence[Serving]) -> dict[str, Suggestion]:
    found: dict[str, Suggestion] = {}
    for row in rows:
        if row["resource_id"] and row["resource_id"] not in found and (best := suggest(_billed(row), serving)):
            found[row["resource_id"]] = best
    return found


def _billed(row: Mapping[str, Any]) -> Billed:
    machine = instance_type(row["provider"], row["instance_type"])
    return Billed(
        resource_id=row["resource_id"],
        instance_type=row["instance_type"],
        gpu=machine.gpu if machine else "",
        gpus=machine.gpus if machine else 0,
        names=tuple(row["names"]),
        candidates=tuple(Node(*pair) for pair in row["candidates"]),
        first=row["first_at"],
        last=row["last_at"],
        reserved=row["buckets"] == ["unused_reservation"],
    )


def _told(found: Suggestion | None) -> dict[str, Any] | None:
    return None if found is None else {"node": str(found.node), "score": found.score, "reason": found.reason}


def _of_node(node: Node, found: Any) -> dict[str, Any] | None:
    """The best of the resources that suggest this node."""
    own = sorted((one for one in found if one.node == node), key=lambda one: (-one.score, one.resource_id))
    return {"resource_id": own[0].resource_id, "score": own[0].score, "reason": own[0].reason} if own else None


def money_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Decimal]:
    """Effective cost by currency."""
    sums: dict[str, Decimal] = {}
    for row in rows:
        sums[row["currency"]] = sums.get(row["currency"], Decimal(0)) + row["effective_cost"]
    return sums

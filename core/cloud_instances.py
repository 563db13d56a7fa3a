"""Which of a cloud's running instances is which node of the inventory: by exact names alone, never by likeness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from core.charge_join import Node


@dataclass(frozen=True, slots=True)
class CloudInstance:
    """``names``: its private host names, whole and first label, and its tag ``Name``. ``launched``: when it last started."""

    instance_id: str
    instance_type: str
    names: tuple[str, ...]
    launched: datetime


@dataclass(frozen=True, slots=True)
class Identified:
    """``found``: one instance for the node. ``unclear``: nodes of several instances, or an instance of several nodes, with the
    names of the instances."""

    found: Mapping[Node, CloudInstance]
    unclear: Mapping[Node, tuple[str, ...]]


def identify_nodes(nodes: Iterable[Node], instances: Iterable[CloudInstance]) -> Identified:
    """Each node to the instance whose id or name it bears, without regard to case. What fits twice is left to a person."""
    by_name: dict[str, dict[str, CloudInstance]] = {}
    for instance in instances:
        for name in (instance.instance_id, *instance.names):
            if name:
                by_name.setdefault(name.casefold(), {})[instance.instance_id] = instance
    fits = {node: held for node in nodes if (held := by_name.get(node.node.casefold(), {}))}
    claimed: dict[str, int] = {}
    for held in fits.values():
        for instance_id in held:
            claimed[instance_id] = claimed.get(instance_id, 0) + 1
    found = {node: next(iter(held.values())) for node, held in fits.items() if len(held) == 1 and claimed[next(iter(held))] == 1}
    return Identified(found, {node: tuple(sorted(held)) for node, held in fits.items() if node not in found})

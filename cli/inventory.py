"""Keeps the GPUs of found targets in the inventory: in service while the target is there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from core.capacity import NodeService
from core.ports import FoundTarget
from core.usage import Deployment
from ingest.engine.scraper import Target
from models.found_repo import in_service, last_end, served_since, serves_other
from models.join_repo import NodeIdentity, identify_node
from models.rates_repo import declare_service, end_service

RECENT = timedelta(minutes=30)


class FoundInventory:
    """One per source. ``keep`` is called with all targets there are, ``drop`` with those that went."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._first: dict[str, datetime] = {}
        self._declared: dict[str, tuple[FoundTarget, Deployment]] = {}
        self._identified: dict[tuple[str, str], tuple[str, str]] = {}

    def keep(self, connection: Connection, targets: Sequence[FoundTarget], at: datetime) -> int:
        """Declare the GPUs of every target whose GPUs, node and one deployment are known; returns how many were new.

        The deployment is the target's own where it names a model, else what its samples of the last half hour say.
        """
        self._identify(connection, targets, at)
        known = {Target(t.url).name: t for t in targets if t.gpu and t.count and t.node and not t.unknown}
        for name in known:
            self._first.setdefault(name, at)
        served = served_since(connection, list(known), at - RECENT) if known else {}
        return sum(self._declare(connection, name, target, served.get(name, set()), at) for name, target in known.items())

    def _identify(self, connection: Connection, targets: Sequence[FoundTarget], at: datetime) -> None:
        """Note by what id each node is billed, when it is first seen or has become another machine."""
        for target in targets:
            key, told = (target.cluster, target.node), (target.provider_id, target.instance_type)
            if target.node and target.provider_id and self._identified.get(key) != told:
                since = target.since if key not in self._identified and target.since else at
                identify_node(connection, NodeIdentity(*key, *told, self.source, since))
                self._identified[key] = told

    def drop(self, connection: Connection, names: Collection[str], at: datetime) -> int:
        """Take the GPUs of targets that went out of service."""
        for name in names:
            self._first.pop(name, None)
            self._declared.pop(name, None)
        return sum(end_service(connection, name, at) for name in names)

    def drop_missing(self, connection: Connection, names: Collection[str], at: datetime) -> int:
        """Take out of service what this source declared once and that is not among ``names`` (it went while nobody looked)."""
        return self.drop(connection, sorted(in_service(connection, self.source) - set(names)), at)

    def _declare(self, connection: Connection, name: str, target: FoundTarget, served: set[Deployment], at: datetime) -> int:
        """What changes at an address changes from now on: GPUs that serve another model leave the former one's service."""
        deployments = {Deployment(target.cluster, target.namespace, target.model_id)} if target.model_id else served
        if len(deployments) != 1:
            return 0
        stands = (target, next(iter(deployments)))
        former = self._declared.get(name)
        if former == stands:
            return 0
        if serves_other(connection, self.source, name, stands[1]):
            end_service(connection, name, at)
        since = target.since or self._first[name]
        ended = last_end(connection, name)
        service = NodeService(
            deployment=stands[1],
            target=name,
            node=target.node,
            gpu_type=target.gpu,
            gpu_count=target.count,
            since=at if former else max(since, ended) if ended else since,
        )
        self._declared[name] = stands
        return int(declare_service(connection, service, self.source))

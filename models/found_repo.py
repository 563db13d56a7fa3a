"""The inventory of targets that come and go: which deployment an address serves, and what stands in service for whom."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, func, select

from core.usage import Deployment
from models.tables_money import NodeServiceRow
from models.tables_usage import EngineMinuteRow


def served_since(connection: Connection, targets: Collection[str], since: datetime) -> dict[str, set[Deployment]]:
    """Deployments by target, as its engine samples since then say."""
    e = EngineMinuteRow
    query = (
        select(e.target, e.cluster, e.namespace, e.model_id)
        .where(e.minute >= since, e.target.in_(list(targets)))
        .group_by(e.target, e.cluster, e.namespace, e.model_id)
    )
    found: dict[str, set[Deployment]] = {}
    for target, cluster, namespace, model_id in connection.execute(query):
        found.setdefault(target, set()).add(Deployment(cluster, namespace, model_id))
    return found


def in_service(connection: Connection, source: str | None = None) -> set[str]:
    """Targets with GPUs in service: those that ``source`` declared, or all."""
    n = NodeServiceRow
    query = select(n.target).where(n.in_service_to.is_(None)).distinct()
    return set(connection.scalars(query if source is None else query.where(n.source == source)))


def serves_other(connection: Connection, source: str, target: str, deployment: Deployment) -> bool:
    """Whether ``source`` has the target's GPUs in service for another deployment."""
    n = NodeServiceRow
    query = select(n.cluster, n.namespace, n.model_id).where(n.source == source, n.target == target, n.in_service_to.is_(None))
    return any(Deployment(*row) != deployment for row in connection.execute(query))


def last_end(connection: Connection, target: str) -> datetime | None:
    """When the target's GPUs last left service, None: never."""
    n = NodeServiceRow
    found: datetime | None = connection.scalar(select(func.max(n.in_service_to)).where(n.target == target))
    return found


def first_seen(connection: Connection) -> dict[str, datetime]:
    """The first minute each target was sampled in."""
    e = EngineMinuteRow
    return {row[0]: row[1] for row in connection.execute(select(e.target, func.min(e.minute)).group_by(e.target))}

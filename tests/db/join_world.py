"""A data folder, a database and an inventory for tests of the join: one node n1 that serves since June, generated AWS lines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from bill_lines import cur_line
from sqlalchemy import Engine, text

from core.capacity import NodeService
from core.usage import Deployment
from models.join_repo import NodeIdentity, identify_node
from models.rates_repo import declare_service

JUNE = datetime(2026, 6, 1, tzinfo=UTC)
D = Deployment("lab", "prod", "tiny")
HOURLY = {"unblended": "2.00"}


def serve(db: Engine, node: str = "n1", gpus: int = 8, *, gpu: str = "A100-40GB", since: datetime = JUNE, **more: Any) -> None:
    """GPUs of a node in service."""
    deployment = more.get("deployment", D)
    with db.begin() as connection:
        declare_service(connection, NodeService(deployment, f"http://{node}:8000", node, gpu, gpus, since), "test")


def identify(db: Engine, node: str, provider_id: str, kind: str = "", *, cluster: str = "lab", since: datetime = JUNE) -> None:
    with db.begin() as connection:
        identify_node(connection, NodeIdentity(cluster, node, provider_id, kind, "test", since))


def line(
    resource: str = "i-1", cost: str = "2.00", hour: int = 0, *, day: int = 1, hours: int = 1, **more: Any
) -> dict[str, str]:
    """``hours`` of a p4d.24xlarge from that hour of July on."""
    start = datetime(2026, 7, day, hour, tzinfo=UTC)
    end = datetime.fromtimestamp(start.timestamp() + hours * 3600, UTC)
    given: Mapping[str, str] = more.pop("more", {})
    return cur_line(
        more.pop("line_type", "Usage"), {"unblended": cost}, resource=resource, usage=str(hours),
        start=f"{start:%Y-%m-%dT%H:%M:%SZ}",
        more={"lineItem/UsageEndDate": f"{end:%Y-%m-%dT%H:%M:%SZ}", **given}, **more,
    )  # fmt: skip


def tags(**pairs: str) -> dict[str, str]:
    """Tag columns of the legacy report: ``tags(node="x")`` of ``aws:eks:node``, others as ``user:KEY``."""
    names = {"node": "resourceTags/aws:eks:node"}
    return {names.get(key, f"resourceTags/user:{key}"): value for key, value in pairs.items()}


def charged(db: Engine) -> list[tuple[str, str, Decimal, str]]:
    """(node, resource, effective cost, matched by) of all node charges."""
    query = "SELECT node, resource_id, sum(effective), min(matched_by) FROM node_charge GROUP BY 1, 2 ORDER BY 1, 2"
    with db.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]  # type: ignore[misc]


def unmatched(db: Engine) -> list[tuple[str, str, Decimal]]:
    """(resource, reason, effective cost) of all charges of no machine."""
    query = "SELECT resource_id, reason, sum(effective) FROM charge_unmatched GROUP BY 1, 2 ORDER BY 1, 2"
    with db.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]  # type: ignore[misc]

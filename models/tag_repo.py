"""Which billed machines served whom: charges joined to nodes, nodes to deployments, deployments to the teams that used them."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import Connection, text

from core.tag_plan import Machine
from core.usage import Deployment
from core.windows import Window
from models.rates_repo import read_services
from models.usage_repo import usage_rows

_BILLED = text(
    "SELECT DISTINCT n.cluster, n.node, n.resource_id, c.account, c.region FROM node_charge n "
    "JOIN bill_delivery d ON d.id = n.delivery AND d.status = 'current' "
    "JOIN charge_day c ON c.delivery = n.delivery AND c.resource_id = n.resource_id AND c.provider = :provider "
    "WHERE n.hour >= :start AND n.hour < :end AND n.resource_id <> '' ORDER BY 3, 1, 2"
)


def billed_machines(connection: Connection, window: Window, provider: str = "aws") -> list[Machine]:
    """Machines of current bills in ``window`` that were joined to a node, with every deployment and team they served in it."""
    served: dict[tuple[str, str], set[Deployment]] = defaultdict(set)
    for service in read_services(connection, window):
        served[service.deployment.cluster, service.node].add(service.deployment)
    teams: dict[Deployment, set[tuple[str, str]]] = defaultdict(set)
    for row in usage_rows(connection, ["cluster", "namespace", "model_id", "org", "team"], window):
        teams[Deployment(row["cluster"], row["namespace"], row["model_id"])].add((row["org"], row["team"]))
    found = connection.execute(_BILLED, {"provider": provider, "start": window.start, "end": window.end})
    return [
        Machine(
            row.resource_id, row.account, row.region, row.node, frozenset(served[row.cluster, row.node]),
            frozenset(team for deployment in served[row.cluster, row.node] for team in teams[deployment]),
        )
        for row in found
    ]  # fmt: skip

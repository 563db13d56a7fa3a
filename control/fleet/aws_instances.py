"""Amazon's running instances as ids of nodes: DescribeInstances of one region, every page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from sqlalchemy import Connection

from control.fleet.aws_session import Clients, aws_words
from core.charge_join import Node
from core.cloud_instances import CloudInstance, Identified, identify_nodes
from models.join_repo import NodeIdentity, identify_node, read_machines

PERMISSION = "ec2:DescribeInstances"
ALIVE = ("pending", "running", "stopping", "stopped", "shutting-down")


def running_instances(clients: Clients, region: str) -> list[CloudInstance]:
    """Raises Refused, BadInput or Unavailable in plain words."""
    what = f"EC2 in {region}"
    client = clients("ec2", region)
    with aws_words(what, PERMISSION):
        pages = client.get_paginator("describe_instances").paginate(Filters=[{"Name": "instance-state-name", "Values": [*ALIVE]}])
        return [
            _instance(told) for page in pages for reservation in page["Reservations"] for told in reservation["Instances"]
        ]  # fmt: skip


def _instance(told: Mapping[str, Any]) -> CloudInstance:
    tags = {tag["Key"]: tag["Value"] for tag in told.get("Tags") or ()}
    host = told.get("PrivateDnsName") or ""
    names = dict.fromkeys((host, host.partition(".")[0], tags.get("Name", "")))
    return CloudInstance(
        instance_id=told["InstanceId"],
        instance_type=told["InstanceType"],
        names=tuple(name for name in names if name),
        launched=told["LaunchTime"].astimezone(UTC),
    )


def note_instances(connection: Connection, instances: Sequence[CloudInstance], source: str) -> tuple[Identified, int]:
    """Note the instance of every node of the inventory that one fits; returns what was found and how many were new."""
    nodes: set[Node] = {machine.node for machine in read_machines(connection)}
    identified = identify_nodes(sorted(nodes), instances)
    new = 0
    for node, one in identified.found.items():
        identity = NodeIdentity(node.cluster, node.node, one.instance_id, one.instance_type, source, one.launched)
        new += identify_node(connection, identity)
    return identified, new

"""Instance ids of nodes from EC2 over real HTTP: exact names, every page, what fits twice left to a person."""

from __future__ import annotations

from datetime import UTC, datetime

import boto3
import pytest
from cli_command import Command
from sqlalchemy import Engine, text

from core.capacity import NodeService
from core.charge_join import Node
from core.cloud_instances import CloudInstance, identify_nodes
from core.usage import Deployment
from models.rates_repo import declare_service

T0 = datetime(2026, 7, 1, tzinfo=UTC)


def instance(number: int, *names: str) -> CloudInstance:
    return CloudInstance(f"i-{number}", "g5.xlarge", names, T0)


def test_a_node_is_the_one_instance_whose_name_it_bears() -> None:
    nodes = [Node("lab", name) for name in ("i-1", "IP-10-0-0-2.ec2.internal", "twice", "nobody")]
    nodes += [Node("edge", "shared"), Node("lab", "shared")]
    instances = [
        instance(1),
        instance(2, "ip-10-0-0-2.ec2.internal"),
        instance(3, "twice"),
        instance(4, "twice"),
        instance(5, "shared"),
    ]
    found = identify_nodes(nodes, instances)
    assert {str(node): one.instance_id for node, one in found.found.items()} == {
        "lab/i-1": "i-1", "lab/IP-10-0-0-2.ec2.internal": "i-2",
    }  # fmt: skip
    assert {str(node): ids for node, ids in found.unclear.items()} == {
        "lab/twice": ("i-3", "i-4"), "edge/shared": ("i-5",), "lab/shared": ("i-5",),
    }  # fmt: skip


@pytest.mark.db
def test_nodes_get_their_instance_ids(db: Engine, command: Command, moto_url: str) -> None:
    client = boto3.client("ec2", region_name="us-east-1", endpoint_url=moto_url)
    image = client.describe_images()["Images"][0]["ImageId"]
    made = client.run_instances(ImageId=image, MinCount=2, MaxCount=2, InstanceType="g5.xlarge")["Instances"]
    names = [one["InstanceId"] for one in made]
    client.create_tags(Resources=[names[1]], Tags=[{"Key": "Name", "Value": "gpu-1"}])
    with db.begin() as connection:
        for node in (made[0]["PrivateDnsName"], "gpu-1", "rack-7"):
            service = NodeService(Deployment("lab", "prod", "tiny"), f"http://{node}", node, "A10G", 1, T0)
            declare_service(connection, service, "test")
    words = ("node", "import-ec2", "--region", "us-east-1", "--endpoint-url", moto_url)
    code, rows, said = command(*words, "--dry-run")
    assert (code, "2 would be new" in said) == (0, True)
    assert command(*words)[1] == rows
    assert "0 are new" in command(*words)[2]
    assert {row["instance"] for row in rows} == set(names)
    with db.connect() as connection:
        noted = connection.execute(text("SELECT node, provider_id, instance_type, source FROM node_identity ORDER BY node")).all()
    assert ("gpu-1", names[1], "g5.xlarge", "ec2 us-east-1") in [tuple(row) for row in noted]
    assert len(noted) == 2

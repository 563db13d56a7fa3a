"""EC2 Auto Scaling as an actuator over real HTTP: frozen at its size, written once, put back, drift left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest

from control.fleet.aws_session import aws_clients
from control.fleet.ec2_scaling import Ec2ScalingActuator
from core.errors import Conflict, NotFound, Refused

ADDRESS = "us-east-1/gpu pool"


@pytest.fixture
def group(moto_url: str) -> Callable[..., tuple[int, int, int]]:
    """A group that runs three machines of at most eight; called, it tells (most, desired, running), after a change if any."""
    client = boto3.client("autoscaling", region_name="us-east-1", endpoint_url=moto_url)
    image = boto3.client("ec2", region_name="us-east-1", endpoint_url=moto_url).describe_images()["Images"][0]["ImageId"]
    client.create_launch_configuration(LaunchConfigurationName="gpu", ImageId=image, InstanceType="g5.xlarge")
    client.create_auto_scaling_group(
        AutoScalingGroupName="gpu pool", LaunchConfigurationName="gpu", MinSize=1, MaxSize=8, DesiredCapacity=3,
        AvailabilityZones=["us-east-1a"],
    )  # fmt: skip

    def tell(**change: Any) -> tuple[int, int, int]:
        if change:
            client.update_auto_scaling_group(AutoScalingGroupName="gpu pool", **change)
        (one,) = client.describe_auto_scaling_groups(AutoScalingGroupNames=["gpu pool"])["AutoScalingGroups"]
        return one["MaxSize"], one["DesiredCapacity"], len(one["Instances"])

    return tell


def test_it_is_frozen_at_its_size_and_put_back(moto_url: str, group: Callable[..., tuple[int, int, int]]) -> None:
    actuator = Ec2ScalingActuator(aws_clients(moto_url))
    reading = actuator.read(ADDRESS)
    assert (reading.value, reading.facts) == ({"max_size": 8}, {"size": 3, "least": 3})
    wanted = actuator.wanted("freeze", {}, reading)
    actuator.write(ADDRESS, reading.value, wanted)
    assert group() == (3, 3, 3)
    actuator.write(ADDRESS, reading.value, wanted)
    assert group() == (3, 3, 3), "what stands there already is not written again"
    actuator.write(ADDRESS, wanted, reading.value)
    assert group() == (8, 3, 3)


def test_it_never_ends_a_machine(moto_url: str, group: Callable[..., tuple[int, int, int]]) -> None:
    group(DesiredCapacity=5)
    actuator = Ec2ScalingActuator(aws_clients(moto_url))
    assert actuator.wanted("freeze", {}, actuator.read(ADDRESS)) == {"max_size": 5}


def test_somebody_elses_change_is_a_conflict(moto_url: str, group: Callable[..., tuple[int, int, int]]) -> None:
    actuator = Ec2ScalingActuator(aws_clients(moto_url))
    group(MaxSize=20)
    with pytest.raises(Conflict, match="somebody else"):
        actuator.write(ADDRESS, {"max_size": 8}, {"max_size": 3})
    assert group()[0] == 20


def test_what_cannot_be_done_is_named(moto_url: str) -> None:
    actuator = Ec2ScalingActuator(aws_clients(moto_url))
    with pytest.raises(NotFound, match="no Auto Scaling group none in us-east-1"):
        actuator.read("us-east-1/none")


def test_it_only_freezes(moto_url: str, group: Callable[..., tuple[int, int, int]]) -> None:
    actuator = Ec2ScalingActuator(aws_clients(moto_url))
    with pytest.raises(Refused, match="cannot block"):
        actuator.wanted("block", {}, actuator.read(ADDRESS))


def test_a_person_puts_it_back_by_one_line(moto_url: str) -> None:
    assert Ec2ScalingActuator(aws_clients(moto_url)).commands(ADDRESS, {"max_size": 8}) == (
        "aws autoscaling update-auto-scaling-group --region us-east-1 --auto-scaling-group-name 'gpu pool' --max-size 8",
    )

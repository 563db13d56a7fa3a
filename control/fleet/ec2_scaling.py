"""EC2 Auto Scaling as an actuator: ``REGION/GROUP`` grows no further than now, by its MaxSize. Needs autoscaling:Describe… and
autoscaling:UpdateAutoScalingGroup. AWS has no way to say "only if it still is": between our look and our write somebody else's
change can be lost; what stood before is kept."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from control.fleet.aws_session import Clients, aws_words
from core.errors import Conflict, NotFound, Refused
from core.fleet import frozen_size
from core.ports import FleetReading

READ_NEEDS = "autoscaling:DescribeAutoScalingGroups"
WRITE_NEEDS = "autoscaling:UpdateAutoScalingGroup"


class Ec2ScalingActuator:
    """``clients`` gives the client of a service in a region."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def read(self, address: str) -> FleetReading:
        region, name = address.split("/", 1)
        with aws_words(f"Auto Scaling group {address}", READ_NEEDS):
            answer = self._clients("autoscaling", region).describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        for group in answer["AutoScalingGroups"]:
            least = max(group["MinSize"], group["DesiredCapacity"])
            return FleetReading({"max_size": group["MaxSize"]}, {"size": len(group["Instances"]), "least": least})
        raise NotFound(f"there is no Auto Scaling group {name} in {region}")

    def wanted(self, move: str, options: Mapping[str, Any], reading: FleetReading) -> Mapping[str, Any]:
        """No lower than the desired capacity: AWS would lower that too, and end machines."""
        if move != "freeze":
            raise Refused(f"Auto Scaling cannot {move}", hint="it freezes a group at its present size")
        size = frozen_size(reading.facts["size"], reading.facts["least"], "the group")
        return {"max_size": min(size, reading.value["max_size"])}

    def write(self, address: str, seen: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        present = self.read(address).value
        if present == value:
            return
        if present != seen:
            raise Conflict(f"ec2 {address} was changed by somebody else")
        region, name = address.split("/", 1)
        with aws_words(f"Auto Scaling group {address}", WRITE_NEEDS):
            client = self._clients("autoscaling", region)
            client.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=value["max_size"])

    def commands(self, address: str, value: Mapping[str, Any]) -> tuple[str, ...]:
        region, name = address.split("/", 1)
        group = f"--auto-scaling-group-name {shlex.quote(name)} --max-size {value['max_size']}"
        return (f"aws autoscaling update-auto-scaling-group --region {region} {group}",)

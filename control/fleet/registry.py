"""Which actuators this process can reach, by name: the one place that knows them all."""

from __future__ import annotations

from dataclasses import dataclass, field

from control.fleet.actions import Registered, Registry
from control.fleet.addresses import MOVES
from control.fleet.aws_session import aws_clients
from control.fleet.ec2_scaling import Ec2ScalingActuator
from control.fleet.kubernetes_scale import KubernetesActuator
from control.fleet.litellm_admin import LiteLLMActuator
from core.ports import Actuator
from ingest.discovery.kube_access import KubeAccess


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Where the switches are; what is empty is not worked from here. ``litellm_key`` is an admin's; ``ec2`` takes the
    usual AWS settings."""

    litellm_url: str = ""
    litellm_key: str = field(default="", repr=False)
    kubernetes: KubeAccess | None = None
    ec2: bool = False
    aws_endpoint_url: str = ""


def registry(settings: FleetSettings) -> Registry:
    """Connections are made when they are first used."""
    found: dict[str, Actuator] = {}
    if settings.litellm_url:
        found["litellm"] = LiteLLMActuator(settings.litellm_url, settings.litellm_key)
    if settings.kubernetes is not None:
        found["kubernetes"] = KubernetesActuator(settings.kubernetes)
    if settings.ec2:
        found["ec2"] = Ec2ScalingActuator(aws_clients(settings.aws_endpoint_url or None))
    return {name: Registered(actuator, MOVES[name]) for name, actuator in found.items()}

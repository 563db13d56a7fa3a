"""What machine a cloud's instance type is: ``instance_types.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from core.node_price import Shape

OWN_RACKS = "own-racks"
"""Provider of machines of a cost book; their type says what they hold: ``8x H100-80GB``."""
_OWN = re.compile(r"([1-9]\d{0,3})x (\S.*)")
_FILE = Path(__file__).with_name("instance_types.yaml")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """``gpu``: a name of the rate card; ``memory_gib`` of the machine, not of a GPU."""

    gpu: str
    gpus: int
    cpus: int
    memory_gib: int

    @property
    def shape(self) -> Shape:
        return Shape({self.gpu: self.gpus}, self.cpus, self.memory_gib)


def instance_type(provider: str, name: str) -> InstanceType | None:
    """The machine, None where the table has no such type; an unknown cloud is tried with all. ``ml.`` (SageMaker) and Azure's
    ``Standard_`` do not matter, nor do letter case, blanks and underscores."""
    if provider == OWN_RACKS:
        own = _OWN.fullmatch(name)
        return InstanceType(own[2], int(own[1]), 0, 0) if own else None
    tables = _tables()
    for cloud in (provider,) if provider in tables else tuple(tables):
        if found := tables[cloud].get(_key(name)):
            return found
    return None


def smallest_with(provider: str, gpu: str) -> str | None:
    """The cloud's smallest type with this GPU: fewest GPUs, then vCPUs."""
    found = [(it.gpus, it.cpus, name) for name, it in _tables().get(provider, {}).items() if it.gpu == gpu]
    return min(found)[2] if found else None


def own_machine(gpus: int, gpu_type: str) -> str:
    """The type name of a machine in own racks."""
    return f"{gpus}x {gpu_type}"


def _key(name: str) -> str:
    return name.casefold().removeprefix("ml.").replace(" ", "_").removeprefix("standard_")


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, InstanceType]]:
    read = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {cloud: {_key(name): InstanceType(*facts) for name, facts in types.items()} for cloud, types in read.items()}

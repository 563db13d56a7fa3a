"""A machine's price as parts that add up to it exactly: GPUs by type, CPU, memory; one GPU as slices or time shares.

Clouds sell a machine whole; how its price is spread over its parts is a rule, and the rule is named beside the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext

from core.errors import BadInput
from core.money import CONTEXT, ZERO, split, total

GPU_AGAINST_REST = 9
CPU_AGAINST_GIB = 9
AWS_WEIGHTS = "AWS split weights: GPU to CPU and memory 9:1, a vCPU to a GiB 9:1"
COMPONENT_RATES = "component rates, scaled to the machine's price"
MIG_SLICES = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """What a machine has. ``gpus``: how many of each type; ``cpus`` vCPUs; ``memory_gib``."""

    gpus: Mapping[str, int]
    cpus: Decimal | int
    memory_gib: Decimal | int


@dataclass(frozen=True, slots=True)
class ComponentRates:
    """Prices of one vCPU, one GiB and one GPU of each type for the same span, in one currency: only their ratios count."""

    cpu: Decimal
    gib: Decimal
    gpu: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class NodeParts:
    """gpu + cpu + memory == the machine's price; ``gpu`` by type, all GPUs of the type together. ``rule`` says how."""

    gpu: Mapping[str, Decimal]
    cpu: Decimal
    memory: Decimal
    rule: str

    @property
    def whole(self) -> Decimal:
        return total((*self.gpu.values(), self.cpu, self.memory))


def by_component_rates(price: Decimal, shape: Shape, rates: ComponentRates) -> NodeParts:
    """``price`` in proportion to what the components would cost. Raises BadInput for a GPU type without a rate.

    g4dn.xlarge at 0.526: 4 × 0.010603 + 15.325 × 0.001421 + 0.461814 is 0.526002825, scaled to 0.526.
    """
    missing = sorted(set(shape.gpus) - set(rates.gpu))
    if missing:
        raise BadInput(
            "has no component rate", field="gpu", value=missing[0], hint="give a rate for each GPU type of the machine"
        )
    with localcontext(CONTEXT):
        weights: dict[tuple[str, str], Decimal] = {("gpu", name): rates.gpu[name] * count for name, count in shape.gpus.items()}
        weights["cpu", ""] = rates.cpu * shape.cpus
        weights["memory", ""] = rates.gib * shape.memory_gib
    return _parts(price, weights, COMPONENT_RATES)


def by_aws_weights(price: Decimal, shape: Shape, gpu_rates: Mapping[str, Decimal] | None = None) -> NodeParts:
    """The default: the GPUs nine parts, CPU and memory one (a vCPU weighs nine GiB). A machine without GPUs is CPU and memory.

    ``gpu_rates`` (list GPU-hour rates) weigh unlike GPUs against each other; without a rate for each type, all weigh the same.
    """
    with localcontext(CONTEXT):
        known = gpu_rates is not None and all(gpu_rates.get(name, ZERO) > 0 for name in shape.gpus)
        gpus = {name: (gpu_rates[name] if known and gpu_rates else Decimal(1)) * n for name, n in shape.gpus.items()}
        rest = {("cpu", ""): Decimal(shape.cpus) * CPU_AGAINST_GIB, ("memory", ""): Decimal(shape.memory_gib)}
        sum_gpus, sum_rest = total(gpus.values()), total(rest.values())
        if not sum_gpus or not sum_rest:
            weights = {("gpu", name): weight for name, weight in gpus.items()} | rest
        else:  # multiplied out, so that nothing is divided before the split
            weights = {("gpu", name): weight * GPU_AGAINST_REST * sum_rest for name, weight in gpus.items()}
            weights |= {name: weight * sum_gpus for name, weight in rest.items()}
    unlike = "" if len(shape.gpus) < 2 else "; unlike GPUs by list rates" if known else "; unlike GPUs alike (no list rates)"
    return _parts(price, weights, AWS_WEIGHTS + unlike)


def _parts(price: Decimal, weights: Mapping[tuple[str, str], Decimal], rule: str) -> NodeParts:
    shares = split(price, weights)
    gpu = {name: share for (kind, name), share in shares.items() if kind == "gpu"}
    return NodeParts(gpu, shares["cpu", ""], shares["memory", ""], rule)


def each_gpu(amount: Decimal, count: int) -> tuple[Decimal, ...]:
    """One type's part over its GPUs: an eighth each of eight, to the last decimal."""
    shares = split(amount, dict.fromkeys(range(count), 1))
    return tuple(shares[number] for number in range(count))


def slice_parts(amount: Decimal, slices: Mapping[str, int], whole: int = MIG_SLICES) -> dict[str, Decimal]:
    """One GPU's cost by MIG slices (compute slices of ``whole``: 1g, 2g, 3g, 4g, 7g); what nobody holds is ``''``. They sum to
    one whole GPU. Raises BadInput for more slices than the GPU has, or none of a holder."""
    held = sum(slices.values())
    if held > whole or any(count <= 0 for count in slices.values()) or "" in slices:
        raise BadInput(f"must be 1 to {whole} slices in all, each holder named", field="slices", value=dict(slices))
    return split(amount, {**slices, "": whole - held} if held < whole else dict(slices))


def time_parts(amount: Decimal, holders: Mapping[str, Decimal | int]) -> dict[str, Decimal]:
    """One GPU's cost over those that share it in time, by weight (equal where nothing better is known): n shares sum to one."""
    return split(amount, holders)

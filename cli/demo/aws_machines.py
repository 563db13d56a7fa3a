"""The machines of a generated AWS account: what runs when, who holds its GPUs, and how each is paid for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal

from core.capacity import NodeService
from core.usage import Deployment
from core.windows import Window

Pays = Literal["on_demand", "plan", "part_upfront_plan", "reserved"]
"""On demand, under the Savings Plan without upfront, under the one with part upfront, under the reserved instance."""


@dataclass(frozen=True, slots=True)
class Type:
    """An instance type: GPUs, on-demand price an hour in us-east-1 in 2026, and the made-up price under a Savings Plan."""

    gpu_type: str
    gpus: int
    on_demand: Decimal
    plan: Decimal


TYPES: Mapping[str, Type] = {
    "p5.48xlarge": Type("H100", 8, Decimal("55.04"), Decimal("30.2720")),
    "p4d.24xlarge": Type("A100", 8, Decimal("21.957642"), Decimal("13.1745852")),
    "g5.12xlarge": Type("A10G", 4, Decimal("5.672"), Decimal("3.573360")),
    "g5.xlarge": Type("A10G", 1, Decimal("1.006"), Decimal("0.633780")),
    "g6e.12xlarge": Type("L40S", 4, Decimal("10.49264"), Decimal("6.6103632")),
    "m5.xlarge": Type("", 0, Decimal("0.192"), Decimal("0.1209600")),
}
"""p4d and p5 from a dated price history, the others from published tables; a plan's prices are made up."""


@dataclass(frozen=True, slots=True)
class Hold:
    """``gpus`` of a machine serve a deployment, from ``late`` after each of its starts."""

    deployment: Deployment
    gpus: int
    late: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Machine:
    """``node`` is its name in the inventory, ``resource`` its instance id. ``pods`` share its cost in split rows (EKS)."""

    node: str
    resource: str
    instance_type: str
    runs: tuple[Window, ...]
    pays: Pays = "on_demand"
    holds: tuple[Hold, ...] = ()
    pods: tuple[str, ...] = ()
    in_reservation: bool = False

    @property
    def type(self) -> Type:
        return TYPES[self.instance_type]

    def hours(self) -> Iterator[datetime]:
        """The start of every hour it ran, whole hours."""
        for run in self.runs:
            at = run.start
            while at < run.end:
                yield at
                at += timedelta(hours=1)

    def services(self) -> Iterator[NodeService]:
        """What the inventory says of it."""
        for hold in self.holds:
            for run in self.runs:
                yield NodeService(
                    hold.deployment,
                    f"http://{self.node}:8000/{hold.deployment.model_id}",
                    self.node,
                    self.type.gpu_type,
                    hold.gpus,
                    run.start + hold.late,
                    run.end,
                )


CHAT = Deployment("prod", "inference", "chat-70b")
CODE = Deployment("prod", "inference", "code-32b")
DOCS = Deployment("prod", "inference", "docs-8b")


def _at(month: int, day: int, hour: int) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


FIRST, MIDDLE = Window(_at(7, 3, 6), _at(7, 3, 9)), Window(_at(7, 20, 6), _at(7, 20, 8))
EDGE = Window(_at(7, 31, 22), _at(8, 1, 1))
"""Three runs: in the first third of July, after it, and across the month's end."""
WHOLE = Window(_at(7, 1, 0), _at(8, 3, 0))

JULY: tuple[Machine, ...] = (
    Machine("i-0a11ce0000000001", "i-0a11ce0000000001", "p4d.24xlarge", (FIRST, MIDDLE, EDGE), "plan", (Hold(CHAT, 8),)),
    Machine("p4d-b", "i-0b0b000000000002", "p4d.24xlarge", (FIRST, MIDDLE), holds=(Hold(CODE, 8, timedelta(minutes=30)),)),
    Machine("p5-a", "i-0f5a000000000003", "p5.48xlarge", (MIDDLE,), holds=(Hold(CODE, 8),), in_reservation=True),
    Machine(
        "ip-10-0-3-17.ec2.internal", "i-0e55000000000004", "g5.12xlarge", (FIRST, MIDDLE, EDGE), "reserved",
        (Hold(DOCS, 2), Hold(CHAT, 1)), pods=("docs-0", "chat-0"),
    ),
    Machine("g5-small", "i-0950000000000005", "g5.xlarge", (FIRST,), "part_upfront_plan", (Hold(DOCS, 1),)),
    Machine("g5-forgotten", "i-0950000000000006", "g5.xlarge", (FIRST,)),
    Machine("gateway-1", "i-0650000000000007", "m5.xlarge", (WHOLE,)),
)  # fmt: skip
"""Chat, code and docs on p4d, p5 and g5: one GPU of the g5.12xlarge is nobody's, ``g5-forgotten`` and the gateway are not in
the inventory, and code's engine is half an hour late on ``p4d-b``."""

"""What machines cost by the bills."""

from __future__ import annotations

from pydantic import BaseModel, Field

from api.schemas.meta import Meta
from api.schemas.types import AmountOut, Currency, Time

_UNKNOWN = "null: hours are not known, or a part of the cost."
_NO_GPUS = "null: its GPUs are not known, or hours, or a part of the cost."


class NodeRow(BaseModel):
    """One machine, instance and currency over the time asked for, or in one hour of it. Quotients are divided last."""

    hour: Time | None = Field(default=None, description="With by_hour: the UTC hour.")
    cluster: str
    node: str
    instance_type: str
    resource_id: str = Field(description="As the bill names it.", examples=["i-0abc"])
    matched_by: str = Field(description="The rule that found the machine.", examples=["instance id"])
    currency: Currency
    hours: AmountOut = Field(description="Billed machine hours.")
    unassigned_hours: AmountOut = Field(description="Of these, hours in which no service held the node.")
    unassigned_gpu_hours: AmountOut | None = Field(description="Billed GPU-hours nobody held; null: its GPUs are not known.")
    unassigned_cost: AmountOut = Field(description="Effective cost of what nobody held, as the reconciliation counts it.")
    gpus: int | None = Field(description="null: not known.")
    effective_cost: AmountOut
    billed_cost: AmountOut
    list_cost: AmountOut | None = Field(description="Of its running charges alone; null: one has no list price.")
    effective_per_hour: AmountOut | None = Field(description=_UNKNOWN)
    billed_per_hour: AmountOut | None = Field(description=_UNKNOWN)
    list_per_hour: AmountOut | None = Field(description=_UNKNOWN)
    effective_per_gpu_hour: AmountOut | None = Field(description=_NO_GPUS)
    billed_per_gpu_hour: AmountOut | None = Field(description=_NO_GPUS)
    list_per_gpu_hour: AmountOut | None = Field(description=_NO_GPUS)
    gpu_cost: dict[str, AmountOut] | None = Field(description="Of the effective cost, by GPU type; null: what it has is unknown.")
    cpu_cost: AmountOut | None
    memory_cost: AmountOut | None = Field(description="GPUs, CPU and memory add up to the effective cost exactly.")
    parts_rule: str = Field(description="By what rule the effective cost was divided.")
    is_final: bool = Field(description="Every delivery behind it names its invoice.")


class NodesOut(BaseModel):
    rows: list[NodeRow]
    total_rows: int
    meta: Meta

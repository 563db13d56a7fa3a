"""Which machine a charge is of: what is unmatched, and what people said."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schemas.types import PRINTABLE, AmountOut, Currency, Reason, Time
from core.charge_join import REASON_WORDS

Resource = Annotated[
    str,
    StringConstraints(min_length=1, max_length=1000, pattern=PRINTABLE, strip_whitespace=True),
    Field(description="The resource as the bill writes it.", examples=["i-0abc"]),
]
Unmatched = Literal[
    "no machine", "several machines", "several resources", "no time of use", "names no machine", "unused", "ignored"
]
_REASONS = "; ".join(f"{name}: {words}" for name, words in REASON_WORDS.items())


class NodeSuggestion(BaseModel):
    """For a person to judge: it never enters the ledger."""

    node: str = Field(description="CLUSTER/NODE", examples=["lab/gpu-1"])
    score: AmountOut = Field(description="0 to 1.", examples=["0.85"])
    reason: str


class ResourceSuggestion(BaseModel):
    resource_id: str
    score: AmountOut = Field(description="0 to 1.", examples=["0.85"])
    reason: str


class UnmatchedCharge(BaseModel):
    """Charges of one resource, type, reason and currency."""

    provider: str
    resource_id: str = Field(description="Empty: the lines name none.")
    instance_type: str
    account: str
    region: str
    reason: Unmatched = Field(description=_REASONS)
    reason_text: str
    buckets: list[str]
    currency: Currency
    billed_cost: AmountOut
    effective_cost: AmountOut
    hours: AmountOut = Field(description="Machine hours.")
    first_at: Time | None = Field(description="null: the lines do not say when.")
    last_at: Time | None = Field(description="End of the last charge, excluded.")
    names: list[str] = Field(description="Of the machine, as its tags give them.")
    candidates: list[list[str]] = Field(description="[cluster, node] of several that fit.")
    suggestion: NodeSuggestion | None


class UnchargedNode(BaseModel):
    """A node that serves in hours a bill covers, and no charge is its."""

    cluster: str
    node: str = Field(description="Empty: of these targets no node is known, so no charge can be theirs.")
    gpu_type: str
    gpu_count: int
    targets: list[str]
    deployments: list[str]
    first_at: Time
    last_at: Time = Field(description="Excluded.")
    gpu_hours: AmountOut
    suggestion: ResourceSuggestion | None


class UnmatchedOut(BaseModel):
    charges: list[UnmatchedCharge]
    ignored: list[UnmatchedCharge]
    nodes: list[UnchargedNode]
    deliveries: int = Field(description="Bill deliveries in force.")
    not_joined: int = Field(description="Of them, those that wait for the control loop to join them.")


class MatchOut(BaseModel):
    id: int
    resource_id: str
    cluster: str
    node: str = Field(description="Empty: ignored.")
    ignored: bool
    valid_from: Time | None = Field(description="null: always.")
    valid_to: Time | None = Field(description="Excluded; null: no end.")
    made_by: str
    reason: str
    made_at: Time
    undone_by: str
    undone_at: Time | None


class MatchesOut(BaseModel):
    matches: list[MatchOut]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class MatchIn(_In):
    """A resource is a node of the inventory, or none of ours (``node`` left out). The same again changes nothing."""

    resource_id: Resource
    node: Annotated[str, StringConstraints(min_length=1, max_length=400, pattern=PRINTABLE)] | None = Field(
        None, description="CLUSTER/NODE, or NODE where one cluster has it; left out: ignore the resource.", examples=["lab/gpu-1"]
    )
    valid_from: Time | None = Field(None, description="A whole UTC hour; left out: always.")
    valid_to: Time | None = Field(None, description="A whole UTC hour, excluded; left out: no end.")
    reason: Reason
    dry_run: bool = Field(False, description="Say what would move and keep nothing.")


class UndoIn(_In):
    dry_run: bool = False


class Moved(BaseModel):
    """Cost that went to (+) or left (−) a node; of one currency they sum to zero."""

    cluster: str
    node: str = Field(description="Empty: of no machine.")
    currency: Currency
    billed: AmountOut
    effective: AmountOut


class MatchChanged(BaseModel):
    match: MatchOut
    changed: bool = Field(description="False: it stood so already.")
    dry_run: bool
    windows_to_close_again: int = Field(description="Closed quarter hours whose capacity cost changes.")
    moved: list[Moved]

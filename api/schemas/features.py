"""Answers about what requests are like: figures of their features, and which tool follows which."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, PlainSerializer, create_model

from api.schemas.meta import Meta
from api.schemas.types import Time
from core.feature_figures import FIGURES
from core.features import MEASURES

Number = Annotated[Decimal, PlainSerializer(float, return_type=float)]


class _FeatureKeys(BaseModel):
    hour: Time | None = None
    day: date | None = Field(None, description="Day of the reporting zone.")
    hour_of_week: int | None = Field(None, ge=0, le=167, description="0 is Monday 00:00 in the reporting zone.")
    deployment: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    model_id: str | None = None
    org: str | None = None
    team: str | None = None
    over_p90_requests: int
    over_p90_of: int = Field(description="Requests whose deployment's P90 of the week before is known.")
    reasons: dict[str, str] = Field(description="Figure -> why it is null.")


FeatureRow = create_model(
    "FeatureRow",
    __base__=_FeatureKeys,
    __doc__="Sums of answered requests, each beside the number of requests it is of, and figures divided last.",
    **{name: (int | None, Field(description="null: compared across tenants, not for a tenant's token.")) for name in MEASURES},  # type: ignore[call-overload]
    **{name: (Number | None, Field(description=meaning)) for name, meaning in FIGURES.items()},
)


class FeaturesOut(BaseModel):
    rows: list[FeatureRow]
    total_rows: int
    meta: Meta


class ToolEdge(BaseModel):
    from_tool: str = Field(description="Empty: the first tool of a session.")
    to_tool: str
    steps: int


class ToolGraphOut(BaseModel):
    edges: list[ToolEdge]
    total_rows: int
    meta: Meta

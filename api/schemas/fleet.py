"""Answers about how the fleet works: the token heat map and the efficiency series."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field, PlainSerializer, create_model

from api.schemas.meta import Meta
from api.schemas.types import Time
from core.efficiency import FIGURES

Number = Annotated[Decimal, PlainSerializer(float, return_type=float)]


class Cell(BaseModel):
    at: Time | int | date = Field(description="Hour (instant), hour of the reporting zone's day (0..23), or its day.")
    low_tokens: int
    high_tokens: int = Field(description="Excluded.")
    label: str = Field(examples=["4–8 K tokens"])
    requests: int
    tokens: int


class Lengths(BaseModel):
    requests: int
    tokens: int
    p50: Number | None = Field(description="Median length, right to 19 %; null: no request with counts.")
    p90: Number | None
    spread: Number | None = Field(description="P90 / P50; from 4 on such lengths are better served apart. null: the median is 0.")


class LengthsAt(Lengths):
    at: Time | int | date


class HeatMapOut(BaseModel):
    cells: list[Cell]
    lengths: list[LengthsAt]
    whole: Lengths
    meta: Meta


class _EfficiencyKeys(BaseModel):
    minute: Time | None = None
    hour: Time | None = None
    day: date | None = Field(None, description="Day of the reporting zone.")
    deployment: str
    engines: int
    reasons: dict[str, str] = Field(description="Figure -> why it is null.")
    notes: dict[str, str] = Field(description="Figure -> what makes it less sure.")


EfficiencyRow = create_model(
    "EfficiencyRow",
    __base__=_EfficiencyKeys,
    __doc__="One deployment in one step of time; every figure is a sum over its engines, divided last.",
    **{name: (Number | None, Field(description=meaning)) for name, meaning in FIGURES.items()},  # type: ignore[call-overload]
)


class EfficiencyOut(BaseModel):
    rows: list[EfficiencyRow]
    total_rows: int
    meta: Meta

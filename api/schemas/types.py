"""Field types of requests and answers: money as decimal strings, bounded printable texts, scopes."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, PlainSerializer, StringConstraints

from core.money import plain

PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
AmountOut = Annotated[
    Decimal,
    PlainSerializer(plain, return_type=str),
    Field(description="Exact decimal as a string; its currency is beside it.", examples=["12.345"]),
]
AmountIn = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{1,20}(\.[0-9]{1,12})?$"),
    Field(description="Positive decimal as a string, at most 12 decimals.", examples=["500.00"]),
]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$"), Field(examples=["USD"])]
Reason = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=PRINTABLE, strip_whitespace=True)]
Name = Annotated[str, StringConstraints(max_length=120, pattern=PRINTABLE)]
ScopeText = Annotated[
    str,
    StringConstraints(min_length=8, max_length=400, pattern=r"^(tenant|deployment|service_tier):[^\x00-\x1f\x7f]+$|^platform$"),
    Field(
        description="tenant:ORG[/TEAM[/PROJECT[/USER]]], deployment:CLUSTER/NAMESPACE/MODEL, service_tier:P2 or platform.",
        examples=["tenant:acme/search"],
    ),
]
Time = Annotated[AwareDatetime, Field(examples=["2026-11-30T12:00:00Z"])]
CostBasis = Literal["allocation", "usage"]
Period = Literal["day", "week", "month", "quarter", "year"]
Mode = Literal["warn", "enforce"]

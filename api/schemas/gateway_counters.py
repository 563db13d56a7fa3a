"""What gateways and SDKs counted themselves, beside what their usage records say."""

from __future__ import annotations

from pydantic import BaseModel, Field

from api.schemas.meta import Meta


class CountedTokens(BaseModel):
    """`input` and `output` are wholes, the others are parts of them; null: this source does not count it."""

    input: int | None
    output: int | None
    cached_input: int | None
    cache_creation_input: int | None
    reasoning: int | None


class RecordedTokens(BaseModel):
    """Of the usage records of the same deployment and minutes, from all sources; the input contains its cached parts."""

    input: int
    output: int


class Difference(BaseModel):
    """Counted less recorded; null where the source does not count it."""

    input: int | None
    output: int | None


class GatewayCounterOut(BaseModel):
    source: str = Field(description="`service.name` of the sender.")
    metric: str = Field(description="The metric believed; of several that carry the same tokens one is.")
    cluster: str
    namespace: str
    model_id: str
    counted: CountedTokens
    recorded: RecordedTokens
    difference: Difference


class GatewayCountersOut(BaseModel):
    rows: list[GatewayCounterOut]
    total_rows: int
    meta: Meta

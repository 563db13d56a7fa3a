"""Answer about the quality of the data."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel, Field

from api.schemas.reads import QualityOut
from api.schemas.types import AmountOut, Time


class MoneyPart(BaseModel):
    currency: str
    amount: AmountOut


class FaultPlace(BaseModel):
    place: str = Field(description="Deployment, scrape target or source.")
    count: int


class FaultKindOut(BaseModel):
    """One kind of fault in the window. `money` is what rests on it by itself; kinds may overlap, see `money` of the answer."""

    kind: str
    title: str
    count: int
    counts: str = Field(description="What is counted.")
    first: Time | None
    last: Time | None
    places: list[FaultPlace] = Field(description="Those with most of it.")
    money: list[MoneyPart] = Field(description="Empty: `money_is` says why there is none.")
    money_is: str
    what_to_do: str


class MoneyAtRisk(BaseModel):
    """Each cent once: `total` = `by_kind` - `counted_twice`."""

    currency: str
    total: AmountOut
    by_kind: AmountOut
    counted_twice: AmountOut


class StandingDifference(BaseModel):
    day: date
    deployment: str
    differs_since: Time | None
    checked_at: Time
    measures: dict[str, dict[str, int]] = Field(description="Measure -> its sum in the archive and in each rollup.")


class StandingOut(BaseModel):
    """Rollups against the raw archive: days of the window that were compared, and what differs."""

    checked_at: Time | None = Field(description="null: no day was compared yet.")
    days: int
    differences: list[StandingDifference]


class DataQualityOut(QualityOut):
    kinds: list[FaultKindOut]
    money: list[MoneyAtRisk]
    standing: StandingOut

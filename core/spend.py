"""What something has cost so far: the closed part and the running estimate, or why it is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.money import Money

SpendState = Literal["estimate", "provisional"]


@dataclass(frozen=True, slots=True)
class Spend:
    """``amount`` = closed + running; None when nothing of it has a price or currencies mix. A ``reason`` beside an amount names
    what is missing from it: the amount is then a lower bound. ``state`` is estimate while anything of it is running."""

    amount: Money | None
    running: Money
    closed: Money
    reason: str = ""
    state: SpendState = "provisional"

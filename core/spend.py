"""What something has cost so far: the closed part and the running estimate, or why it is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.money import Money

SpendState = Literal["estimate", "provisional"]


@dataclass(frozen=True, slots=True)
class Spend:
    """``amount`` = closed + running; None when nothing of it has a price or currencies mix. A ``reason`` beside an amount names
    what is missing from it: the amount is then a lower bound. ``state`` is estimate while anything of it is running.

    ``trueup``: how much of the closed part is there because bills say another price than the rates did."""

    amount: Money | None
    running: Money
    closed: Money
    reason: str = ""
    state: SpendState = "provisional"
    trueup: Money | None = None

    @property
    def decision(self) -> Money | None:
        """What caps are compared with: usage at provisional rates. A bill that arrives later alerts, and moves no tier."""
        return self.amount if self.amount is None or self.trueup is None else self.amount - self.trueup

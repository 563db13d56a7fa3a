"""A clock the tests move."""

from __future__ import annotations


class Clock:
    """Unix seconds that stand still until moved."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def __call__(self) -> float:
        return self.at_s

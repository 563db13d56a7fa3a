"""Targets written in the settings."""

from __future__ import annotations

from collections.abc import Sequence

from core.ports import FoundTarget


class StaticTargets:
    """A TargetSource that always tells the same."""

    def __init__(self, targets: Sequence[FoundTarget]) -> None:
        self._targets = tuple(targets)

    def targets(self) -> Sequence[FoundTarget]:
        return self._targets

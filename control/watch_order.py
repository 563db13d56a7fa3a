"""Which budgets to look at first: those nearest to their cap, on every loader commit; the others every two seconds.

Only a hint kept in memory: a restart starts with all of them, and every budget is looked at within two seconds whatever it says.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal

from control.budget_watch import WatchReport

HOT_SHARE = Decimal("0.5")
HOT_SCOPES = 20
"""So many scopes are hot however far they are from their cap: a small installation is watched whole every time."""
COLD_EVERY = timedelta(seconds=2)


class WatchOrder:
    """Remembers how near to its cap each scope was when last measured."""

    def __init__(self) -> None:
        self._shares: dict[str, Decimal] = {}
        self._cold_at: datetime | None = None

    def hot(self, names: Iterable[str]) -> list[str]:
        """Never measured ones first, then the nearest to their cap: at least 20, and all from half of it on."""
        ordered = self._ordered(names)
        return [name for n, name in enumerate(ordered) if n < HOT_SCOPES or self._shares.get(name, Decimal(1)) >= HOT_SHARE]

    def cold(self, names: Iterable[str]) -> list[str]:
        """The rest, nearest first."""
        ordered = self._ordered(names)
        hot = set(self.hot(ordered))
        return [name for name in ordered if name not in hot]

    def _ordered(self, names: Iterable[str]) -> list[str]:
        return sorted(names, key=lambda name: (-self._shares.get(name, Decimal(2)), name))

    def cold_due(self, report: WatchReport, now: datetime) -> bool:
        """Whether, after a hot pass with this report, the cold scopes are to be looked at too."""
        if report.scopes <= len(report.shares) + len(report.failed):
            return False
        return self._cold_at is None or now >= self._cold_at + COLD_EVERY or now < self._cold_at

    def note(self, report: WatchReport, now: datetime, *, cold: bool = False) -> None:
        self._shares.update(report.shares)
        if cold:
            self._cold_at = now

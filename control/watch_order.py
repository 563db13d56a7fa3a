"""Which budgets to look at first: those nearest to their cap, on every loader commit; the others every two seconds, in slices.

Only a hint kept in memory: a restart starts with all of them, and every budget is looked at within seconds whatever it says.
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
COLD_SLICE = 10


class WatchOrder:
    """Remembers how near to its cap each scope was, and when it was measured."""

    def __init__(self) -> None:
        self._shares: dict[str, Decimal] = {}
        self._measured_at: dict[str, datetime] = {}

    def hot(self, names: Iterable[str]) -> list[str]:
        """The nearest to their cap first: at least 20, and all from half of it on. A new scope counts as full."""
        ordered = sorted(names, key=lambda name: (-self._shares.get(name, Decimal(1)), name))
        return [name for n, name in enumerate(ordered) if n < HOT_SCOPES or self._shares.get(name, Decimal(0)) >= HOT_SHARE]

    def cold(self, names: Iterable[str], now: datetime) -> list[str]:
        """The next ten of the rest that were not measured for two seconds, the longest unseen first."""
        names = list(names)
        hot = set(self.hot(names))
        due = [name for name in names if name not in hot and self._is_due(name, now)]
        return sorted(due, key=lambda name: (name in self._measured_at, self._measured_at.get(name, now), name))[:COLD_SLICE]

    def _is_due(self, name: str, now: datetime) -> bool:
        at = self._measured_at.get(name)
        return at is None or not at <= now < at + COLD_EVERY

    def note(self, report: WatchReport, now: datetime) -> None:
        self._shares.update(report.shares)
        self._measured_at.update(dict.fromkeys([*report.shares, *report.failed], now))

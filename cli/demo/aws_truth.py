"""What a generated delivery is, from what its lines say of themselves: no importer, no recipe, no database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from cli.demo.aws_lines import CurLine
from core.money import ZERO

K = TypeVar("K", bound=Hashable)
Pair = tuple[Decimal, Decimal]
"""Billed and effective cost."""


@dataclass(frozen=True, slots=True)
class Truth:
    """``buckets`` and ``months`` (first instant of the month of use) hold both bases; ``machines`` by (node, hour) both bases of
    what names the machine; ``memo`` is the split rows' cost, in no sum."""

    buckets: dict[str, Pair] = field(default_factory=dict)
    machines: dict[tuple[str, datetime], Pair] = field(default_factory=dict)
    months: dict[datetime, Pair] = field(default_factory=dict)
    memo: Decimal = ZERO

    @property
    def billed(self) -> Decimal:
        """The invoice."""
        return sum((billed for billed, _ in self.buckets.values()), ZERO)

    @property
    def effective(self) -> Decimal:
        return sum((effective for _, effective in self.buckets.values()), ZERO)


def truth(lines: Iterable[CurLine]) -> Truth:
    """Sums of what the lines say."""
    buckets: dict[str, Pair] = defaultdict(lambda: (ZERO, ZERO))
    machines: dict[tuple[str, datetime], Pair] = defaultdict(lambda: (ZERO, ZERO))
    months: dict[datetime, Pair] = defaultdict(lambda: (ZERO, ZERO))
    memo = ZERO
    for line in lines:
        for says in line.says:
            cost = (says.billed, says.effective)
            memo += says.memo
            _add(buckets, says.bucket, cost)
            _add(months, line.start.replace(day=1, hour=0), cost)
            if line.node:
                _add(machines, (line.node, line.start), cost)
    return Truth(dict(buckets), dict(machines), dict(months), memo)


def _add(sums: dict[K, Pair], key: K, cost: Pair) -> None:
    sums[key] = (sums[key][0] + cost[0], sums[key][1] + cost[1])

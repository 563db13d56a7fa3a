"""Decision prices: the unit rates rules price work with, one per deployment for history and now alike.

They are the newest frozen running rates at the time they are taken, and are held until the price of the capacity, its currency or
the way of weighing work changes. Then a new one begins: baselines are made anew at it, and somebody is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, text, update

from core.running import RunningUnits, units_from_text
from core.usage import Deployment
from models.tables_rules import DecisionPriceRow

QUARTER_HOUR_US = 900_000_000
_NEWEST_UNITS = text("""
    SELECT d.cluster, d.namespace, d.model_id, d.targets, r.currency, r.source, r.units
    FROM (SELECT cluster, namespace, model_id, count(DISTINCT target) AS targets FROM node_service
          WHERE in_service_from <= :now AND (in_service_to IS NULL OR in_service_to > :now) GROUP BY 1, 2, 3) d
    JOIN LATERAL (SELECT * FROM running_rate r WHERE (r.cluster, r.namespace, r.model_id) = (d.cluster, d.namespace, d.model_id)
                  AND r.window_start <= :now ORDER BY r.window_start DESC LIMIT 1) r ON TRUE
    ORDER BY 1, 2, 3
""")


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """A deployment's unit rates; ``targets`` share its capacity evenly."""

    deployment: Deployment
    units: RunningUnits
    targets: int

    @property
    def busy_us_cost(self) -> float | None:
        """Cost of a microsecond in which one target is busy; None: capacity has no price."""
        capacity = self.units.capacity
        return None if capacity is None or not self.targets else float(capacity) / QUARTER_HOUR_US / self.targets

    @property
    def key(self) -> str:
        """What a decision price is held by: currency, price of a busy hour of one target, way of weighing."""
        busy, how = self.busy_us_cost, self.units.source.rpartition("(")[2].rstrip(")")
        hour = "unknown" if busy is None else f"{busy * 3.6e9:.6g}"
        return f"{hour} {self.units.currency} a busy hour of a target, weights: {how}"


@dataclass(frozen=True, slots=True)
class PriceChange:
    """A deployment's decision price gave way to another; ``before`` None: it is its first."""

    deployment: Deployment
    before: str | None
    after: str


def hold_prices(connection: Connection, now: datetime) -> list[PriceChange]:
    """Begin decision prices where there is none or where their key has changed."""
    held = {price.deployment: (price, key) for price, key in _held(connection)}
    changes: list[PriceChange] = []
    for row in connection.execute(_NEWEST_UNITS, {"now": now}).all():
        price = _price(row)
        before = held[price.deployment][1] if price.deployment in held else None
        if before != price.key:
            _begin(connection, price, now)
            changes.append(PriceChange(price.deployment, before, price.key))
    return changes


def decision_prices(connection: Connection) -> list[UnitPrice]:
    """The prices held now, by deployment; a deployment that never had unit rates has none."""
    return [price for price, _ in _held(connection)]


def _held(connection: Connection) -> Sequence[tuple[UnitPrice, str]]:
    p = DecisionPriceRow
    query = select(p.__table__).where(p.ended_at.is_(None)).order_by(p.cluster, p.namespace, p.model_id)
    return [(_price(row), row.key) for row in connection.execute(query)]


def _price(row: Any) -> UnitPrice:
    deployment = Deployment(row.cluster, row.namespace, row.model_id)
    return UnitPrice(deployment, units_from_text(row.units, row.currency, row.source), int(row.targets))


def _begin(connection: Connection, price: UnitPrice, now: datetime) -> None:
    p, d = DecisionPriceRow, price.deployment
    mine = (p.cluster == d.cluster) & (p.namespace == d.namespace) & (p.model_id == d.model_id) & p.ended_at.is_(None)
    connection.execute(update(p).where(mine).values(ended_at=now))
    row = {
        "cluster": d.cluster, "namespace": d.namespace, "model_id": d.model_id, "since": now, "key": price.key,
        "currency": price.units.currency, "source": price.units.source, "targets": price.targets, "units": price.units.as_text(),
    }  # fmt: skip
    connection.execute(insert(p).values(row))

"""Whose work a deployment's excess is: each team's cost while a rule fires against the week before, at one price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection

from core.money import ZERO, plain, quantize
from core.why import CULPRIT_SHARE, Own, own_parts
from core.windows import Window, floor_time
from models.decision_price_repo import UnitPrice
from models.rule_series import read_points

STEP = timedelta(minutes=5)
USUAL_SPAN = timedelta(days=7)
MOST_TOLD = 5


def own_work(
    connection: Connection, scope: str, firing: Window, excess: Decimal | None, prices: Sequence[UnitPrice]
) -> list[Own]:
    """Teams whose own work on the deployment ``scope`` rose, with their share of ``excess`` (None: of the rise of all work).

    ``firing`` is widened to whole five minutes; the week before it is scaled to its length.
    """
    start, end = floor_time(firing.start, STEP), floor_time(firing.end + STEP - timedelta(microseconds=1), STEP)
    during, usual = Window(start, end), Window(start - USUAL_SPAN, start)
    after = _costs(connection, scope, during, during.duration, prices)
    before = _costs(connection, scope, usual, during.duration, prices)
    risen = sum(after.values(), ZERO) - sum(before.values(), ZERO)
    return own_parts(before, after, risen if excess is None else excess)


def causes(parts: Sequence[Own]) -> tuple[str, ...]:
    """The teams that are causes, not victims."""
    return tuple(own.tenant for own in parts if own.share >= CULPRIT_SHARE)


def as_told(parts: Sequence[Own]) -> dict[str, Any]:
    """For an alert: causes, and the teams with the most extra work; money as text, an estimate at decision prices."""
    told = [
        {"tenant": own.tenant, "before": plain(own.before), "after": plain(own.after), "share": f"{own.share:.4f}"}
        for own in parts[:MOST_TOLD]
    ]
    return {"causes": list(causes(parts)), "tenants": told}


def _costs(
    connection: Connection, scope: str, window: Window, length: timedelta, prices: Sequence[UnitPrice]
) -> Mapping[str, Decimal]:
    """Each team's cost in ``window``, scaled to ``length``; a team whose work has no price is left out."""
    found = read_points(connection, "spend_rate", "each:team", window, STEP, prices, inside=scope)
    scale = length / window.duration * (STEP / timedelta(hours=1))
    known = {name: [p.value for p in points.points] for name, points in found.items()}
    return {
        name: quantize(Decimal(repr(sum(v for v in values if v is not None) * scale)))
        for name, values in known.items()
        if None not in values
    }

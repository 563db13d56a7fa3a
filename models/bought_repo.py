"""Bought requests: sums by quarter hour, what closing them reads and writes, and the holes people fill. Nothing here commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import Connection, Table, delete, insert, select, text

from core.bought import CLUSTER, BoughtInputs, BoughtKey, BoughtSum, BoughtWindow
from core.money import ZERO
from core.tokens import TOKEN_FIELDS, TokenSums
from core.usage import Deployment
from core.windows import Window
from models.tables_vendor import BoughtHoleRow, BoughtUsageRow

_USAGE = cast(Table, BoughtUsageRow.__table__)
_HOLES = cast(Table, BoughtHoleRow.__table__)
_PLACE = "cluster = :cluster AND namespace = :namespace AND model_id = :model_id"
_SUMS = ", ".join(f"CAST(sum({name}) AS bigint) AS {name}" for name in ("requests", *TOKEN_FIELDS))
_METERED = text(f"""
    SELECT date_bin('15 minutes', minute, TIMESTAMPTZ 'epoch') AS window_start, {_SUMS}
    FROM usage_minute WHERE {_PLACE} AND minute >= :start AND minute < :end GROUP BY 1
""")
_MARK = text("""
    INSERT INTO dirty_window (cluster, namespace, model_id, window_start, marked_at)
    SELECT m.*, CAST(:now AS timestamptz) FROM unnest(
        CAST(:clusters AS varchar[]), CAST(:namespaces AS varchar[]), CAST(:models AS varchar[]), CAST(:starts AS timestamptz[])
    ) AS m (cluster, namespace, model_id, window_start) ORDER BY 1, 2, 3, 4
    ON CONFLICT (cluster, namespace, model_id, window_start) DO UPDATE SET marked_at = excluded.marked_at
""")
WindowKey = tuple[Deployment, datetime]


def replace_bought(
    connection: Connection, hour: datetime, found: Mapping[WindowKey, Mapping[BoughtKey, BoughtSum]], now: datetime
) -> int:
    """Put the sums of the hour in the place of its former ones. Quarter hours that differ are marked to be closed (again);
    returns how many."""
    end = hour + timedelta(hours=1)
    former = read_bought(connection, Window(hour, end))
    fresh = {key: dict(sums) for key, sums in found.items()}
    moved = sorted(key for key in {*former, *fresh} if former.get(key) != fresh.get(key))
    if not moved:
        return 0
    connection.execute(delete(_USAGE).where(_USAGE.c.window_start >= hour, _USAGE.c.window_start < end))
    rows = [_usage_values(key, one) for key, sums in fresh.items() for one in sums.values()]
    for first in range(0, len(rows), 5_000):
        connection.execute(insert(_USAGE), rows[first : first + 5_000])
    values = {
        "now": now, "clusters": [d.cluster for d, _ in moved], "namespaces": [d.namespace for d, _ in moved],
        "models": [d.model_id for d, _ in moved], "starts": [at for _, at in moved],
    }  # fmt: skip
    connection.execute(_MARK, values)
    return len(moved)


def read_bought(
    connection: Connection, window: Window, deployment: Deployment | None = None
) -> dict[WindowKey, dict[BoughtKey, BoughtSum]]:
    """The sums of quarter hours that start in ``window``, of one deployment or of all."""
    query = select(_USAGE).where(_USAGE.c.window_start >= window.start, _USAGE.c.window_start < window.end)
    if deployment is not None:
        d = deployment
        query = query.where(_USAGE.c.cluster == d.cluster, _USAGE.c.namespace == d.namespace, _USAGE.c.model_id == d.model_id)
    found: defaultdict[WindowKey, dict[BoughtKey, BoughtSum]] = defaultdict(dict)
    for row in connection.execute(query):
        key = BoughtKey(
            row.org, row.team, row.project, row.user_id, row.key_id, row.service_tier, row.status, row.usage_source, row.sold,
            row.prompt_above, row.prompt_upto, row.gateway_currency,
        )  # fmt: skip
        tokens = TokenSums(*(getattr(row, name) for name in TOKEN_FIELDS))
        place = Deployment(row.cluster, row.namespace, row.model_id), row.window_start
        found[place][key] = BoughtSum(key, row.requests, tokens, row.gateway_cost + ZERO, row.gateway_priced)
    return dict(found)


def bought_inputs(
    connection: Connection, deployment: Deployment, windows: Sequence[Window], currency: str
) -> list[BoughtInputs]:  # fmt: skip
    """What closing these quarter hours of a bought deployment depends on, in their order, in two reads."""
    span = Window(windows[0].start, windows[-1].end)
    sums = read_bought(connection, span, deployment)
    place = {"cluster": deployment.cluster, "namespace": deployment.namespace, "model_id": deployment.model_id}
    metered = {
        row.window_start: (row.requests, TokenSums(*(getattr(row, name) for name in TOKEN_FIELDS)))
        for row in connection.execute(_METERED, {**place, "start": span.start, "end": span.end})
    }
    found: list[BoughtInputs] = []
    for window in windows:
        requests, tokens = metered.get(window.start, (0, TokenSums()))
        own = tuple(sums.get((deployment, window.start), {}).values())
        found.append(BoughtInputs(deployment, window, own, requests, tokens, currency))
    return found


def replace_holes(connection: Connection, deployment: Deployment, closed: Iterable[BoughtWindow]) -> None:
    """The holes of these quarter hours, in the place of those they had."""
    windows = list(closed)
    starts = [one.closed.window.start for one in windows]
    place = (_HOLES.c.cluster == deployment.cluster, _HOLES.c.namespace == deployment.namespace,
             _HOLES.c.model_id == deployment.model_id)  # fmt: skip
    connection.execute(delete(_HOLES).where(*place, _HOLES.c.window_start.in_(starts)))
    rows = [
        {
            "cluster": CLUSTER, "namespace": deployment.namespace, "model_id": deployment.model_id,
            "window_start": one.closed.window.start, "org": hole.key.org, "team": hole.key.team, "project": hole.key.project,
            "user_id": hole.key.user, "key_id": hole.key.key_id, "sold": hole.key.sold,
            "whole": one.closed.capacity_cost is None, "reason": hole.reason, "hint": hole.hint, "requests": hole.requests,
            **{name: getattr(hole.tokens, name) for name in TOKEN_FIELDS},
        }
        for one in windows for hole in one.holes
    ]  # fmt: skip
    for first in range(0, len(rows), 5_000):
        connection.execute(insert(_HOLES), rows[first : first + 5_000])


def _usage_values(place: WindowKey, one: BoughtSum) -> dict[str, Any]:
    deployment, at = place
    key = one.key._asdict()
    key["user_id"] = key.pop("user")
    return {
        "cluster": deployment.cluster, "namespace": deployment.namespace, "model_id": deployment.model_id, "window_start": at,
        **key, "requests": one.requests, **{name: getattr(one.tokens, name) for name in TOKEN_FIELDS},
        "gateway_cost": one.gateway_cost, "gateway_priced": one.gateway_priced,
    }  # fmt: skip

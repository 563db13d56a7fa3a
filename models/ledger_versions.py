"""Write closed windows as versions n+1, append-only, with their lines, heads and day sums, many windows in a few statements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, Table, text

from core.ledger import LedgerWindow
from core.usage import Deployment
from models.base import Base
from models.copy_csv import copying
from models.ledger_sums import move_sums
from models.tables_money import LedgerLineRow, LedgerWindowRow
from models.window_sums import move_windows

_PLACE = "cluster = :cluster AND namespace = :namespace AND model_id = :model_id"
_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 7360702))")
_HEADS = text(f"""
    SELECT window_start, h.version, w.currency, w.detail ->> 'input_digest' AS digest
    FROM ledger_head h JOIN ledger_window w USING (cluster, namespace, model_id, window_start, version)
    WHERE {_PLACE} AND window_start = ANY(CAST(:starts AS timestamptz[]))
""")
_SET_HEADS = text("""
    INSERT INTO ledger_head (cluster, namespace, model_id, window_start, version)
    SELECT :cluster, :namespace, :model_id, n.window_start, n.version
    FROM unnest(CAST(:starts AS timestamptz[]), CAST(:versions AS integer[])) AS n (window_start, version)
    ORDER BY n.window_start
    ON CONFLICT (cluster, namespace, model_id, window_start) DO UPDATE SET version = excluded.version
""")
_MOVE_DAYS = text(f"""
    INSERT INTO ledger_day AS d
        (day, cluster, namespace, model_id, org, team, project, user_id, service_tier, kind, currency, cost, allocated,
         trueup_cost, trueup_allocated)
    SELECT date_trunc('day', window_start, 'UTC'), cluster, namespace, model_id, org, team, project, user_id, service_tier, kind,
           m.currency, sum(m.sign * cost), sum(m.sign * allocated), sum(m.sign * trueup_cost), sum(m.sign * trueup_allocated)
    FROM ledger_line l JOIN unnest(
        CAST(:starts AS timestamptz[]), CAST(:versions AS integer[]), CAST(:currencies AS varchar[]), CAST(:signs AS integer[])
    ) AS m (window_start, version, currency, sign) USING (window_start, version)
    WHERE {_PLACE} AND window_start BETWEEN :first AND :last
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    ON CONFLICT (day, cluster, namespace, model_id, org, team, project, user_id, service_tier, kind, currency)
    DO UPDATE SET cost = d.cost + excluded.cost, allocated = d.allocated + excluded.allocated,
        trueup_cost = d.trueup_cost + excluded.trueup_cost, trueup_allocated = d.trueup_allocated + excluded.trueup_allocated
""")
_END_RUNNING = text(f"DELETE FROM running_rate WHERE {_PLACE} AND window_start = ANY(CAST(:starts AS timestamptz[]))")


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version of a closed window, and the digest of the inputs it was made of."""

    version: int
    currency: str
    digest: str


def lock_closes(connection: Connection, deployment: Deployment) -> None:
    """Closers of one deployment queue here to the end of the transaction; take it before reading heads or inputs."""
    connection.execute(_LOCK, {"name": str(deployment)})


def read_heads(connection: Connection, deployment: Deployment, starts: Sequence[datetime]) -> dict[datetime, Head]:
    rows = connection.execute(_HEADS, {**_place(deployment), "starts": list(starts)})
    return {r.window_start: Head(r.version, r.currency, r.digest) for r in rows}


def write_versions(
    connection: Connection,
    deployment: Deployment,
    closed: Sequence[LedgerWindow],
    heads: Mapping[datetime, Head],
    closed_at: datetime,
) -> None:
    """Append the next version of each window of one deployment, under ``lock_closes``; ``heads`` are those they follow."""
    if not closed:
        return
    place = _place(deployment)
    starts = [c.window.start for c in closed]
    former = [heads[start].version if start in heads else 0 for start in starts]
    versions = [version + 1 for version in former]
    pairs = list(zip(closed, versions, strict=True))
    _copy(connection, _WINDOWS, (_window_values(c, version, closed_at) for c, version in pairs))
    _copy(connection, _LINES, (row for c, version in pairs for row in _line_values(c, version)))
    connection.execute(_SET_HEADS, {**place, "starts": starts, "versions": versions})
    moves = [(start, version, c.currency, 1) for start, (c, version) in zip(starts, pairs, strict=True)]
    moves += [(start, heads[start].version, heads[start].currency, -1) for start in starts if start in heads]
    named = dict(zip(("starts", "versions", "currencies", "signs"), map(list, zip(*moves, strict=True)), strict=True))
    moved = {**place, **named, "first": min(starts), "last": max(starts)}
    connection.execute(_MOVE_DAYS, moved)
    move_sums(connection, moved)
    move_windows(connection, moved)
    connection.execute(_END_RUNNING, {**place, "starts": starts})


def _copy_into(row: type[Base]) -> str:
    table = cast(Table, row.__table__)
    return f"COPY {table.name} ({', '.join(c.name for c in table.columns if c.identity is None)}) FROM STDIN"


_WINDOWS, _LINES = _copy_into(LedgerWindowRow), _copy_into(LedgerLineRow)


def _copy(connection: Connection, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """COPY, for lines come by the thousand."""
    with copying(connection, statement, "the ledger", "ledger row") as copy:
        for row in rows:
            copy.write_row(row)


def _place(deployment: Deployment) -> dict[str, str]:
    return {"cluster": deployment.cluster, "namespace": deployment.namespace, "model_id": deployment.model_id}


def _window_values(closed: LedgerWindow, version: int, closed_at: datetime) -> tuple[Any, ...]:
    """In the order of ``LedgerWindowRow``'s columns."""
    d = closed.deployment
    return (
        d.cluster, d.namespace, d.model_id, closed.window.start, version, closed.state, closed.currency,
        closed.capacity_cost, closed.used_cost, closed.utilisation_ppm, closed.utilisation_source,
        closed.weight_source, closed.price_source, closed.engine_prompt_tokens, closed.engine_generation_tokens,
        closed.gateway_input_tokens, closed.gateway_output_tokens, json.dumps(dict(closed.detail)), closed_at,
        closed.charged_cost, closed.estimate_cost,
    )  # fmt: skip


def _line_values(closed: LedgerWindow, version: int) -> list[tuple[Any, ...]]:
    """In the order of ``LedgerLineRow``'s columns."""
    place = (*_place(closed.deployment).values(), closed.window.start, version)
    return [
        (
            *place, line.key.kind, line.key.token_kind, line.key.org, line.key.team, line.key.project, line.key.user,
            line.key.key_id, line.key.service_tier, line.key.workload_class,
            line.tokens, line.requests, line.cost, line.allocated, line.trueup_cost, line.trueup_allocated,
        )
        for line in closed.lines
    ]  # fmt: skip

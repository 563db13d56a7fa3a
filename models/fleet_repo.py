"""The newest round of fleet checks, and the GPUs that stand in service by target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, Connection, and_, case, cast, delete, func, insert, select

from core.fleet_checks import CHECKS, Finding
from core.usage import Deployment
from models.tables_fleet import FleetCheckRow
from models.tables_money import NodeServiceRow


@dataclass(frozen=True, slots=True)
class StepLimit:
    """``max_num_batched_tokens`` of a deployment's engines, and when the oldest of them was read."""

    tokens: int
    read_at: datetime


def replace_findings(connection: Connection, findings: Sequence[Finding], at: datetime) -> None:
    """Put one round in the place of the one before. Of several findings of one check and subject the last stands."""
    connection.execute(delete(FleetCheckRow))
    rows = {
        (one.subject, one.check): {
            "subject": one.subject, "check_id": one.check, "kind": one.kind, "verdict": one.verdict, "seen": one.seen,
            "read_from": one.where, "reason": one.reason, "fix": one.fix, "checked_at": at,
        }
        for one in findings
    }  # fmt: skip
    if rows:
        connection.execute(insert(FleetCheckRow), list(rows.values()))


def read_findings(connection: Connection) -> tuple[list[Finding], datetime | None]:
    """(the newest round by subject, in the list's order; when it was made, None: never or nothing was there to check)."""
    f = FleetCheckRow
    order = {check_id: place for place, check_id in enumerate(CHECKS)}
    rows = connection.execute(select(f)).all()
    found = [
        Finding(row.subject, row.kind, row.check_id, row.verdict, row.seen, row.read_from, row.reason, row.fix) for row in rows
    ]
    found.sort(key=lambda one: (one.kind, one.subject, order.get(one.check, len(order))))
    return found, max((row.checked_at for row in rows), default=None)


def step_limits(connection: Connection) -> dict[Deployment, StepLimit]:
    """What one engine step may hold, by deployment: only where every target in service was read and all say the same."""
    n, c = NodeServiceRow, FleetCheckRow
    read = case((c.seen.regexp_match("^[1-9][0-9]{0,9}$"), cast(c.seen, BigInteger)))
    query = (
        select(n.cluster, n.namespace, n.model_id, func.min(read).label("tokens"), func.min(c.checked_at).label("read_at"))
        .outerjoin(c, and_(c.subject == n.target, c.check_id == "max_num_batched_tokens"))
        .where(n.in_service_to.is_(None))
        .group_by(n.cluster, n.namespace, n.model_id)
        .having(func.min(read) == func.max(read), func.count(read) == func.count())
    )
    return {Deployment(r.cluster, r.namespace, r.model_id): StepLimit(r.tokens, r.read_at) for r in connection.execute(query)}


def gpus_in_service(connection: Connection) -> dict[str, tuple[str, int]]:
    """(GPU type, count) by target, of what stands in service now."""
    n = NodeServiceRow
    query = (
        select(n.target, func.min(n.gpu_type), func.sum(n.gpu_count))
        .where(n.in_service_to.is_(None))
        .group_by(n.target)
    )  # fmt: skip
    return {target: (gpu, int(count)) for target, gpu, count in connection.execute(query)}

"""What the rollups say about a scope: is it known, was it used lately, how much of the rest is being refused."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, func, not_, select, true
from sqlalchemy.orm import InstrumentedAttribute

from core.money import CONTEXT
from core.scopes import Scope
from models.tables_money import NodeServiceRow
from models.tables_usage import UsageDayRow, UsageMinuteRow

TENANT_COLUMNS = ("org", "team", "project", "user_id")
DEPLOYMENT_COLUMNS = ("cluster", "namespace", "model_id")
FEWEST_REQUESTS = 20
"""Below so many requests a share of refused ones says nothing."""


def in_scope(scope: Scope, table: Any) -> ColumnElement[bool]:
    """The condition that a rollup row of ``table`` belongs to ``scope``."""
    columns: tuple[str, ...] = {
        "tenant": TENANT_COLUMNS, "deployment": DEPLOYMENT_COLUMNS, "service_tier": ("service_tier",), "platform": ()
    }[scope.kind]  # fmt: skip
    named: list[InstrumentedAttribute[str]] = [getattr(table, column) for column in columns]
    return and_(true(), *(column == part for column, part in zip(named, scope.parts, strict=False)))


def scope_is_known(connection: Connection, scope: Scope) -> bool:
    """Whether usage, or a node in service, was ever seen in the scope."""
    tables: list[Any] = [UsageDayRow, NodeServiceRow] if scope.kind == "deployment" else [UsageDayRow]
    return any(
        connection.execute(select(exists().select_from(table).where(in_scope(scope, table)))).scalar_one() for table in tables
    )


def metered_since(connection: Connection, scope: Scope, since: datetime) -> bool:
    """Whether usage of the scope (refusals apart) fell into minutes from ``since`` on."""
    u = UsageMinuteRow
    recent = (u.minute >= since) & (u.status != "refused") & in_scope(scope, u)
    return bool(connection.execute(select(exists().where(recent))).scalar_one())


def refused_share_elsewhere(connection: Connection, scope: Scope, since: datetime) -> Decimal | None:
    """Of all other scopes' requests since then the share that was refused; None with too few requests to tell."""
    u = UsageMinuteRow
    refused = func.coalesce(func.sum(u.requests).filter(u.status == "refused"), 0)
    query = select(refused, func.coalesce(func.sum(u.requests), 0))
    if scope.kind == "platform":
        return None
    row = connection.execute(query.where((u.minute >= since) & not_(in_scope(scope, u)))).one()
    if row[1] < FEWEST_REQUESTS:
        return None
    with localcontext(CONTEXT):
        return Decimal(row[0]) / Decimal(row[1])

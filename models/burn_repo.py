"""Which budgets' burn incidents are open. The caller owns the transaction."""

from __future__ import annotations

from sqlalchemy import Connection, select

from core.incident import Severity
from models.tables_incident import IncidentRow

CAUSE = "budget burn "
"""Followed by the budget's period: one incident per scope and period."""


def open_burns(connection: Connection) -> dict[tuple[str, str], Severity]:
    """By (scope, cause) the highest severity of the episode."""
    i = IncidentRow
    query = select(i.scope, i.cause, i.severity).where(i.recovered_at.is_(None) & i.cause.startswith(CAUSE, autoescape=True))
    return {(row.scope, row.cause): row.severity for row in connection.execute(query)}

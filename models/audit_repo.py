"""The audit trail in the database: append under a lock so that the chain never forks, list, verify."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, text

from core.audit import AuditRecord, AuditVerdict, chain, verify_records
from models.tables_decide import AuditRow

CHAIN_LOCK = 7360702
AWS_PRICE_LIST = "aws-price-list"
"""Subject of the records of its imports."""
COLUMNS = (
    AuditRow.seq, AuditRow.at, AuditRow.actor, AuditRow.action, AuditRow.subject, AuditRow.detail, AuditRow.prev_hash,
    AuditRow.hash,
)  # fmt: skip


def append_audit(
    connection: Connection, at: datetime, actor: str, action: str, subject: str, detail: Mapping[str, Any]
) -> AuditRecord:
    """Append one record; other appenders wait until this transaction ends. ``detail`` is JSON without floats."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": CHAIN_LOCK})
    last = connection.execute(select(*COLUMNS).order_by(AuditRow.seq.desc()).limit(1)).one_or_none()
    record = chain(None if last is None else AuditRecord(*last), at, actor, action, subject, detail)
    row = {c.key: getattr(record, c.key) for c in COLUMNS}
    connection.execute(insert(AuditRow).values({**row, "detail": dict(record.detail)}))
    return record


def list_audit(connection: Connection, limit: int = 100, before_seq: int | None = None) -> list[AuditRecord]:
    """The newest records first; pass the last ``seq`` seen to read on."""
    query = select(*COLUMNS).order_by(AuditRow.seq.desc()).limit(limit)
    if before_seq is not None:
        query = query.where(AuditRow.seq < before_seq)
    return [AuditRecord(*row) for row in connection.execute(query)]


def imported_lists(connection: Connection) -> set[tuple[str, str, datetime]]:
    """(offer, region, since) of every whole version of a price list that an import took in, also one that changed no price. No
    other table keeps it, and the trail is never cut."""
    query = select(AuditRow.detail["lists"]).where(AuditRow.action == "rates.import", AuditRow.subject == AWS_PRICE_LIST)
    found = [one for lists in connection.execute(query).scalars() for one in lists or ()]
    return {(offer, region, datetime.fromisoformat(since)) for offer, region, since in found}


def verify_chain(connection: Connection, anchor: str | None = None) -> AuditVerdict:
    """Walk the whole chain and name the first broken record; ``anchor`` is a hash noted earlier (see ``core.audit``)."""
    return verify_records(_all(connection), anchor)


def _all(connection: Connection) -> Iterator[AuditRecord]:
    rows = connection.execution_options(yield_per=1000).execute(select(*COLUMNS).order_by(AuditRow.seq))
    for row in rows:
        yield AuditRecord(*row)

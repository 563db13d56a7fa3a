"""Effects that were given up, and sending one again under its key. The caller owns the transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from core.errors import BadInput, NotFound
from models.audit_repo import append_audit
from models.outbox_repo import revive


def resend(connection: Connection, outbox_id: int, actor: str, reason: str, now: datetime) -> dict[str, Any]:
    """Try a failed effect again, as often as a new one and with the same key. Raises NotFound, BadInput without a reason."""
    if not reason.strip():
        raise BadInput("must not be empty", field="reason", value=reason, hint="it goes into the audit trail")
    found = revive(connection, outbox_id, now)
    if found is None:
        raise NotFound(f"there is no failed effect {outbox_id}", hint="list them with `tokenfuse outbox list --failed`")
    append_audit(connection, now, actor, "outbox.resend", found["key"], {"outbox": outbox_id, "reason": reason})
    return found

"""Draining the outbox: each effect is delivered under its row's lock and marked in the same transaction.

A crash between delivery and mark delivers again with the same key; several drainers never take the same row. Effects wait for a
channel of their kind and are given up, by name, when none was configured for a day.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine

from core.ports import Delivery, Effector
from models.database import transaction
from models.outbox_repo import Pending, claim, fail_unclaimable, mark_done, mark_failed, mark_retry

log = logging.getLogger("tokenfuse.control")
FIRST_RETRY_S = 5
LONGEST_RETRY_S = 3600
MAX_ATTEMPTS = 20
GIVE_UP_AFTER = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class DrainReport:
    """How many effects were delivered, put off and given up."""

    delivered: int = 0
    retried: int = 0
    failed: int = 0


def drain(engine: Engine, effectors: Mapping[str, Effector], now: datetime, limit: int = 100) -> DrainReport:
    """Deliver up to ``limit`` due effects, oldest first, one transaction each. ``effectors`` maps kinds to channels."""
    counts = {"delivered": 0, "retry": 0, "failed": 0}
    with transaction(engine) as connection:
        counts["failed"] += fail_unclaimable(connection, list(effectors), now - GIVE_UP_AFTER)
    for _ in range(limit if effectors else 0):
        with transaction(engine) as connection:
            pending = claim(connection, list(effectors), now)
            if pending is None:
                break
            delivery = _deliver(effectors[pending.effect.kind], pending)
            attempts = pending.attempts + 1
            if delivery.outcome == "delivered":
                mark_done(connection, pending.id, attempts, now)
            elif delivery.outcome == "retry" and attempts < MAX_ATTEMPTS:
                delay = timedelta(seconds=max(backoff_s(pending.effect.key, attempts), delivery.retry_after_s))
                mark_retry(connection, pending.id, attempts, now + delay, delivery.detail)
            else:
                delivery = Delivery("failed", delivery.detail)
                mark_failed(connection, pending.id, attempts, delivery.detail)
                log.error("effect %s failed after %d attempts: %s", pending.effect.key, attempts, delivery.detail)
            counts[delivery.outcome] += 1
    return DrainReport(counts["delivered"], counts["retry"], counts["failed"])


def _deliver(effector: Effector, pending: Pending) -> Delivery:
    try:
        return effector.deliver(pending.effect)
    except Exception as error:
        log.exception("channel for %s failed", pending.effect.kind)
        return Delivery("retry", f"the channel failed ({type(error).__name__})")


def backoff_s(key: str, attempts: int) -> int:
    """Seconds to wait after ``attempts`` deliveries: doubling from 5 s to 1 h, spread by a quarter of itself over the keys."""
    delay = min(FIRST_RETRY_S << min(attempts - 1, 20), LONGEST_RETRY_S)
    return delay + zlib.crc32(f"{key}:{attempts}".encode()) % (delay // 4 + 1)

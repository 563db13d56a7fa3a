"""The usage ingest of this process: the service of ``ingest`` wired to the database's partitions and the archive."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from ingest.usage.service import UsageIngest
from sqlalchemy import Engine

from api.settings import ApiSettings
from core.ports import EventLog
from eventlog.archive import contains_ids
from models.database import transaction
from models.partitions import ensure_months, month_start


class PartitionKeeper:
    """Makes the months a batch needs before it is acknowledged; months made once are not asked for again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: set[datetime] = set()

    def __call__(self, times: set[datetime]) -> None:
        wanted = {month_start(at) for at in times} - self._made
        if wanted:
            with transaction(self._engine) as connection:
                ensure_months(connection, wanted)
            self._made |= wanted


def build_ingest(settings: ApiSettings, engine: Engine, log: EventLog, now: Callable[[], datetime]) -> UsageIngest:
    """Late records are looked up in the archive of ``settings.data_dir``."""

    def archive_has(ids: Collection[str]) -> set[str]:
        return contains_ids(settings.data_dir, ids)

    return UsageIngest(
        log, now=now, ensure_partitions=PartitionKeeper(engine), archive_has=archive_has, horizon=settings.dedupe_horizon
    )

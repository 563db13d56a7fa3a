"""The usage ingest of this process: the service of ``ingest`` wired to the database's partitions and the archive."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import datetime

from sqlalchemy import Engine

from api.settings import ApiSettings
from core.ports import EventLog
from eventlog.archive import contains_ids
from ingest.usage.classes import ClassScorer
from ingest.usage.identity_map import IdentityMapper
from ingest.usage.service import UsageIngest
from models.identity_repo import StoredIdentity
from models.partitions import PartitionKeeper
from models.workload_repo import StoredModels


def build_ingest(settings: ApiSettings, engine: Engine, log: EventLog, now: Callable[[], datetime]) -> UsageIngest:
    """Late records are looked up in the archive of ``settings.data_dir``."""

    def archive_has(ids: Collection[str]) -> set[str]:
        return contains_ids(settings.data_dir, ids)

    return UsageIngest(
        log, now=now, ensure_partitions=PartitionKeeper(engine), archive_has=archive_has, horizon=settings.dedupe_horizon,
        identity=IdentityMapper(StoredIdentity(engine), time.monotonic),
        classes=ClassScorer(StoredModels(engine), time.monotonic),
    )  # fmt: skip

"""The judge of usage records as a process runs it: over a database, a log and the raw archive of a data folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine

from core.ports import EventLog
from eventlog.archive import contains_ids
from ingest.usage.classes import ClassScorer
from ingest.usage.identity_map import IdentityMapper
from ingest.usage.service import UsageIngest
from models.identity_repo import StoredIdentity
from models.partitions import PartitionKeeper
from models.workload_repo import StoredModels


def build_ingest(engine: Engine, log: EventLog, data_dir: Path, horizon: timedelta, now: Callable[[], datetime]) -> UsageIngest:
    """Records older than ``horizon`` are looked up in the archive of ``data_dir``."""

    def archive_has(ids: Collection[str]) -> set[str]:
        return contains_ids(data_dir, ids)

    return UsageIngest(
        log, now=now, ensure_partitions=PartitionKeeper(engine), archive_has=archive_has, horizon=horizon,
        identity=IdentityMapper(StoredIdentity(engine), time.monotonic),
        classes=ClassScorer(StoredModels(engine), time.monotonic),
    )  # fmt: skip

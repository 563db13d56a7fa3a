"""Usage records through log and archive into the sums of bought requests, as the running system takes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from core.ports import LogBatch
from core.usage import UsageRecord, encode_line, line_fields
from core.usage_codec import encode_usage
from eventlog.archive import archive_segments
from eventlog.manifest import segments
from eventlog.spool import SpoolLog, SpoolSettings
from streaming.features import FeatureKeeper


def pack(db: Engine, folder: Path, records: Sequence[UsageRecord], now: datetime) -> None:
    """Append the records to the log of ``folder``, archive them, and sum their hours."""
    log = SpoolLog(folder / "log", SpoolSettings(segment_age_s=3600.0), lambda: now)
    log.append("usage", LogBatch([encode_line(line_fields(r)) for r in records], [encode_usage(r) for r in records]))
    log.close()
    archive_segments(folder, "usage", "000001", [s.segment for s in segments(folder / "log", "usage", "000001")])
    FeatureKeeper(db, folder, 400, lambda: now).catch_up()

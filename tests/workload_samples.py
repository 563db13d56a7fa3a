"""Requests of known kinds as usage records, and an archive of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from core.ports import LogBatch
from core.tokens import TokenCounts
from core.usage import Deployment, TenantPath, UsageRecord, encode_line, line_fields
from core.usage_codec import encode_usage
from eventlog.archive import archive_segments
from eventlog.manifest import segments
from eventlog.spool import SpoolLog, SpoolSettings

START = datetime(2026, 11, 30, 10, tzinfo=UTC)
CHAT, CODE, AGENT, CONTRACT = (
    (250, 0, 400, "stop"),
    (3_000, 0, 20, ""),
    (80_000, 76_000, 150, "tool_calls"),
    (400_000, 0, 60, "stop"),
)
Kind = tuple[int, int, int, str]
"""Input, of it from the cache, output, finish reason."""


def request(name: str, kind: Kind, at: datetime, **changes: object) -> UsageRecord:
    into, cached, out, finish = kind
    known: dict[str, object] = {
        "request_id": name, "started_at": at - timedelta(seconds=1), "finished_at": at,
        "deployment": Deployment("c", "n", "m"), "tenant": TenantPath("acme", "t, one"), "finish_reason": finish,
        "tokens": TokenCounts(input_uncached=into - cached, input_cache_read=cached, output=out),
    }  # fmt: skip
    return UsageRecord(**(known | changes))  # type: ignore[arg-type]


def mixed(count: int, kinds: Sequence[Kind] = (CHAT, CODE, AGENT), start: datetime = START) -> list[UsageRecord]:
    """Requests a second apart, of each kind in turn, each up to a fifth longer or shorter."""
    random = Random(7)

    def near(kind: Kind) -> Kind:
        factor = random.uniform(0.8, 1.2)
        return round(kind[0] * factor), round(kind[1] * factor), round(kind[2] * random.uniform(0.8, 1.2)), kind[3]

    return [request(f"r{n}", near(kinds[n % len(kinds)]), start + timedelta(seconds=n)) for n in range(count)]


def archive(folder: Path, records: Iterable[UsageRecord], lines: Iterable[str] | None = None) -> Path:
    """Pack records into the archive of ``folder``; ``lines`` in the place of their own."""
    records = list(records)
    log = SpoolLog(folder / "log", SpoolSettings(), lambda: datetime.now(UTC))
    log.append(
        "usage", LogBatch(list(lines or (encode_line(line_fields(r)) for r in records)), [encode_usage(r) for r in records])
    )
    log.close()
    epoch = "000001"
    archive_segments(folder, "usage", epoch, [s.segment for s in segments(folder / "log", "usage", epoch)])
    return folder

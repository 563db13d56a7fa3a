"""What these tests share: a log, and the programs of a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_server import program

from eventlog.spool import DiskSpace, SpoolLog, SpoolSettings

PLENTY = DiskSpace(free_bytes=10**12, total_bytes=10**12)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SpoolLog]:
    spool = SpoolLog(tmp_path / "log", SpoolSettings(), lambda: datetime.now(UTC), space=lambda _: PLENTY)
    yield spool
    spool.close()


@pytest.fixture(autouse=True, scope="session")
def _programs() -> None:
    if program("prometheus") is None or program("promtool") is None:
        pytest.skip("there is no Prometheus here: run `make prometheus`")

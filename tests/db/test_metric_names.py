"""Unknown and vanished metric names by source, from their first sight to their last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from core.ports import Page
from core.windows import Window
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.engine.parse import Origin
from ingest.engine.service import EngineIngest
from models.metric_names_repo import StrangeName, strange_names
from streaming.side_topics import import_topic

pytestmark = pytest.mark.db

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
TARGET = "http://gpu-1:8000/metrics"
KNOWN = 'vllm:prompt_tokens_total{engine="0",model_name="m"} 1\n'


def test_names_are_told_with_their_first_and_last_sight(db: Engine, tmp_path: Path) -> None:
    log = SpoolLog(tmp_path / "log", SpoolSettings(reserve_bytes=1, reserve_percent=0), lambda: AT)
    ingest = EngineIngest(log, lambda: AT, lambda _: None)
    texts = {
        0: KNOWN + 'vllm:brand_new_total{model_name="m"} 1\nvllm:generation_tokens_total{engine="0",model_name="m"} 1\n',
        60: KNOWN + 'vllm:brand_new_total{model_name="m"} 2\nvllm:other_new{model_name="m"} 1\n',
        90: KNOWN,
    }
    for minute, text in texts.items():
        ingest.take([(Page(TARGET, AT + timedelta(minutes=minute), text.encode(), "text/plain"), Origin())])
    log.flush()
    log.close()
    import_topic(db, tmp_path / "log", "fault", AT)
    with db.connect() as connection:
        found = strange_names(connection, Window(AT - timedelta(days=1), AT + timedelta(days=1)))
        earlier = strange_names(connection, Window(AT - timedelta(days=2), AT - timedelta(days=1)))
    end = timedelta(minutes=1)
    hour = timedelta(hours=1)
    assert found == [
        StrangeName(TARGET, "vllm:brand_new_total", "unmapped", AT, AT + hour + end),
        StrangeName(TARGET, "vllm:other_new", "unmapped", AT + hour, AT + hour + end),
        StrangeName(TARGET, "generation_tokens", "vanished", AT + hour, AT + hour + end),
    ]
    assert earlier == []

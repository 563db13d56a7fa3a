"""The topic ``counter`` into its tables: each point once through retries, crashes and two loaders; and how the sums are read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from otlp_samples import LATER, NOW, NOW_NS, OPTIONS, counter_export
from sqlalchemy import Engine, text

from core.windows import Window
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.otlp import decode
from ingest.otlp.conventions import conventions
from ingest.otlp.genai_metrics import append_counters, counter_lines
from models.gateway_counter_repo import CounterSum, counter_sums
from streaming import counter_topic
from streaming.counter_topic import import_counters

pytestmark = pytest.mark.db
S = 10**9
LLAMA = {"gen_ai.request.model": "llama"}
WINDOW = Window(NOW - timedelta(hours=1), NOW + timedelta(hours=1))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SpoolLog]:
    spool = SpoolLog(tmp_path / "log", SpoolSettings(), lambda: NOW)
    yield spool
    spool.close()


def send(log: SpoolLog, *totals: int, kind: str = "input", metric: str = "gen_ai.client.token.usage", first: int = 0) -> None:
    """Cumulative values, one a minute, of one series born at NOW."""
    for number, total in enumerate(totals, first + 1):
        point = ({**LLAMA, "gen_ai.token.type": kind}, NOW_NS, NOW_NS + number * 60 * S, float(total))
        append_counters(log, counter_lines(decode.points_of(counter_export(point, metric=metric))[0], OPTIONS, LATER)[0])
    log.flush()


def sums(db: Engine) -> list[CounterSum]:
    with db.connect() as connection:
        return counter_sums(connection, WINDOW, tuple(conventions().metrics))


def by_minute(db: Engine) -> list[int]:
    with db.connect() as connection:
        return list(connection.execute(text("SELECT tokens FROM gateway_counter_minute ORDER BY minute")).scalars())


def test_points_are_folded_once_however_often_they_are_read_or_sent(log: SpoolLog, db: Engine, tmp_path: Path) -> None:
    send(log, 10, 30)
    assert import_counters(db, tmp_path / "log", NOW) == 2
    assert import_counters(db, tmp_path / "log", NOW) == 0
    send(log, 10, 30, 60)
    assert import_counters(db, tmp_path / "log", NOW) == 3
    assert by_minute(db) == [10, 20, 30]


def test_a_crash_in_the_middle_repeats_nothing(
    log: SpoolLog, db: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(log, 10, 30, 60)

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(counter_topic, "remember_offset", killed)
        with pytest.raises(RuntimeError, match="killed"):
            import_counters(db, tmp_path / "log", NOW)
    assert by_minute(db) == []
    import_counters(db, tmp_path / "log", NOW)
    assert by_minute(db) == [10, 20, 30]


def test_two_loaders_at_once_count_once(log: SpoolLog, db: Engine, tmp_path: Path) -> None:
    send(log, *range(10, 510, 10))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: import_counters(db, tmp_path / "log", NOW), range(2)))
    assert sum(by_minute(db)) == 500


def test_a_line_that_is_none_is_passed_over(log: SpoolLog, db: Engine, tmp_path: Path) -> None:
    append_counters(log, ["{", '{"series": 1}'])
    send(log, 10)
    assert import_counters(db, tmp_path / "log", NOW) == 3
    assert by_minute(db) == [10]


def test_wholes_and_parts_are_read_apart_and_what_is_not_counted_is_unknown(log: SpoolLog, db: Engine, tmp_path: Path) -> None:
    for kind, total in (("input", 100), ("output", 20), ("cached_input", 64)):
        send(log, total, kind=kind)
    import_counters(db, tmp_path / "log", NOW)
    metric = "gen_ai.client.token.usage"
    assert sums(db) == [CounterSum("gateway", metric, "prod", "llm", "llama", 100, 20, 64, None, None)]


def test_two_names_that_carry_the_same_tokens_are_not_added(log: SpoolLog, db: Engine, tmp_path: Path) -> None:
    send(log, 100)
    send(log, 100, metric="gen_ai.client.inference.usage.input_tokens")
    import_counters(db, tmp_path / "log", NOW)
    (found,) = sums(db)
    assert (found.metric, found.input_tokens) == ("gen_ai.client.inference.usage.input_tokens", 100)


def test_two_processes_that_bear_the_same_attributes_are_two_counters(log: SpoolLog, db: Engine, tmp_path: Path) -> None:
    kind = {**LLAMA, "gen_ai.token.type": "input"}
    for minute, (one, other) in enumerate([(100, 5), (110, 8), (130, 20)], 1):
        at_ns = NOW_NS + minute * 60 * S
        for start_ns, total in ((NOW_NS, one), (NOW_NS + S, other)):
            body = counter_export((kind, start_ns, at_ns, float(total)))
            append_counters(log, counter_lines(decode.points_of(body)[0], OPTIONS, LATER)[0])
    log.flush()
    import_counters(db, tmp_path / "log", NOW)
    assert sum(by_minute(db)) == 150

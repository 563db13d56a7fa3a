"""Delta files of other versions of the program: their columns are read by name, in the loader and in a rebuild."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from delta_rows import MINUTE, NOW, SUMS, put, total, usage_row
from sqlalchemy import Engine, text

from core.errors import Conflict
from streaming.delta_columns import UNNAMED
from streaming.load_sql import ROLLUPS
from streaming.loader import Loader, rebuild
from streaming.plan import DELTAS, Columns

pytestmark = pytest.mark.db


@pytest.fixture
def load(db: Engine, tmp_path: Path) -> Callable[[], int]:
    return Loader(db, tmp_path, lambda: NOW).run_once


def older(kind: str, *absent: str) -> Columns:
    """The columns of a version that did not have these yet, in another order."""
    return tuple(column for column in reversed(DELTAS[kind]) if column[0] not in absent)


def row_in(columns: Columns, values: Mapping[str, object]) -> str:
    return ",".join(str(values.get(name, "x" if kind == "STRING" else 1)) for name, kind in columns)


def test_files_of_older_columns_are_read_by_name_and_what_they_lack_is_zero(
    db: Engine, tmp_path: Path, load: Callable[[], int]
) -> None:
    usage, engine = older("usage", "duration_ms", "length_output"), older("engine", "queue_us", "kv_token_us")
    wanted = {"minute_ms": MINUTE, "requests": 2, "output": 3, "length_input": 5, "org": "an older org"}
    put(tmp_path, "usage", "a-0-0", row_in(usage, wanted), columns=usage)
    put(tmp_path, "engine", "a-0-0", row_in(engine, {"minute_ms": MINUTE, "steps": 7}), columns=engine)
    put(tmp_path, "usage", "a-0-0", usage_row(MINUTE))
    assert load() == 3
    assert total(db, "SELECT requests, output, duration_ms FROM usage_minute WHERE org = 'an older org'") == [(2, 3, 0)]
    assert total(db, "SELECT kind, tokens FROM usage_length_hour") == [("input", 5)], "an absent length is unknown, not 0"
    assert total(db, "SELECT steps, queue_us, kv_token_us, busy_us FROM engine_minute") == [(7, 0, 0, 1)]
    assert total(db, SUMS.format("usage_minute")) == [(3, 13)]


def test_a_column_this_version_has_no_place_for_is_passed_over(db: Engine, tmp_path: Path, load: Callable[[], int]) -> None:
    newer = (("dropped", "STRING"), *DELTAS["usage"], ("gone", "BIGINT"))
    put(tmp_path, "usage", "a-0-0", row_in(newer, {"minute_ms": MINUTE, "requests": 2, "output": 3}), columns=newer)
    assert load() == 1
    assert total(db, SUMS.format("usage_minute")) == [(2, 3)]


def test_files_of_version_0_1_0_name_no_columns_and_are_known(db: Engine, tmp_path: Path) -> None:
    deltas = tmp_path / "deltas"
    for kind, values in (("usage", {"minute_ms": MINUTE, "output": 10}), ("engine", {"minute_ms": MINUTE, "steps": 7})):
        path = deltas / kind / "part-a-0-0"
        path.parent.mkdir(parents=True)
        path.write_text(row_in(UNNAMED[kind], values) + "\n")
    assert Loader(db, deltas, lambda: NOW).run_once() == 2
    forget_everything(db)
    assert rebuild(db, tmp_path, NOW, NOW) == 2
    assert total(db, SUMS.format("usage_minute")) == [(1, 10)]
    assert total(db, "SELECT steps FROM engine_minute") == [(7,)]


def forget_everything(db: Engine) -> None:
    with db.begin() as connection:
        for table in (
            "applied_file",
            *(rollup.table for rollup in ROLLUPS["usage"]),
            "usage_length_hour",
            "engine_minute",
        ):
            connection.execute(text(f"DELETE FROM {table}"))


def test_a_rebuild_goes_over_packs_of_several_versions(db: Engine, tmp_path: Path) -> None:
    deltas, old = tmp_path / "deltas", older("usage", "duration_ms")
    load = Loader(db, deltas, lambda: NOW).run_once
    put(deltas, "usage", "a-0-0", row_in(old, {"minute_ms": MINUTE, "requests": 1, "output": 4}), columns=old)
    put(deltas, "usage", "a-0-0", usage_row(MINUTE))
    assert load() == 2
    before = total(db, "SELECT * FROM usage_minute ORDER BY output")
    forget_everything(db)
    assert rebuild(db, tmp_path, NOW, NOW) == 2
    assert total(db, "SELECT * FROM usage_minute ORDER BY output") == before
    assert rebuild(db, tmp_path, NOW, NOW) == 0


@pytest.mark.parametrize("note", [None, "{", '[["requests", "BIGINT"]]'])
def test_files_whose_columns_are_not_known_wait_and_the_message_says_for_what(
    tmp_path: Path, load: Callable[[], int], note: str | None
) -> None:
    old = older("usage", "output")
    path = put(tmp_path, "usage", "a-0-0", row_in(old, {}), columns=old)
    place = path.with_name("columns.json")
    place.unlink() if note is None else place.write_text(note)
    with pytest.raises(Conflict, match=r"columns\.json"):
        load()
    assert path.exists()

"""A plan an earlier version stored, built by this one, keeps its operators' ids: else its checkpoint cannot be drained.

To add the plan of a version: its ``run.json``'s plan with what ``operator_ids.py`` of that version printed for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from stream_world import (
    UsageLine,
    World,
    expected_engine,
    expected_lengths,
    expected_minutes,
    now,
    random_lines,
    samples,
    with_duplicates,
)

from core.usage import LINE_COLUMNS, encode_line, operation_end
from eventlog import line_columns
from eventlog.line_columns import UNNOTED
from models.tables_usage import ENGINE_MEASURES
from streaming import run
from streaming.delta_columns import UNNAMED
from streaming.plan import Plan
from streaming.settings import StreamSettings

EngineMinutes = dict[tuple[Any, ...], tuple[int, ...]]
pytestmark = [pytest.mark.flink, pytest.mark.db, pytest.mark.timeout(1_800)]

HERE = Path(__file__).parent
PLANS = sorted((HERE / "plans").glob("*.json"))


@pytest.mark.parametrize("stored", PLANS, ids=lambda path: path.stem)
def test_a_stored_plan_finds_its_state(tmp_path: Path, stored: Path) -> None:
    command = [sys.executable, str(HERE / "operator_ids.py"), str(stored), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == json.loads(stored.read_text())["operators"]


@pytest.mark.parametrize("stored", PLANS, ids=lambda path: path.stem)
def test_a_stored_plan_says_all_this_version_asks(stored: Path) -> None:
    assert Plan.from_dict(json.loads(stored.read_text())["plan"]).inserts


def of_version_0_1_0(lines: list[UsageLine]) -> tuple[list[UsageLine], list[str]]:
    """The lines as this version understands them, and as that one wrote them."""
    rows = [dict(zip(LINE_COLUMNS, line, strict=True)) for line in lines]
    for row in rows:
        row["ends_operation"] = operation_end(None, str(row["status"]))
    written = [encode_line(tuple(row[name] for name in UNNOTED["usage"])) for row in rows]
    return [tuple(row.values()) for row in rows], written


def append_as_0_1_0(world: World, patch: pytest.MonkeyPatch, written: list[str]) -> None:
    patch.setattr(line_columns, "LINE_COLUMNS", UNNOTED)
    world.append("usage", written, segments=4)


def known_to_0_1_0(minutes: EngineMinutes) -> EngineMinutes:
    """Of each minute the measures that version had; of the others its lines say nothing, and they begin at the update."""
    kept = {name for name, _ in UNNAMED["engine"]}
    return {
        key: tuple(value for name, value in zip(ENGINE_MEASURES, values, strict=True) if name in kept)
        for key, values in minutes.items()
    }


def test_a_data_folder_of_version_0_1_0_goes_on_under_this_one(
    tmp_path: Path, db_url: str, db: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That version's plan and lines stand in for it: its job, its checkpoint, lines it left unread; then the update."""
    world = World(tmp_path, db_url, db)
    plan = Plan.from_dict(json.loads((HERE / "plans/0.1.0.json").read_text())["plan"])
    read, written = of_version_0_1_0(random_lines(1, 300, scenario="read"))
    unread, written_later = of_version_0_1_0(random_lines(2, 300, scenario="unread"))
    new, scrapes = random_lines(3, 300, scenario="new"), samples("0", 60)
    with monkeypatch.context() as patch:
        patch.setattr(run, "current_plan", lambda _days: plan)
        append_as_0_1_0(world, patch, written)
        world.append_engine(scrapes[:40])
        assert run.main(StreamSettings(tmp_path, db_url), True, now=now) == 0
        append_as_0_1_0(world, patch, written_later)
    world.append_usage(with_duplicates([*read, *unread, *new], 4))
    world.append_engine(scrapes[40:])
    try:
        world.run_until_idle()
        assert world.minutes() == expected_minutes([*read, *unread, *new])
        assert world.lengths() == expected_lengths([*read, *unread, *new])
        assert known_to_0_1_0(world.engine_minutes()) == known_to_0_1_0(expected_engine(scrapes)), "no interval is lost"
        assert not list((tmp_path / "deltas/damaged").glob("*/*/*"))
    finally:
        world.end()

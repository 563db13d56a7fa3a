"""A plan an earlier version stored, built by this one, keeps its operators' ids: else its checkpoint cannot be drained.

To add the plan of a version: its ``run.json``'s plan with what ``operator_ids.py`` of that version printed for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.plan import Plan

pytestmark = pytest.mark.flink

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

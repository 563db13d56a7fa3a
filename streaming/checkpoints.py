"""Runs and their retained checkpoints: ``DATA/checkpoints/RUN/JOB/chk-N``, with ``RUN/run.json`` beside them.

RUN is a zero-padded number that grows with each start of the job. Only the newest completed checkpoint may be recovered from:
files it committed are already applied, so an older one would count them again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.errors import Conflict
from eventlog.layout import PRIVATE_FOLDER, make_folder
from streaming.plan import Plan


@dataclass(frozen=True, slots=True)
class Run:
    """One start of the job: its plan and the folder each topic was read from (``epochs``: topic to epoch name)."""

    number: int
    folder: Path
    plan: Plan
    epochs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    run: Run
    path: Path


def start_run(root: Path, plan: Plan, epochs: Mapping[str, str]) -> Run:
    """Make the folder of a new run, durably, with its plan; ``plan.json`` at the root names the newest plan."""
    number = max(_numbers(root), default=0) + 1
    folder = root / f"{number:06d}"
    make_folder(root)
    folder.mkdir(PRIVATE_FOLDER)
    _write(folder / "run.json", {"plan": plan.to_dict(), "epochs": dict(epochs)})
    _write(root / "plan.json", plan.to_dict())
    return Run(number, folder, plan, dict(epochs))


def newest(root: Path) -> Checkpoint | None:
    """The newest completed checkpoint of the newest run that completed one. Raises Conflict when its description is damaged."""
    for number in sorted(_numbers(root), reverse=True):
        folder = root / f"{number:06d}"
        done = [path.parent for path in folder.glob("*/chk-*/_metadata")]
        if done:
            return Checkpoint(_read(number, folder), max(done, key=lambda path: int(path.name.removeprefix("chk-"))))
    return None


def sweep(root: Path, keep_from: int) -> bool:
    """Remove runs older than ``keep_from``, once that run has a checkpoint of its own: its first one shares no file with them.

    Returns whether it had one.
    """
    if not any((root / f"{keep_from:06d}").glob("*/chk-*/_metadata")):
        return False
    for number in _numbers(root):
        if number < keep_from:
            shutil.rmtree(root / f"{number:06d}", ignore_errors=True)
    return True


def _numbers(root: Path) -> list[int]:
    try:
        return [int(entry.name) for entry in os.scandir(root) if entry.name.isdigit()]
    except FileNotFoundError:
        return []


def _read(number: int, folder: Path) -> Run:
    place = folder / "run.json"
    try:
        fields = json.loads(place.read_text())
        return Run(number, folder, Plan.from_dict(fields["plan"]), fields["epochs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "restore the file from a backup; without it start afresh with `tokenfuse rebuild`"
        raise Conflict(f"{place} is damaged ({error}), so the newest checkpoint cannot be used", hint=hint) from error


def _write(path: Path, fields: dict[str, object]) -> None:
    with path.with_suffix(".tmp").open("w") as file:
        json.dump(fields, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    path.with_suffix(".tmp").rename(path)

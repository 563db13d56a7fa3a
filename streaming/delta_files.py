"""Delta files on disk: which are finished, where applied ones are kept for a rebuild, where damaged ones are set aside.

``DATA/deltas/KIND/part-UUID-SUBTASK-N``  finished by Flink (one being written starts with a dot), not yet applied
``DATA/deltas/applied/KIND/YYYY-MM-DD/``  applied, kept ``keep_delta_days`` for a database restored from an older copy
``DATA/deltas/damaged/KIND/``             could not be applied
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

KINDS: tuple[str, ...] = ("usage", "length", "engine", "progress")
"""In the order they are applied: a segment's progress never shows before the sums that were written with it."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """``name`` is KIND/FILE, the key in ``applied_file``; ``size`` is in bytes; ``finished_ns`` since the epoch."""

    kind: str
    name: str
    path: Path
    size: int
    finished_ns: int


def finished(deltas: Path, kind: str) -> list[DeltaFile]:
    """Finished files of a kind, oldest first. Flink writes into names that start with a dot and renames at the checkpoint."""
    return _listed(deltas / kind, kind)


def _listed(folder: Path, kind: str) -> list[DeltaFile]:
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.startswith("part-")]
    except FileNotFoundError:
        return []
    found = (DeltaFile(kind, f"{kind}/{e.name}", Path(e.path), e.stat().st_size, e.stat().st_mtime_ns) for e in entries)
    return sorted(found, key=lambda file: (file.finished_ns, file.name))


def keep_applied(deltas: Path, file: DeltaFile) -> Path:
    """Move an applied file out of the loader's sight, by the date it was finished."""
    day = datetime.fromtimestamp(file.finished_ns / 1e9, UTC).date()
    return _move(file, deltas / "applied" / file.kind / day.isoformat())


def set_aside(deltas: Path, file: DeltaFile) -> Path:
    return _move(file, deltas / "damaged" / file.kind)


def _move(file: DeltaFile, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / file.path.name
    try:
        file.path.rename(target)
    except FileNotFoundError:
        if not target.exists():
            raise
    return target


def applied_since(deltas: Path, kind: str, since: date) -> Iterator[DeltaFile]:
    """Kept files finished on or after ``since``, oldest first."""
    for day in _days(deltas, kind):
        if day >= since:
            yield from _listed(deltas / "applied" / kind / day.isoformat(), kind)


def sweep(deltas: Path, before: date) -> int:
    """Remove kept files of days before ``before``; returns the number of days removed."""
    old = [(kind, day) for kind in KINDS for day in _days(deltas, kind) if day < before]
    for kind, day in old:
        shutil.rmtree(deltas / "applied" / kind / day.isoformat())
    return len(old)


def _days(deltas: Path, kind: str) -> list[date]:
    try:
        return sorted(date.fromisoformat(entry.name) for entry in os.scandir(deltas / "applied" / kind))
    except FileNotFoundError:
        return []

"""Delta files on disk: which are finished, where applied ones are kept for a rebuild, where damaged ones are set aside.

``DATA/deltas/KIND/COLUMNS/part-UUID-SUBTASK-N``  finished by Flink (one being written starts with a dot), not yet applied
``DATA/deltas/applied/KIND/YYYY-MM-DD/HH``        a pack of applied files, kept for a database restored from an older copy
``DATA/deltas/damaged/KIND/COLUMNS/``             could not be applied

A pack is a row of ``{"name", "bytes"}`` lines, each followed by that many bytes: a file a second would use up the disk's inodes.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from streaming.delta_columns import UNNAMED, read_columns
from streaming.plan import Columns

KINDS: tuple[str, ...] = ("usage", "engine", "gpu", "progress")
"""In the order they are applied, and listed the other way round: sums that were there when the progress was go first.
Flink shows the files of one checkpoint one after the other, so progress may still lead by a moment: ``Consumption`` waits on."""


@dataclass(frozen=True, slots=True)
class DeltaFile:
    """``name`` is KIND/COLUMNS/FILE, the key in ``applied_file``; its ``size`` bytes lie at ``offset`` of ``path``."""

    kind: str
    name: str
    path: Path
    columns: Columns
    size: int
    finished_ns: int
    offset: int = 0
    is_packed: bool = False

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


def finished(deltas: Path, kind: str) -> list[DeltaFile]:
    """Finished files of a kind, oldest first. Flink writes into names that start with a dot and renames at the checkpoint.

    Raises Conflict when it is not known which columns they have.
    """
    with suppress(FileNotFoundError), os.scandir(deltas / kind) as entries:
        folders = [Path(entry.path) for entry in entries if entry.is_dir()]
        found = [file for folder in (deltas / kind, *folders) for file in _finished_in(deltas, kind, folder)]
        return sorted(found, key=lambda file: (file.finished_ns, file.name))
    return []


def _finished_in(deltas: Path, kind: str, folder: Path) -> Iterator[DeltaFile]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("part-"):
                with suppress(FileNotFoundError):  # another loader was quicker
                    stat = entry.stat()
                    path = Path(entry.path)
                    name = path.relative_to(deltas).as_posix()
                    yield DeltaFile(kind, name, path, _columns(deltas, name), stat.st_size, stat.st_mtime_ns)


def _columns(deltas: Path, name: str) -> Columns:
    """``name`` is KIND/COLUMNS/FILE, or KIND/FILE of version 0.1.0."""
    kind, *columns, _file = name.split("/")
    return read_columns(deltas / kind / columns[0]) if columns else UNNAMED[kind]


def keep_applied(deltas: Path, files: Sequence[DeltaFile], now: datetime) -> None:
    """Put applied files into the pack of this hour, durably, then remove them. After a kill one may be packed twice: no harm.

    One process at a time; files another loader has packed meanwhile are passed over.
    """
    at = now.astimezone(UTC)
    (deltas / "applied").mkdir(parents=True, exist_ok=True)
    with (deltas / "applied" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        present = [file for file in files if file.path.exists()]
        if not present:
            return
        pack = deltas / "applied" / present[0].kind / at.date().isoformat() / f"{at.hour:02d}"
        pack.parent.mkdir(parents=True, exist_ok=True)
        _append(pack, present)
        for file in present:
            file.path.unlink()


def _append(pack: Path, files: Sequence[DeltaFile]) -> None:
    with pack.open("ab") as out:
        out.truncate(_whole_bytes(pack))
        for file in files:
            content = file.read()
            out.write(json.dumps({"name": file.name, "bytes": len(content)}).encode() + b"\n" + content)
        out.flush()
        os.fsync(out.fileno())


def set_aside(deltas: Path, file: DeltaFile) -> Path:
    """Move a file that cannot be applied out of the way; returns where it is now."""
    place = deltas / "damaged" / file.name
    place.parent.mkdir(parents=True, exist_ok=True)
    return file.path.rename(place)


def kept_since(deltas: Path, kind: str, since: datetime) -> Iterator[DeltaFile]:
    """Kept files applied in the hour of ``since`` or later, oldest pack first."""
    first = since.astimezone(UTC)
    for day in _days(deltas, kind):
        for pack in sorted((deltas / "applied" / kind / day.isoformat()).iterdir()):
            if (day, int(pack.name)) >= (first.date(), first.hour):
                for name, offset, size in _packed(pack):
                    yield DeltaFile(kind, name, pack, _columns(deltas, name), size, 0, offset, is_packed=True)


def _packed(pack: Path) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of the whole entries; a torn last one was never fsynced, its file is still where Flink left it."""
    end = pack.stat().st_size
    with pack.open("rb") as file:
        while header := file.readline():
            if not header.endswith(b"\n"):
                return
            noted = json.loads(header)
            offset = file.tell()
            if offset + noted["bytes"] > end:
                return
            yield noted["name"], offset, noted["bytes"]
            file.seek(offset + noted["bytes"])


def _whole_bytes(pack: Path) -> int:
    return max((offset + size for _, offset, size in _packed(pack)), default=0)


def sweep(deltas: Path, before: date) -> int:
    """Remove packs of days before ``before``; returns the number of days removed."""
    old = [(kind, day) for kind in KINDS for day in _days(deltas, kind) if day < before]
    for kind, day in old:
        shutil.rmtree(deltas / "applied" / kind / day.isoformat())
    return len(old)


def _days(deltas: Path, kind: str) -> list[date]:
    try:
        return sorted(date.fromisoformat(entry.name) for entry in os.scandir(deltas / "applied" / kind))
    except FileNotFoundError:
        return []

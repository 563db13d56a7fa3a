"""Hands engine segments to the job in order of time: one merged file after the other, the next when the last is applied.

The file source reads what it finds in any order, which a counter fold cannot bear beyond the few samples it keeps. So the job
reads ``DATA/run/feed/EPOCH``, where each file holds every segment that became visible meanwhile, sorted by ``at_ms``; lines keep
their ``segment`` column, so progress, consumption and archive stay as they are. ``.fed.jsonl`` notes which file holds which.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.engine import LINE_COLUMNS
from eventlog.manifest import SegmentFile
from streaming.backlog import Backlog

MAX_BYTES = 64 * 1024 * 1024
AT = LINE_COLUMNS.index("at_ms")


@dataclass(frozen=True, slots=True)
class Fed:
    """One line of ``.fed.jsonl``: a feed file and the segments merged into it."""

    file: str
    segments: tuple[str, ...]


def feed_folder(data_dir: Path, epoch: str) -> Path:
    return data_dir / "run" / "feed" / epoch


class Feed:
    """One epoch's feed. Its notes are read once; a kill at any point is made good here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fed = _noted(folder)
        self._held = {name for entry in self._fed for name in entry.segments}

    def release(self, backlog: Backlog) -> int:
        """Release the next file if the last one is wholly applied and a segment waits; returns the number of segments in it.

        ``backlog`` is the engine topic's, of this epoch alone.
        """
        last = set(self._fed[-1].segments) if self._fed else set()
        if any(s.segment in last and backlog.applied.get(s.segment, 0) < s.lines for s in backlog.segments):
            return 0
        waiting = [s for s in backlog.segments if s.segment not in self._held]
        if not waiting:
            return 0
        chosen = _within(waiting, MAX_BYTES)
        number = int(self._fed[-1].file.removesuffix(".csv")) + 1 if self._fed else 1
        entry = Fed(f"{number:09d}.csv", tuple(s.segment for s in chosen))
        _release(self._folder, entry, [s.path for s in chosen])
        self._fed.append(entry)
        self._held.update(entry.segments)
        self._drop_archived({s.segment for s in backlog.segments})
        return len(chosen)

    def _drop_archived(self, visible: set[str]) -> None:
        """Feed files whose segments all left the log for the archive are not needed again."""
        for entry in self._fed[:-1]:
            if visible.isdisjoint(entry.segments):
                (self._folder / entry.file).unlink(missing_ok=True)


def _within(waiting: Sequence[SegmentFile], limit: int) -> list[SegmentFile]:
    """The first segments that fit into ``limit`` bytes together, at least one."""
    chosen, size = [waiting[0]], waiting[0].path.stat().st_size
    for segment in waiting[1:]:
        size += segment.path.stat().st_size
        if size > limit:
            break
        chosen.append(segment)
    return chosen


def _release(folder: Path, entry: Fed, paths: Sequence[Path]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = sorted((line for path in paths for line in _lines(path)), key=lambda found: found[0])
    hidden = folder / f".{entry.file}"
    with hidden.open("w", encoding="utf-8", newline="") as file:
        file.writelines(line for _, line in lines)
        file.flush()
        os.fsync(file.fileno())
    with (folder / ".fed.jsonl").open("a") as notes:
        notes.write(json.dumps({"file": entry.file, "segments": entry.segments}) + "\n")
        notes.flush()
        os.fsync(notes.fileno())
    hidden.rename(folder / entry.file)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(at_ms, raw line); a field never holds a line break."""
    with path.open(encoding="utf-8", newline="") as file:
        for line in file:
            yield int(next(csv.reader([line]))[AT]), line


def _noted(folder: Path) -> list[Fed]:
    """Files released so far, oldest first. A torn last note is cut off; a file noted and not yet renamed is renamed now."""
    notes = folder / ".fed.jsonl"
    if not notes.exists():
        return []
    text = notes.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        notes.write_text(whole)
    rows = [json.loads(line) for line in whole.splitlines()]
    fed = [Fed(row["file"], tuple(row["segments"])) for row in rows]
    if fed and (folder / f".{fed[-1].file}").exists():
        (folder / f".{fed[-1].file}").rename(folder / fed[-1].file)
    return fed

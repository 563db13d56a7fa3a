"""What a dead writer left half-written: keep the lines that are whole in both files, publish them, cut the torn rest.

Acknowledged lines were fsynced in both files, so they are always among those kept. Lines that were written but never
acknowledged may survive too; the sender sends them again and the request id makes that harmless.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from eventlog.layout import (
    FULL_TOPICS,
    SegmentFile,
    epoch_folder,
    epoch_names,
    fsync_folder,
    full_folder,
    full_path,
    make_folder,
    open_folder,
    open_segments,
    writer_of,
)
from eventlog.locks import is_dead, writers_lock


def repair_dead_writers(folder: Path, topic: str) -> list[SegmentFile]:
    """Publish the leftovers of dead writers in every epoch and leave the living alone; returns the segments now visible."""
    if not any(open_segments(folder, topic, epoch) for epoch in epoch_names(folder, topic)):
        return []
    published: list[SegmentFile] = []
    with writers_lock(folder):
        for epoch in epoch_names(folder, topic):
            for segment in open_segments(folder, topic, epoch):
                if is_dead(folder, writer_of(segment)):
                    published += _repair(folder, topic, epoch, segment)
    return published


def _repair(folder: Path, topic: str, epoch: str, segment: str) -> list[SegmentFile]:
    csv = open_folder(folder, topic, epoch) / f"{segment}.csv"
    ends = _line_ends(csv, _line_check(topic, segment))
    if topic in FULL_TOPICS:
        full = csv.with_suffix(".jsonl")
        if not full.exists():
            full = full_path(folder, topic, epoch, segment)
        full_ends = _line_ends(full, lambda line: b"\0" not in line)
        ends = ends[: len(full_ends)]
        if ends:
            _truncate(full, full_ends[len(ends) - 1])
    if not ends:
        discard(folder, topic, epoch, segment)
        return []
    _truncate(csv, ends[-1])
    return [publish(folder, topic, epoch, segment, len(ends))]


def _line_check(topic: str, segment: str) -> Callable[[bytes], bool]:
    if topic in FULL_TOPICS:
        suffix = f",{segment}\n".encode()
        return lambda line: line.endswith(suffix) and b"\0" not in line
    return lambda line: b"\0" not in line


def _line_ends(path: Path, is_whole: Callable[[bytes], bool]) -> list[int]:
    """The end of each whole line from the start of the file up to the first that is torn."""
    ends: list[int] = []
    position = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n") or not is_whole(line):
                break
            position += len(line)
            ends.append(position)
    return ends


def _truncate(path: Path, size_bytes: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size_bytes)
        os.fsync(file.fileno())


def publish(folder: Path, topic: str, epoch: str, segment: str, lines: int) -> SegmentFile:
    """Make a closed segment visible: full records first, so that whoever sees the lines finds them. A fault may be retried."""
    opened = open_folder(folder, topic, epoch)
    if topic in FULL_TOPICS:
        make_folder(full_folder(folder, topic, epoch))
        with suppress(FileNotFoundError):
            (opened / f"{segment}.jsonl").rename(full_path(folder, topic, epoch, segment))
        fsync_folder(full_folder(folder, topic, epoch))
    visible = epoch_folder(folder, topic, epoch) / f"{segment}.{lines}.csv"
    with suppress(FileNotFoundError):
        (opened / f"{segment}.csv").rename(visible)
    fsync_folder(visible.parent)
    return SegmentFile(segment, lines, visible, epoch)


def discard(folder: Path, topic: str, epoch: str, segment: str) -> None:
    """Remove a segment that holds no acknowledged line."""
    opened = open_folder(folder, topic, epoch)
    full_path(folder, topic, epoch, segment).unlink(missing_ok=True)
    (opened / f"{segment}.jsonl").unlink(missing_ok=True)
    (opened / f"{segment}.csv").unlink(missing_ok=True)

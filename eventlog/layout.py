"""Where the spool keeps what on disk, and how segments are named. The folder is ``DATA/log``.

``TOPIC/EPOCH/SEGMENT.LINES.csv``   visible segment          ``TOPIC/EPOCH/.open/SEGMENT.csv|.jsonl``  being written
``TOPIC.full/EPOCH/SEGMENT.jsonl``  its full records         ``TOPIC/EPOCH/.lock``   held shared while a writer has a segment open
``TOPIC/.seq``                      last sequence number     ``.writers/WRITER``     held exclusively while that writer lives
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from eventlog.line_columns import make_noted

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
"""What lies in the data folder tells who spent what: only the user who runs Tokenfuse reads it."""
FULL_TOPICS: tuple[str, ...] = ("usage", "engine")
"""Topics whose lines carry a last column ``segment`` and whose full records are kept beside them."""

_VISIBLE = re.compile(r"^(?P<segment>[0-9a-f]{8}-(?P<seq>\d{12}))\.(?P<lines>\d+)\.csv$")
_OPEN = re.compile(r"^(?P<segment>[0-9a-f]{8}-\d{12})\.(?:csv|jsonl)$")
_EPOCH = re.compile(r"^\d{6,}$")


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """One visible segment; ``lines`` is the count its file name states."""

    segment: str
    lines: int
    path: Path
    epoch: str


def sequence_of(segment: str) -> int:
    """The number of a segment within its topic: segments are read in this order."""
    return int(segment[9:])


def writer_of(segment: str) -> str:
    return segment[:8]


def segment_name(writer: str, seq: int) -> str:
    return f"{writer}-{seq:012d}"


def epoch_folder(folder: Path, topic: str, epoch: str) -> Path:
    return folder / topic / epoch


def open_folder(folder: Path, topic: str, epoch: str) -> Path:
    return folder / topic / epoch / ".open"


def full_folder(folder: Path, topic: str, epoch: str) -> Path:
    return folder / f"{topic}.full" / epoch


def full_path(folder: Path, topic: str, epoch: str, segment: str) -> Path:
    return full_folder(folder, topic, epoch) / f"{segment}.jsonl"


def epoch_names(folder: Path, topic: str) -> list[str]:
    """The topic's epochs, oldest first; empty if there is none yet."""
    try:
        names = [entry.name for entry in os.scandir(folder / topic) if _EPOCH.match(entry.name)]
    except FileNotFoundError:
        return []
    return sorted(names, key=int)


def visible_segments(folder: Path, topic: str, epoch: str) -> list[SegmentFile]:
    """The visible segments of one epoch by sequence number; empty if the epoch does not exist."""
    place = epoch_folder(folder, topic, epoch)
    try:
        names = [entry.name for entry in os.scandir(place)]
    except FileNotFoundError:
        return []
    matches = (_VISIBLE.match(name) for name in names)
    found = [SegmentFile(m["segment"], int(m["lines"]), place / m.string, epoch) for m in matches if m]
    return sorted(found, key=lambda file: (sequence_of(file.segment), file.segment))


def open_segments(folder: Path, topic: str, epoch: str) -> list[str]:
    """Names of the segments in the epoch's ``.open`` folder, whether their writers live or not."""
    try:
        names = [entry.name for entry in os.scandir(open_folder(folder, topic, epoch))]
    except FileNotFoundError:
        return []
    return sorted({m["segment"] for m in map(_OPEN.match, names) if m}, key=lambda name: (sequence_of(name), name))


def make_epoch(folder: Path, topic: str, epoch: str) -> None:
    """Create the epoch's folders durably; safe to call again and from several processes."""
    place = epoch_folder(folder, topic, epoch)
    if not place.is_dir():
        make_folder(place.parent)
        make_noted(place, topic)
        fsync_folder(place.parent)
    make_folder(open_folder(folder, topic, epoch))
    if topic in FULL_TOPICS:
        make_folder(full_folder(folder, topic, epoch))


def make_folder(place: Path) -> None:
    """``mkdir -p`` whose new names survive a power cut and which others may not enter, whatever the caller's umask."""
    if place.is_dir():
        return
    make_folder(place.parent)
    place.mkdir(PRIVATE_FOLDER, exist_ok=True)
    fsync_folder(place.parent)


def fsync_folder(place: Path) -> None:
    """Make renames and new names in ``place`` survive a power cut."""
    handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""What the archive holds: ``archive/TOPIC/manifest.jsonl``, one line per packed batch.

A Parquet file the manifest does not name is no part of the archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import orjson

from eventlog.layout import fsync_folder, sequence_of


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One Parquet file of one UTC date; ``name`` is its path within ``archive/TOPIC``."""

    name: str
    rows: int

    @property
    def day(self) -> date:
        return date.fromisoformat(self.name.split("/")[0].removeprefix("date="))


@dataclass(frozen=True, slots=True)
class Entry:
    """Segments (name, lines) packed together, and the files that hold their rows."""

    epoch: str
    segments: tuple[tuple[str, int], ...]
    files: tuple[ArchiveFile, ...]

    @property
    def first_seq(self) -> int:
        return min(sequence_of(name) for name, _ in self.segments)

    @property
    def last_seq(self) -> int:
        return max(sequence_of(name) for name, _ in self.segments)


def archive_folder(data_dir: Path, topic: str) -> Path:
    return data_dir / "archive" / topic


def entries(data_dir: Path, topic: str, *, from_seq: int = 0, to_seq: int | None = None) -> list[Entry]:
    """Entries, oldest first, whose sequence numbers overlap ``from_seq..to_seq``; a torn last line counts for nothing."""
    return [_decode(line) for line in _lines(data_dir, topic) if _overlaps(line, from_seq, to_seq)]


def last_sequence(data_dir: Path, topic: str) -> int:
    """The highest sequence number that was ever archived and is still listed; 0 if none."""
    return max((_range(line)[1] for line in _lines(data_dir, topic)), default=0)


def files_of(data_dir: Path, topic: str, first: date | None = None, last: date | None = None) -> list[Path]:
    """Parquet files of UTC dates ``first..last`` (both included)."""
    first, last = _utc_day(first), _utc_day(last)
    folder = archive_folder(data_dir, topic)
    named = (file for entry in entries(data_dir, topic) for file in entry.files)
    return [folder / f.name for f in named if (first is None or f.day >= first) and (last is None or f.day <= last)]


def newest_day(data_dir: Path, topic: str) -> date | None:
    """The last UTC date that has a file; None while the archive is empty."""
    return max((file.day for entry in entries(data_dir, topic) for file in entry.files), default=None)


def _utc_day(at: date | None) -> date | None:
    return at.astimezone(UTC).date() if isinstance(at, datetime) else at


def append_entry(data_dir: Path, topic: str, entry: Entry) -> None:
    """Add one line durably, cutting a torn last line first."""
    path = archive_folder(data_dir, topic) / "manifest.jsonl"
    with path.open("a+b") as file:
        file.truncate(_whole_size(path))
        file.write(_encode(entry))
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(path.parent)


def replace_entries(data_dir: Path, topic: str, kept: Iterable[Entry]) -> None:
    """Put a new manifest in the place of the old one, atomically."""
    path = archive_folder(data_dir, topic) / "manifest.jsonl"
    fresh = path.with_name(".manifest.new")
    with fresh.open("wb") as file:
        file.writelines(_encode(entry) for entry in kept)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    fsync_folder(path.parent)


def _whole_size(path: Path) -> int:
    data = path.read_bytes()
    return data.rfind(b"\n") + 1


def _lines(data_dir: Path, topic: str) -> Iterator[bytes]:
    path = archive_folder(data_dir, topic) / "manifest.jsonl"
    if not path.exists():
        return
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _encode(entry: Entry) -> bytes:
    """The range of sequence numbers comes first, so that a reader need not parse lines it does not want."""
    body = {
        "seq": [entry.first_seq, entry.last_seq],
        "epoch": entry.epoch,
        "segments": entry.segments,
        "files": [{"name": file.name, "rows": file.rows} for file in entry.files],
    }
    return orjson.dumps(body) + b"\n"


def _range(line: bytes) -> tuple[int, int]:
    first, last = line[len(b'{"seq":[') : line.index(b"]")].split(b",")
    return int(first), int(last)


def _overlaps(line: bytes, from_seq: int, to_seq: int | None) -> bool:
    first, last = _range(line)
    return last >= from_seq and (to_seq is None or first <= to_seq)


def _decode(line: bytes) -> Entry:
    body = orjson.loads(line)
    segments = tuple((name, lines) for name, lines in body["segments"])
    return Entry(body["epoch"], segments, tuple(ArchiveFile(file["name"], file["rows"]) for file in body["files"]))

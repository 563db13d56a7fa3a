"""The raw archive: consumed log segments as Parquet by date. ``data_dir`` is DATA (holding ``log`` and ``archive``).

The manifest is the authority. A batch goes: intent noted → files written aside and renamed → manifest line → log files removed →
intent cleared. After a kill the next call reads the intent: manifest line there, finish the removal; else drop the files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import orjson

from core.errors import BadInput, Conflict, NotFound
from eventlog.archive_manifest import (
    ArchiveFile,
    Entry,
    append_entry,
    archive_folder,
    entries,
    newest_day,
    replace_entries,
)
from eventlog.archive_rows import COLUMNS, by_day, segments_table, write_table
from eventlog.archive_sql import contains_ids, ids_since, query_archive, usage_minutes
from eventlog.layout import (
    SegmentFile,
    epoch_folder,
    fsync_folder,
    full_folder,
    full_path,
    make_folder,
    sequence_of,
    visible_segments,
)
from eventlog.locks import exclusive
from eventlog.manifest import remove_emptied_epochs
from eventlog.reader import sync_counter

__all__ = [
    "archive_segment", "archive_segments", "contains_ids", "ids_since", "newest_day", "query_archive", "sweep_archive",
    "usage_minutes",
]  # fmt: skip

BATCH_BYTES = 256 * 1024 * 1024
"""Log bytes packed into one batch: it is held in memory while it is written."""

Step = Callable[[str], None]


def archive_segment(data_dir: Path, topic: str, epoch: str, segment: str) -> list[Path]:
    """``archive_segments`` of one segment."""
    return archive_segments(data_dir, topic, epoch, [segment])


def archive_segments(
    data_dir: Path, topic: str, epoch: str, segments: Sequence[str], *, at_step: Step = lambda name: None
) -> list[Path]:
    """Pack segments into one Parquet file per UTC date (of finished_at, or the sample's at), then remove them from the log.

    Safe to run again after a kill at any point, and on segments already archived; returns the files that hold them.
    Raises NotFound for a segment in neither place, Conflict when the log holds another segment of an archived name.
    ``at_step`` is called before each durable step (tests kill there).
    """
    folder = archive_folder(data_dir, topic)
    if topic not in COLUMNS:
        raise BadInput("this topic is not archived", field="topic", value=topic, hint="use usage or engine")
    make_folder(folder)
    with exclusive(folder / ".lock"):
        _finish_interrupted(data_dir, topic)
        in_log = {file.segment: file for file in visible_segments(data_dir / "log", topic, epoch)}
        known = _entries_of(data_dir, topic, segments)
        _drop_copies(data_dir, topic, epoch, [(in_log[name], known[name]) for name in known if name in in_log])
        missing = [name for name in segments if name not in known and name not in in_log]
        if missing:
            raise NotFound(
                f"{topic}/{epoch}: no segment {missing[0]} in the log or the archive.", hint="Check the epoch and the name."
            )
        fresh = sorted({name for name in segments if name not in known}, key=sequence_of)
        batches = _batches(data_dir / "log", topic, [in_log[name] for name in fresh])
        packed = [_pack(data_dir, topic, epoch, batch, at_step) for batch in batches]
        remove_emptied_epochs(data_dir / "log", topic)
    found = dict.fromkeys(file.name for entry in (*known.values(), *packed) for file in entry.files)
    return sorted(folder / name for name in found)


def sweep_archive(data_dir: Path, topic: str, before: date) -> list[Path]:
    """Remove the files of UTC dates earlier than ``before``; returns them. The manifest forgets them first."""
    folder = archive_folder(data_dir, topic)
    if not folder.is_dir():
        return []
    with exclusive(folder / ".lock"):
        _finish_interrupted(data_dir, topic)
        kept = []
        for entry in entries(data_dir, topic):
            files = tuple(file for file in entry.files if file.day >= before)
            if files:
                kept.append(Entry(entry.epoch, entry.segments, files))
        replace_entries(data_dir, topic, kept)
        old = [place for place in sorted(folder.glob("date=*")) if date.fromisoformat(place.name[5:]) < before]
        removed = [path for place in old for path in sorted(place.iterdir())]
        for place in old:
            shutil.rmtree(place)
    return removed


def _entries_of(data_dir: Path, topic: str, segments: Sequence[str]) -> dict[str, Entry]:
    numbers = [sequence_of(name) for name in segments]
    if not numbers:
        return {}
    near = entries(data_dir, topic, from_seq=min(numbers), to_seq=max(numbers))
    of_name = {name: entry for entry in near for name, _ in entry.segments}
    return {name: of_name[name] for name in segments if name in of_name}


def _drop_copies(data_dir: Path, topic: str, epoch: str, copies: Sequence[tuple[SegmentFile, Entry]]) -> None:
    """Segments that are in the archive and, after a restored log folder, in the log as well."""
    for file, entry in copies:
        if dict(entry.segments)[file.segment] != file.lines:
            hint = "One of both is not what was written: move the log file aside."
            raise Conflict(
                f"{file.path}: the archive holds {dict(entry.segments)[file.segment]} lines under this name.", hint=hint
            )
    _remove_from_log(data_dir, topic, epoch, [(file.segment, file.lines) for file, _ in copies])


def _batches(log: Path, topic: str, files: Sequence[SegmentFile]) -> Iterator[list[SegmentFile]]:
    batch: list[SegmentFile] = []
    size_bytes = 0
    for file in files:
        records = full_path(log, topic, file.epoch, file.segment)
        more = file.path.stat().st_size + (records.stat().st_size if records.exists() else 0)
        if batch and size_bytes + more > BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(file)
        size_bytes += more
    if batch:
        yield batch


def _pack(data_dir: Path, topic: str, epoch: str, batch: list[SegmentFile], at_step: Step) -> Entry:
    folder = archive_folder(data_dir, topic)
    table = segments_table(data_dir / "log", topic, batch)
    parts = [(f"date={day}/{batch[0].segment}.parquet", rows) for day, rows in by_day(topic, table)]
    segments = tuple((file.segment, file.lines) for file in batch)
    entry = Entry(epoch, segments, tuple(ArchiveFile(name, part.num_rows) for name, part in parts))
    at_step("intent")
    _write_durably(folder / ".pending.json", orjson.dumps({"segments": segments, "files": [name for name, _ in parts]}))
    for name, part in parts:
        at_step(f"file {name}")
        _write_parquet(folder, name, part)
    at_step("manifest")
    append_entry(data_dir, topic, entry)
    at_step("remove")
    _remove_from_log(data_dir, topic, epoch, segments, at_step)
    at_step("clear")
    (folder / ".pending.json").unlink()
    return entry


def _write_parquet(folder: Path, name: str, table: Any) -> None:
    aside, target = folder / ".writing.parquet", folder / name
    write_table(table, aside)
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    make_folder(target.parent)
    aside.replace(target)
    fsync_folder(target.parent)


def _write_durably(path: Path, data: bytes) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    fsync_folder(path.parent)


def _remove_from_log(
    data_dir: Path, topic: str, epoch: str, segments: Sequence[tuple[str, int]], at_step: Step = lambda name: None
) -> None:
    """Lines first: a reader that finds no line does not look for the record."""
    log = data_dir / "log"
    if not segments:
        return
    sync_counter(log, topic)
    for name, lines in segments:
        (epoch_folder(log, topic, epoch) / f"{name}.{lines}.csv").unlink(missing_ok=True)
        at_step(f"records of {name}")
        full_path(log, topic, epoch, name).unlink(missing_ok=True)
    for place in (epoch_folder(log, topic, epoch), full_folder(log, topic, epoch)):
        if place.is_dir():
            fsync_folder(place)


def _finish_interrupted(data_dir: Path, topic: str) -> None:
    folder = archive_folder(data_dir, topic)
    pending = folder / ".pending.json"
    if not pending.exists():
        return
    intent = orjson.loads(pending.read_bytes())
    names = [name for name, _ in intent["segments"]]
    done = _entries_of(data_dir, topic, names)
    if done:
        entry = done[names[0]]
        _remove_from_log(data_dir, topic, entry.epoch, entry.segments)
    else:
        for name in intent["files"]:
            (folder / name).unlink(missing_ok=True)
    (folder / ".writing.parquet").unlink(missing_ok=True)
    pending.unlink()

"""The raw archive: consumed log segments as Parquet by date. ``data_dir`` is DATA (holding ``log`` and ``archive``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import date
from pathlib import Path


def archive_segment(data_dir: Path, topic: str, epoch: str, segment: str) -> list[Path]:
    """``archive_segments`` of one."""
    raise NotImplementedError


def archive_segments(data_dir: Path, topic: str, epoch: str, segments: Sequence[str]) -> list[Path]:
    """Pack segments into one Parquet file per UTC date, then remove them from the log. Safe to run again after a kill at any point."""
    raise NotImplementedError


def contains_ids(data_dir: Path, ids: Collection[str], since: date | None = None) -> set[str]:
    """Which of these request ids the usage archive holds (files of dates >= ``since``)."""
    raise NotImplementedError


def ids_since(data_dir: Path, since: date) -> Iterator[tuple[str | int, ...]]:
    """Warm-up rows of requests finished on or after ``since``: core.usage.LINE_COLUMNS with ``counted`` = 0, one per request id."""
    raise NotImplementedError


def sweep_archive(data_dir: Path, topic: str, before: date) -> list[Path]:
    """Remove archive files of dates before ``before``; returns what was removed."""
    raise NotImplementedError

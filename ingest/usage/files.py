"""A file of usage into the log: streamed in batches, with progress and a report."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from core.errors import BadInput
from ingest.usage.reading import BOM, GZIP, unpacked
from ingest.usage.registry import ADAPTERS
from ingest.usage.rows import BadRow, ParsedRow, SourceOptions
from ingest.usage.service import UsageIngest, Verdict

BATCH_ROWS = 10_000
HEAD_BYTES = 16_384
FIRST_REASONS = 20
HOPELESS_ROWS = 100
ANY_LOOKS = frozenset({"mapped"})
"""Formats whose files may look like anything: their own mapping says what is in them."""
Progress = Callable[[int, int, int], None]
"""Called after each batch with bytes read, bytes in the file (both as stored) and rows judged."""


@dataclass(slots=True)
class FileReport:
    """What became of a file. ``reasons`` are the first twenty quarantined rows as ``file:line: field: reason``; ``cut`` says
    where and why what was read ended before its end."""

    file: str
    format: str
    rows: int = 0
    accepted: int = 0
    duplicate: int = 0
    quarantined: int = 0
    reasons: list[str] = field(default_factory=list)
    unmapped: dict[str, int] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)

    def add_bad(self, source: str, verdicts: list[Verdict]) -> None:
        """Quarantined rows of one of many sources."""
        self.rows += len(verdicts)
        self.quarantined += len(verdicts)
        self._note_cut(source, verdicts)
        for verdict in verdicts[: FIRST_REASONS - len(self.reasons)]:
            self.reasons.append(f"{source}:{verdict.position}: {verdict.field}: {verdict.reason}")

    def add(self, verdicts: list[Verdict]) -> None:
        accepted = sum(1 for verdict in verdicts if verdict.verdict == "accepted")
        bad = [verdict for verdict in verdicts if verdict.verdict == "quarantined"]
        self.rows += len(verdicts)
        self.accepted += accepted
        self.quarantined += len(bad)
        self.duplicate += len(verdicts) - accepted - len(bad)
        self._note_cut(self.file, bad)
        for verdict in bad[: FIRST_REASONS - len(self.reasons)]:
            self.reasons.append(f"{self.file}:{verdict.position}: {verdict.field}: {verdict.reason}")

    def _note_cut(self, source: str, bad: list[Verdict]) -> None:
        found = [f"{source}:{verdict.position}: {verdict.reason}" for verdict in bad if verdict.field == GZIP]
        self.cut += found[: FIRST_REASONS - len(self.cut)]


def ingest_file(path: Path, format: str, options: SourceOptions, ingest: UsageIngest, progress: Progress) -> FileReport:
    """Read ``path`` (plain or gzip) as ``format`` into the log.

    Bad rows are quarantined and the rest goes on. Raises BadInput, before anything is written, when the format is unknown or the
    file is absent, empty, not text, or plainly of another format; DiskFull when the log is full (run it again, nothing doubles).
    """
    if format not in ADAPTERS:
        raise BadInput("is not a usage format", field="--format", value=format, hint=f"use one of {', '.join(sorted(ADAPTERS))}")
    with _opened(path) as (stored, size), _collected_by_batch():
        _check_head(path.name, format, _head(path))
        seen = ingest.unmapped.copy()
        report = FileReport(path.name, format)
        rows = _named(ADAPTERS[format].rows(unpacked(stored), options), path.name)
        while batch := list(islice(rows, BATCH_ROWS)):
            if not report.rows:
                _check_hope(path.name, format, batch)
            report.add(ingest.accept(batch, source=path.name))
            progress(stored.tell(), size, report.rows)
            gc.collect(0)
        report.unmapped = dict(ingest.unmapped - seen)
        return report


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    try:
        stored = path.open("rb")
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=str(path), hint="give the path of a file") from error
    with stored:
        yield stored, path.stat().st_size


@contextmanager
def _collected_by_batch() -> Iterator[None]:
    """No garbage collection in the midst of a batch: its tens of thousands of rows hold no cycles, and walking them again and
    again takes a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _head(path: Path) -> bytes:
    with path.open("rb") as stored:
        try:
            return unpacked(stored).read(HEAD_BYTES).removeprefix(BOM).lstrip()
        except (EOFError, OSError, zlib.error):
            return b"?"


def _check_head(name: str, format: str, head: bytes) -> None:
    if not head:
        raise BadInput("the file is empty", where=name, hint="give a file with at least one record")
    if format in ANY_LOOKS or ADAPTERS[format].looks_like(head):
        return
    if b"\0" in head:
        raise BadInput("the file is binary, not text", where=f"{name}:1", hint="give NDJSON, a JSON array or CSV, plain or gzip")
    fitting = next((other for other, adapter in ADAPTERS.items() if adapter.looks_like(head)), None)
    if fitting is not None:
        start = head[:40].decode("utf-8", "replace").splitlines()[0]
        hint = f"it looks like {fitting}: pass --format {fitting}"
        raise BadInput(f"is not {format} data", where=f"{name}:1", field=_first_field(start), hint=hint)


def _first_field(start: str) -> str:
    """The first key or column of a line, to name what was met."""
    return start.lstrip('[{ "').split('"')[0].split(",")[0][:40]


def _check_hope(name: str, format: str, batch: list[ParsedRow]) -> None:
    first = batch[0]
    if len(batch) >= HOPELESS_ROWS and isinstance(first, BadRow) and all(isinstance(row, BadRow) for row in batch):
        error = first.error
        message = f"none of the first {len(batch)} rows is a {format} record; the first {error.message}"
        raise BadInput(message, where=f"{name}:{first.position}", field=error.field, hint="check --format")


def _named(rows: Iterator[ParsedRow], name: str) -> Iterator[ParsedRow]:
    """The rows, with the file's name on what the adapter refuses whole."""
    try:
        yield from rows
    except BadInput as error:
        where = ":".join(part for part in (name, error.where.removeprefix("line ")) if part)
        raise BadInput(error.message, where=where, field=error.field, value=error.value, hint=error.hint) from error

"""Recorded scrapes: a folder of ``UNIXTIME.prom`` or ``UNIXTIME.prom.gz``; the name's time is the sample's time."""

from __future__ import annotations

import gzip
import re
import statistics
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

from core.errors import BadInput
from core.ports import EventLog, Page
from core.windows import epoch_ms
from ingest.engine.families import CUT, MAX_PAGE_BYTES
from ingest.engine.faults import Fault
from ingest.engine.parse import Origin
from ingest.engine.service import EngineIngest

NAME = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\.prom(?:\.gz)?")
EARLIEST = datetime(2015, 1, 1, tzinfo=UTC)
AHEAD = timedelta(minutes=5)
BATCH_PAGES = 100


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """``skipped`` are (file name, reason); ``faults`` counts every fault row written, those of skipped files included."""

    files: int
    pages: int
    samples: int
    faults: int
    skipped: tuple[tuple[str, str], ...]


class FolderPages:
    """A PageSource over recorded pages in order of time. Every walk yields the same pages; ``skipped`` is filled anew by each.

    Raises BadInput when the folder does not exist or holds no recorded page.
    """

    def __init__(self, folder: Path, target: str, now: Callable[[], datetime]) -> None:
        if not folder.is_dir():
            raise BadInput(
                "is not a folder", field="folder", value=str(folder), hint="give the folder that holds UNIXTIME.prom files"
            )
        self._target, self._latest = target, now() + AHEAD
        self.paths, self.bad_names = self._sort(sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")))
        if not self.paths:
            raise BadInput(
                "holds no recorded page", where=str(folder), field="folder", hint="files must be named UNIXTIME.prom[.gz]"
            )
        self.skipped: list[tuple[str, str]] = []

    @property
    def times(self) -> list[datetime]:
        return list(self.paths)

    def pages(self) -> Iterator[Page]:
        self.skipped = list(self.bad_names)
        for at, path in self.paths.items():
            try:
                yield Page(self._target, at, _read(path))
            except BadInput as error:
                self.skipped.append((path.name, str(error)))

    def _sort(self, paths: Iterable[Path]) -> tuple[dict[datetime, Path], list[tuple[str, str]]]:
        good: dict[datetime, Path] = {}
        bad: list[tuple[str, str]] = []
        for path in paths:
            try:
                at = self._time(path)
                if at in good:
                    raise BadInput(f"has the same time as {good[at].name}", where=path.name)
                good[at] = path
            except BadInput as error:
                bad.append((path.name, str(error)))
        return dict(sorted(good.items())), bad

    def _time(self, path: Path) -> datetime:
        match = NAME.fullmatch(path.name)
        if match is None:
            raise BadInput("name is not UNIXTIME.prom[.gz]", where=path.name)
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(Decimal(match[1]) * 1000))
        if not EARLIEST <= at <= self._latest:
            raise BadInput("time of the name is before 2015 or in the future", where=path.name, value=at.isoformat())
        return at


def _read(path: Path) -> bytes:
    try:
        if path.suffix != ".gz":
            with path.open("rb") as plain:
                return plain.read(MAX_PAGE_BYTES + 1)
        with gzip.open(path) as packed:
            return packed.read(MAX_PAGE_BYTES + 1)
    except EOFError as error:
        raise BadInput(CUT, where=path.name, hint="the gzip file ends too early") from error
    except (OSError, zlib.error) as error:
        raise BadInput(f"cannot be read: {error}", where=path.name) from error


def replay_folder(
    folder: Path,
    log: EventLog,
    target: str,
    origin: Origin,
    *,
    now: Callable[[], datetime],
    ensure_partitions: Callable[[Iterable[datetime]], None],
    progress: Callable[[int, int], None] | None = None,
) -> ReplayReport:
    """Write every page's samples. ``target`` names the engine's address in its key; ``progress`` gets (files done, files).

    ``origin.watched_since`` and ``interval_ms`` default to the first page's time and the usual distance of two pages. The same
    folder again writes the same sample ids, which the fold counts once. Bad names and pages are skipped, named in the report,
    and written as faults. Raises BadInput for a folder without pages, Unavailable when the log refuses.
    """
    source = FolderPages(folder, target, now)
    known = _fill(origin, source.times)
    ingest = EngineIngest(log, now, ensure_partitions)
    pages = samples = faults = done = 0
    unread: list[tuple[str, str]] = []
    for batch in _batches(source.pages()):
        taken = ingest.take([(page, known) for page in batch])
        unread += [(source.paths[page.at].name, reason) for page, reason in taken.refused]
        pages += len(batch) - len(taken.refused)
        samples, faults, done = samples + taken.samples, faults + taken.faults, done + len(batch)
        if progress is not None:
            progress(done, len(source.paths))
    at_of = {path.name: at for at, path in source.paths.items()}
    faults += ingest.report(_fault(target, at_of.get(name, source.times[0]), name, reason) for name, reason in source.skipped)
    files = len(source.paths) + len(source.bad_names)
    return ReplayReport(files, pages, samples, faults, tuple(sorted([*source.skipped, *unread])))


def _fill(origin: Origin, times: list[datetime]) -> Origin:
    steps = [epoch_ms(b) - epoch_ms(a) for a, b in pairwise(times)]
    usual_ms = int(statistics.median(steps)) if steps else None
    return replace(
        origin,
        watched_since=origin.watched_since or times[0],
        interval_ms=origin.interval_ms if origin.interval_ms is not None else usual_ms,
    )


def _fault(target: str, at: datetime, name: str, reason: str) -> Fault:
    kind = "bad_file_name" if NAME.fullmatch(name) is None else "page_cut_short" if CUT in reason else "bad_page"
    return Fault(kind, target, at, name, {"reason": reason})  # type: ignore[arg-type]


def _batches(pages: Iterator[Page]) -> Iterator[list[Page]]:
    batch: list[Page] = []
    for page in pages:
        batch.append(page)
        if len(batch) == BATCH_PAGES:
            yield batch
            batch = []
    if batch:
        yield batch

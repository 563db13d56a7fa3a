"""What a job without state must know first: the request ids of the dedupe horizon (counted = 0), each engine's newest samples.

The lines go into a folder of their own, which the new job reads whole before it sees the log.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path

from core.engine import LINE_COLUMNS as ENGINE_LINE
from core.engine_fold import KEPT
from core.usage import encode_line
from eventlog.archive import ids_since, query_archive


def warmup_folder(data_dir: Path, topic: str, epoch: str) -> Path:
    return data_dir / "run" / "warmup" / topic / epoch


def write_warmup(data_dir: Path, epochs: Mapping[str, str], since: date) -> dict[str, int]:
    """Write each topic's warm-up file (``EPOCH.LINES.csv``, EPOCH = ``warmup-`` and the epoch that follows) from the archive.

    Returns the lines of each topic; a topic without any gets no file.
    """
    usage = (encode_line(row) for row in ids_since(data_dir, since))
    lines = {"usage": usage, "engine": _newest_samples(data_dir, since)}
    return {topic: _write(warmup_folder(data_dir, topic, epoch), epoch, lines[topic]) for topic, epoch in epochs.items()}


def _newest_samples(data_dir: Path, since: date) -> Iterator[str]:
    """One more sample per engine than the fold holds: so it knows, as before, that older ones were let go."""
    query = f"""SELECT {", ".join(ENGINE_LINE)} FROM {{read}}
        QUALIFY row_number() OVER (PARTITION BY target, engine, model_id ORDER BY at_ms DESC) <= {KEPT + 1}
        ORDER BY target, engine, model_id, at_ms"""
    for row in query_archive(data_dir, "engine", query, {}, since):
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(row)
        yield text.getvalue()


def _write(folder: Path, epoch: str, lines: Iterable[str]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.iterdir():
        stale.unlink()
    count = 0
    with (folder / ".writing").open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(f"{line},{epoch}\n")
            count += 1
        file.flush()
        os.fsync(file.fileno())
    if count:
        (folder / ".writing").rename(folder / f"{epoch}.{count}.csv")
    return count

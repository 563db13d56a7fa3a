"""Which columns the lines of an epoch have: a job reads an epoch by one set of columns, so two sets never share one.

``TOPIC/EPOCH/.columns`` holds the names, in order; it is there from the epoch's first moment and is never changed.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import core.engine
import core.usage

NOTE = ".columns"
LINE_COLUMNS: Mapping[str, tuple[str, ...]] = {"usage": core.usage.LINE_COLUMNS, "engine": core.engine.LINE_COLUMNS}
"""The topics whose lines a job reads by their columns, as this program writes them."""
UNNOTED: Mapping[str, tuple[str, ...]] = {
    "usage": (
        "request_id", "first_ms", "finished_ms", "cluster", "namespace", "model_id", "org", "team", "project", "user_id",
        "key_id", "service_tier", "status", "usage_source", "workload_class", "input_uncached", "input_cache_read",
        "input_cache_write_5m", "input_cache_write_1h", "output", "output_reasoning", "duration_ms", "repeated_input", "counted",
    ),
    "engine": ("sample_id", "target", "engine", "cluster", "namespace", "model_id", "node", "at_ms", "payload"),
}  # fmt: skip
"""Columns in epochs without a note: version 0.1.0 made them. Never edited."""


def takes_our_lines(epoch: Path, topic: str) -> bool:
    """Whether lines of this program may be added to the folder ``TOPIC/EPOCH``."""
    ours = LINE_COLUMNS.get(topic)
    if ours is None:
        return True
    try:
        return (epoch / NOTE).read_text().split() == list(ours)
    except FileNotFoundError:
        return ours == UNNOTED[topic]


def make_noted(epoch: Path, topic: str) -> None:
    """Make the epoch's folder with its note in one step; when another process was quicker, its folder stays. The caller syncs."""
    fresh = epoch.with_name(f".new-{secrets.token_hex(4)}")
    fresh.mkdir(0o700)
    if topic in LINE_COLUMNS:
        with (fresh / NOTE).open("w") as file:
            file.write("\n".join(LINE_COLUMNS[topic]))
            file.flush()
            os.fsync(file.fileno())
    else:
        (fresh / ".open").mkdir(0o700)  # an empty folder would be replaced by another's rename
    try:
        fresh.rename(epoch)
    except OSError:
        shutil.rmtree(fresh)
        if not epoch.is_dir():
            raise

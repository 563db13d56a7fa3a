"""Who may read the data folder: the user who runs Tokenfuse, nobody else."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

OURS = ("log", "archive", "deltas", "checkpoints", "run")
"""``pg`` is missing: the server keeps it closed itself, and under root it belongs to a user of its own, who must reach it
through the data folder; so that may be entered, and what is ours in it may not."""


def close_to_others(data_dir: Path) -> None:
    """Make each of our folders 0700; version 0.1.0 made some with the umask of whoever ran the command first."""
    for name in OURS:
        place = data_dir / name
        with suppress(FileNotFoundError, PermissionError):
            if stat.S_IMODE(place.stat().st_mode) != 0o700:
                place.chmod(0o700)

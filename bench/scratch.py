"""A folder for one measurement, gone at its end however it ends."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.database import stop_embedded

TRIES, PAUSE_S = 50, 0.1


@contextmanager
def scratch() -> Iterator[Path]:
    """Readable to the embedded server's user. A server in its ``pg`` is stopped; one cut off while it was set up still writes
    for a moment, so the removal is tried again."""
    folder = Path(tempfile.mkdtemp(prefix="tfbench"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        stop_embedded(folder / "pg")
        for _ in range(TRIES):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(PAUSE_S)

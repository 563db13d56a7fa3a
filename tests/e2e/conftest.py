"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenfuse_command import Tokenfuse


@pytest.fixture(scope="module")
def tokenfuse() -> Iterator[Tokenfuse]:
    """One data folder per module, of a name that must be quoted everywhere it goes.

    pytest's own temporary folders are closed to the user the embedded database runs as.
    """
    folder = Path(tempfile.mkdtemp(prefix="it's tf e2e "))
    folder.chmod(0o755)
    command = Tokenfuse(folder)
    yield command
    command.run("down", timeout=120)
    shutil.rmtree(folder, ignore_errors=True)

"""The real ``tokenfuse`` command on a data folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class Tokenfuse:
    """The ``tokenfuse`` command on one data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TOKENFUSE_")},
            "TOKENFUSE_SETTINGS": str(folder / "tokenfuse.toml"),
            "TOKENFUSE_DATA_DIR": str(folder / "data"),
        }

    def run(self, *arguments: str, expect: int = 0, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == expect, f"{arguments} → {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done

    def json(self, *arguments: str, expect: int = 0, timeout: float = 400) -> Any:
        """The command's JSON; standard output must hold nothing else."""
        return json.loads(self.run(*arguments, "--json", expect=expect, timeout=timeout).stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cli.main", *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

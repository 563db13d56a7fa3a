"""The ``tokenfuse`` command as tests run it: in this process, on a database and a data folder of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import main

Answer = tuple[int, Any, str]
Command = Callable[..., Answer]
"""``command("show", "bills")`` -> exit code, standard output (parsed JSON; text with ``as_json=False``; '' is None as JSON),
standard error."""


def command_on(db_url: str, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str, as_json: bool = True) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--db", db_url, "--data-dir", str(data_dir), *(["--json"] if as_json else [])])
        out, error = capsys.readouterr()
        shown = (json.loads(out) if out else None) if as_json else out
        return int(ended.value.code or 0), shown, error

    return run

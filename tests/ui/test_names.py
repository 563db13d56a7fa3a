"""``streamlit run ui/app.py`` puts ``ui/`` first on the path: a module there must not hide a package of ours or of Python."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_module_in_ui_bears_the_name_of_a_root_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ours = set(settings["tool"]["importlinter"]["root_packages"]) | {"guard", "migrations", "tests", "bench", "tokenfuse_guard"}
    theirs = set(sys.stdlib_module_names) | {"streamlit", "altair", "httpx"}
    modules = {path.stem for path in (ROOT / "ui").iterdir() if path.suffix == ".py" or path.is_dir()} - {
        "__init__",
        "__pycache__",
    }
    assert modules & (ours | theirs) == set()

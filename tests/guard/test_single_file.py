"""``deploy/tokenfuse_guard.py`` is what the package gives, and works alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_committed_file_is_current() -> None:
    done = subprocess.run([sys.executable, "guard/build_single_file.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "stale: run `python guard/build_single_file.py`"


def test_it_runs_unregistered_as_litellm_runs_a_mounted_file() -> None:
    spec = importlib.util.spec_from_file_location("mounted_guard", ROOT / "deploy" / "tokenfuse_guard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "mounted_guard" not in sys.modules
    assert module.GuardMiddleware(None, settings=module.GuardSettings()).guard.policy is None


def test_the_package_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, pkgutil, importlib, tokenfuse_guard as p\n"
        "for m in pkgutil.iter_modules(p.__path__): importlib.import_module('tokenfuse_guard.' + m.name)\n"
        "foreign = {n.split('.')[0] for n in sys.modules} - set(sys.stdlib_module_names) - {'tokenfuse_guard', '__main__'}\n"
        "print(sorted(n for n in foreign if not n.startswith('_')))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'guard')!r})\n{code}"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.strip() == "[]"

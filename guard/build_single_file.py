"""Build ``deploy/tokenfuse_guard.py``: the whole package in one file, to mount where nothing can be installed.

``python guard/build_single_file.py`` writes it; ``--check`` fails when the file is not what the package would give.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "tokenfuse_guard"
TARGET = Path(__file__).parent.parent / "deploy" / "tokenfuse_guard.py"
HEADER = '''"""Tokenfuse guard in one file, generated from guard/tokenfuse_guard by guard/build_single_file.py: do not edit.

vLLM: put it on PYTHONPATH, ``vllm serve … --middleware tokenfuse_guard.GuardMiddleware``.
LiteLLM: put it beside config.yaml, ``litellm_settings: {callbacks: tokenfuse_guard.handler}``.
Settings: the environment variables TOKENFUSE_GUARD_* (guard/README.md). Apache-2.0.
"""
# ruff: noqa
# fmt: off

from __future__ import annotations

'''
ORDER = (
    "settings", "entries", "policy", "prompt", "meters", "store", "counts", "identity_rules", "guard", "wire", "fetch",
    "tenant_header", "tokenizer", "truncate", "journal", "running_calls", "usage_sender", "operations", "stream_usage",
    "features", "identity", "call_facts", "asgi", "litellm_hook",
)  # fmt: skip


def single_file() -> str:
    """The generated text. Raises ValueError when a module is not in ORDER or two modules define one name differently."""
    found = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    if found != set(ORDER):
        raise ValueError(f"ORDER and the package differ: {sorted(found ^ set(ORDER))}")
    imports: set[str] = set()
    names: dict[str, str] = {}
    parts: list[str] = []
    for module in ORDER:
        parts.append(_body(module, imports, names))
    return HEADER + "\n".join(sorted(imports)) + "\n\n" + "\n\n".join(parts)


def _body(module: str, imports: set[str], names: dict[str, str]) -> str:
    text = (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    dropped: set[int] = set()
    for index, node in enumerate(ast.parse(text).body):
        span = range(node.lineno - 1, node.end_lineno or node.lineno)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("tokenfuse_guard", "__future__"))):
                imports.add("".join(lines[i] for i in span).strip())
            dropped.update(span)
        elif index == 0 and isinstance(node, ast.Expr):
            dropped.update(span)
        for name in _defined(node):
            if names.setdefault(name, module) != module:
                raise ValueError(f"{name} is defined in {names[name]} and in {module}")
    kept = "".join(line for i, line in enumerate(lines) if i not in dropped).strip("\n")
    return f"# ---- {module} ----\n\n{kept}\n"


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def main(arguments: list[str]) -> int:
    """Write the file, or with ``--check`` compare it: 0 when it is current."""
    text = single_file()
    if "--check" in arguments:
        return 0 if TARGET.exists() and TARGET.read_text(encoding="utf-8") == text else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

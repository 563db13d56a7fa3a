"""The engine plugin: numbers of live processes on the page, nothing before a GPU is used, and never an error in the engine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "deploy" / "engine_plugin" / "tokenfuse_torch_memory.py"


@pytest.fixture
def plugin() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tokenfuse_torch_memory", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gpus(*pairs: tuple[int, int], used: bool = True) -> Any:
    """As much of torch as the plugin asks."""
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: used,
            device_count=lambda: len(pairs),
            memory_reserved=lambda n: pairs[n][0],
            memory_allocated=lambda n: pairs[n][1],
        )
    )


def test_only_gpus_this_process_uses_are_read(plugin: ModuleType) -> None:
    assert plugin.read_devices(gpus((100, 80), (0, 0))) == {"0": (100, 80)}
    assert plugin.read_devices(gpus((100, 80), used=False)) == {}
    assert plugin.read_devices(SimpleNamespace()) == {}


def test_the_page_holds_live_processes_and_forgets_dead_ones(plugin: ModuleType, tmp_path: Path) -> None:
    plugin.write(tmp_path, {"0": (100, 80)})
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    gone = tmp_path / f"{dead.stdout.strip()}.json"
    gone.write_text(json.dumps({"parent": 1, "devices": {"1": [7, 7]}}))
    (tmp_path / f"{os.getppid()}.json").write_text("torn")
    assert list(plugin.read_live(tmp_path)) == [("0", str(os.getpid()), 100, 80)]
    assert not gone.exists()


def test_the_two_families_are_on_prometheus_own_page(plugin: ModuleType, tmp_path: Path) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    plugin.write(tmp_path, {"0": (100, 80)})
    registry = CollectorRegistry()
    registry.register(plugin.Page(tmp_path))
    page = generate_latest(registry).decode()
    labels = f'{{device="0",process="{os.getpid()}"}}'
    assert f"tokenfuse_torch_memory_reserved_bytes{labels} 100.0" in page
    assert f"tokenfuse_torch_memory_allocated_bytes{labels} 80.0" in page


@pytest.mark.parametrize("mode", ["one page", "several API servers"])
def test_it_registers_without_torch_twice_and_lets_the_process_end(mode: str, tmp_path: Path) -> None:
    code = "import tokenfuse_torch_memory as p; p.register(); p.register(); import prometheus_client as c; c.generate_latest()"
    several = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)} if mode != "one page" else {}
    environment = {**os.environ, "PYTHONPATH": str(FILE.parent), "TOKENFUSE_TORCH_DIR": str(tmp_path / "torch"), **several}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

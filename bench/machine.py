"""The machine a figure was measured on, and who used its cores meanwhile."""

from __future__ import annotations

import os
import platform
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil


def describe() -> dict[str, Any]:
    """Cores, memory, processor, kernel, Python and the load average now."""
    models = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "processor": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average_at_start": [round(value, 2) for value in os.getloadavg()],
    }


def sentence(machine: dict[str, Any]) -> str:
    load = " ".join(str(value) for value in machine["load_average_at_start"])
    return (
        f"{machine['cores']} cores of {machine['processor']}, {machine['memory_gib']} GiB, Linux {machine['kernel']}, "
        f"Python {machine['python']}; load average at the start {load}"
    )


class Cores:
    """Processor time by part of a running stack, between two looks."""

    def __init__(self, root_pid: int, data_dir: Path) -> None:
        self._root, self._data_dir = root_pid, data_dir
        self._before = self._seconds()
        self._started = time.monotonic()

    def shares(self) -> dict[str, float]:
        """Cores busy on average since construction, by part (1.0 = one core), greatest first."""
        wall_s = max(time.monotonic() - self._started, 1e-9)
        after = self._seconds()
        used: dict[str, float] = defaultdict(float)
        for key, seconds in after.items():
            used[key[1]] += max(0.0, seconds - self._before.get(key, 0.0)) / wall_s
        return {name: round(share, 2) for name, share in sorted(used.items(), key=lambda part: -part[1]) if share >= 0.01}

    def _seconds(self) -> dict[tuple[int, str], float]:
        found: dict[tuple[int, str], float] = {}
        for process in self._processes():
            try:
                times = process.cpu_times()
                found[process.pid, _part(process)] = times.user + times.system
            except psutil.Error:
                continue
        return found

    def _processes(self) -> Iterable[psutil.Process]:
        yield psutil.Process()
        for pid in (self._root, _postmaster(self._data_dir)):
            if pid is not None and psutil.pid_exists(pid):
                process = psutil.Process(pid)
                yield process
                yield from process.children(recursive=True)


def _postmaster(data_dir: Path) -> int | None:
    file = data_dir / "pg/postmaster.pid"
    return int(file.read_text().split()[0]) if file.exists() else None


def _part(process: psutil.Process) -> str:
    if process.pid == os.getpid():
        return "bench"
    command = " ".join(process.cmdline())
    if "postgres" in process.name() or "process postgres" in command:
        return "postgres"
    if process.name() == "java":
        return "flink"
    known = [name for name in ("api", "control", "stream", "scrape", "ui") if f"process {name}" in command]
    return known[0] if known else "flink's Python" if "flink" in command else process.name()


def told(shares: dict[str, float]) -> str:
    return "cores busy: " + ", ".join(f"{name} {share:.2f}" for name, share in shares.items())

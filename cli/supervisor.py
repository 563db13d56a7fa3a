"""One supervisor over all processes: starts them in order, restarts what dies, stops everything cleanly.

Each child is its own process group, recorded in ``run/children.json`` so that a later start can end
what a killed supervisor left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from core.errors import Conflict, Unavailable

BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
STOP_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to start one process. Children are stopped in the reverse of the order they are started in."""

    name: str
    arguments: Sequence[str]


@dataclass(slots=True)
class _Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes]
    started: float
    failures: int = 0
    next_start: float | None = None


@dataclass(slots=True)
class Supervisor:
    """Runs ``specs`` until ``stop`` is set by a signal. ``environment`` is added to each child's."""

    run_dir: Path
    specs: Sequence[ChildSpec]
    environment: Mapping[str, str]
    _children: dict[str, _Child] = field(default_factory=dict)
    _stopping: bool = False

    def claim(self) -> None:
        """Take the data folder: end leftovers of a killed run. Raises Conflict when a supervisor runs here already."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.run_dir.chmod(0o700)
        running = read_pid(self.run_dir / "supervisor.json")
        if running not in (None, os.getpid()):
            raise Conflict(f"Tokenfuse already runs in this data folder (process {running})", hint="run `tokenfuse down` first")
        end_leftovers(self.run_dir)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # `down` in mid-start must unwind like Ctrl-C
        _write_pid(self.run_dir / "supervisor.json", os.getpid())

    def start(self) -> None:
        """Claim the folder, then start every child. Raises Conflict."""
        self.claim()
        for spec in self.specs:
            self._start(spec)

    def watch(self) -> None:
        """Block until a signal asks to stop; restart children that die, ever more slowly when they keep dying."""
        self._heed_signals()
        while not self._stopping:
            for child in list(self._children.values()):
                self._look_after(child)
            time.sleep(0.2)

    def stop(self) -> None:
        """Ask each child to end, newest first; kill the group of one that does not within 20 s.

        A second Ctrl-C changes nothing.
        """
        self._heed_signals()
        for child in reversed(list(self._children.values())):
            end_group(child.process.pid, STOP_WAIT_S, child.process)
        for name in ("children.json", "supervisor.json"):
            (self.run_dir / name).unlink(missing_ok=True)

    def dead(self) -> list[str]:
        """Names of children that are not running now."""
        return [name for name, child in self._children.items() if child.process.poll() is not None]

    def _heed_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask_to_stop)

    def _ask_to_stop(self, _number: int, _frame: object) -> None:
        self._stopping = True

    def _start(self, spec: ChildSpec, failures: int = 0) -> None:
        with (self.run_dir / f"{spec.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *spec.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
                umask=0o077,
            )
        self._children[spec.name] = _Child(spec, process, time.monotonic(), failures)
        _write_children(self.run_dir, {name: child.process.pid for name, child in self._children.items()})

    def _look_after(self, child: _Child) -> None:
        now = time.monotonic()
        if child.process.poll() is None:
            if child.failures and now - child.started > 60:
                child.failures = 0
            return
        if child.next_start is None:
            end_group(child.process.pid, 5.0)
            child.next_start = now + BACKOFF_S[min(child.failures, len(BACKOFF_S) - 1)]
        elif now >= child.next_start:
            self._start(child.spec, child.failures + 1)


def read_pid(path: Path) -> int | None:
    """The process recorded in ``path`` if it still is that process (a reused pid does not count)."""
    try:
        entry = json.loads(path.read_text())
        process = psutil.Process(int(entry["pid"]))
        same = abs(process.create_time() - float(entry["created"])) < 1 and process.status() != psutil.STATUS_ZOMBIE
        return process.pid if same else None
    except (OSError, ValueError, KeyError, psutil.Error):
        return None


def end_leftovers(run_dir: Path) -> list[str]:
    """End the process groups a killed supervisor left behind; returns their names."""
    ended = []
    with contextlib.suppress(OSError, ValueError):
        for name, entry in json.loads((run_dir / "children.json").read_text()).items():
            if _group_is(entry):
                end_group(int(entry["pid"]), STOP_WAIT_S)
                ended.append(name)
    return ended


def stop_running(run_dir: Path, wait_s: float = 150.0) -> bool:
    """Ask the supervisor of this data folder to stop and wait; False when none ran. Raises Unavailable when it does not end."""
    pid = read_pid(run_dir / "supervisor.json")
    if pid is None:
        return bool(end_leftovers(run_dir))
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + wait_s
    while not _ended(pid):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"process {pid} did not stop within {wait_s:.0f} s", hint=f"kill -9 {pid}, then `tokenfuse down` again"
            )
        time.sleep(0.1)
    return True


def _ended(pid: int) -> bool:
    """A process nobody has waited for yet (a container without an init) has ended all the same."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def end_group(pgid: int, wait_s: float, process: subprocess.Popen[bytes] | None = None) -> None:
    """SIGTERM to a process group, SIGKILL to what is left of it after ``wait_s``."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGTERM)
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and _members(pgid):
        if process is not None:
            process.poll()
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)
    if process is not None:
        process.wait()


def _members(pgid: int) -> list[int]:
    found = []
    for process in psutil.process_iter(["pid", "status"]):
        with contextlib.suppress(ProcessLookupError, psutil.Error):
            if os.getpgid(process.pid) == pgid and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _group_is(entry: Mapping[str, float]) -> bool:
    pid, created = int(entry["pid"]), float(entry["created"])
    for member in _members(pid):
        with contextlib.suppress(psutil.Error):
            if member != pid or abs(psutil.Process(pid).create_time() - created) < 1:
                return True
    return False


def _write_pid(path: Path, pid: int) -> None:
    path.write_text(json.dumps({"pid": pid, "created": psutil.Process(pid).create_time()}))


def _write_children(run_dir: Path, pids: Mapping[str, int]) -> None:
    entries = {}
    for name, pid in pids.items():
        with contextlib.suppress(psutil.Error):
            entries[name] = {"pid": pid, "created": psutil.Process(pid).create_time()}
    temporary = run_dir / "children.json.new"
    temporary.write_text(json.dumps(entries))
    temporary.replace(run_dir / "children.json")

"""One stream run at a time: the lock, the job's process group, and its certain end."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from core.errors import Conflict
from eventlog.layout import make_folder

GROUP_END_S = 15.0


@contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Hold the data folder's run lock; the job group a killed run left behind is ended first. Raises Conflict when one runs."""
    make_folder(folder)
    with (folder / "stream.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict("the stream already runs on this data folder", hint="stop it with `tokenfuse down`") from error
        end_left_over(folder)
        yield


def end_left_over(folder: Path) -> None:
    """Kill the job group named in ``stream-job.json`` if it still lives, and wait until it is gone."""
    place = folder / "stream-job.json"
    try:
        noted = json.loads(place.read_text())
        group, born = int(noted["group"]), float(noted["born"])
    except (OSError, ValueError, KeyError):
        return
    members = _members(group)
    if any(process.create_time() >= born - 1 for process in _alive(members)):
        end_group(group)
    place.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A running job and its group (Python, JVM, Python workers). ``note`` is where its group is written down."""

    popen: subprocess.Popen[bytes]
    note: Path

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def end(self) -> None:
        """kill -9 of the group: the same way out as a crash, so there is only one way in."""
        end_group(self.popen.pid)
        self.popen.wait()
        self.note.unlink(missing_ok=True)


def start_job(command: Sequence[str], run_folder: Path, output: Path) -> JobProcess:
    """Start the job in a session of its own and write its group down before anything else can fail."""
    with output.open("ab") as sink:
        popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True)
    note = run_folder / "stream-job.json"
    note.write_text(json.dumps({"group": popen.pid, "born": psutil.Process(popen.pid).create_time()}))
    return JobProcess(popen, note)


def end_group(group: int) -> None:
    """SIGKILL a process group and wait until none of it is left; a JVM may need seconds to give its files back."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + GROUP_END_S
    while any(p.status() != psutil.STATUS_ZOMBIE for p in _alive(_members(group))):
        if time.monotonic() > deadline:
            raise Conflict(f"process group {group} does not end", hint="look at it with `ps -g` and end it by hand")
        time.sleep(0.05)


def _members(group: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group:
                found.append(process)
    return found


def _alive(processes: list[psutil.Process]) -> Iterator[psutil.Process]:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.status()
            yield process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

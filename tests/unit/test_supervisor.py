"""The supervisor restarts what dies, stops whole groups, and ends what a killed one left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cli.logs import mask
from cli.supervisor import ChildSpec, Supervisor, end_leftovers, read_pid, stop_running
from core.errors import Conflict

SLEEPER = ("-c", "import time; time.sleep(600)")


def wait_for(done: Callable[[], bool], what: str) -> None:
    for _ in range(300):
        if done():
            return
        time.sleep(0.1)
    raise AssertionError(what)


def children(run_dir: Path) -> dict[str, int]:
    try:
        return {name: entry["pid"] for name, entry in json.loads((run_dir / "children.json").read_text()).items()}
    except (OSError, ValueError):
        return {}


def supervise(run_dir: Path) -> subprocess.Popen[bytes]:
    code = f"""
        from pathlib import Path
        from cli.supervisor import ChildSpec, Supervisor
        s = Supervisor(Path({str(run_dir)!r}), [ChildSpec("a", {SLEEPER!r}), ChildSpec("b", {SLEEPER!r})], {{}})
        s.start()
        s.watch()
        s.stop()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], start_new_session=True)
    wait_for(lambda: len(children(run_dir)) == 2, "children did not start")
    return process


def test_a_dead_child_is_started_again_and_all_stop_together(tmp_path: Path) -> None:
    process = supervise(tmp_path)
    first = children(tmp_path)
    os.kill(first["a"], signal.SIGKILL)
    wait_for(lambda: children(tmp_path).get("a", first["a"]) != first["a"], "a was not started again")
    now = children(tmp_path)
    assert now["b"] == first["b"]
    assert stop_running(tmp_path) is True
    process.wait(30)
    assert not any(psutil.pid_exists(pid) for pid in now.values())
    assert not (tmp_path / "children.json").exists()


def test_a_second_supervisor_is_refused(tmp_path: Path) -> None:
    process = supervise(tmp_path)
    with pytest.raises(Conflict, match="tokenfuse down"):
        Supervisor(tmp_path, [ChildSpec("a", SLEEPER)], {}).start()
    stop_running(tmp_path)
    process.wait(30)


def test_what_a_killed_supervisor_left_is_ended(tmp_path: Path) -> None:
    process = supervise(tmp_path)
    left = children(tmp_path)
    process.kill()
    process.wait(30)
    assert read_pid(tmp_path / "supervisor.json") is None
    assert sorted(end_leftovers(tmp_path)) == ["a", "b"]
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in left.values()), "leftovers live on")


def test_down_does_not_wait_for_somebody_to_reap_it(tmp_path: Path) -> None:
    process = supervise(tmp_path)
    assert stop_running(tmp_path, 30) is True
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    process.wait(30)


def test_down_in_mid_start_unwinds_it(tmp_path: Path) -> None:
    code = f"""
        import time
        from pathlib import Path
        from cli.supervisor import Supervisor
        s = Supervisor(Path({str(tmp_path)!r}), [], {{}})
        try:
            s.claim()
            time.sleep(600)
        finally:
            s.stop()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], start_new_session=True, stderr=subprocess.DEVNULL)
    wait_for(lambda: read_pid(tmp_path / "supervisor.json") == process.pid, "the folder was not claimed")
    assert stop_running(tmp_path, 30) is True
    process.wait(30)
    assert not (tmp_path / "supervisor.json").exists()


def test_nothing_to_stop(tmp_path: Path) -> None:
    assert stop_running(tmp_path) is False


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("token tf_abc123_5cb67801d2f5bff2", "5cb67801d2f5bff2"),
        ("postgresql://u:hunter2@host/db", "hunter2"),
        ("Authorization: Bearer abc.def", "abc.def"),
        ("key sk-1234567890", "1234567890"),
    ],
)
def test_logs_mask_secrets(text: str, hidden: str) -> None:
    assert hidden not in mask(text)

"""``up`` and the embedded database: adopted where it runs, started again where it died, stopped by ``down``."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import psutil
import pytest
from tokenfuse_command import Tokenfuse
from waiting import wait_for

from bench.stack import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.flink]


@pytest.fixture
def api_port(tokenfuse: Tokenfuse) -> Iterator[int]:
    ports = {f"TOKENFUSE_{name}_PORT": free_port() for name in ("API", "UI", "FLINK", "DEMO")}
    tokenfuse.environment.update({name: str(port) for name, port in ports.items()})
    yield ports["TOKENFUSE_API_PORT"]
    for name in ports:
        del tokenfuse.environment[name]


def server(tokenfuse: Tokenfuse) -> psutil.Process | None:
    """The database server its pid file names, if it lives."""
    try:
        return psutil.Process(int((tokenfuse.folder / "data/pg/postmaster.pid").read_text().split()[0]))
    except (FileNotFoundError, IndexError, ValueError, psutil.NoSuchProcess):
        return None


def kill_server(tokenfuse: Tokenfuse) -> psutil.Process:
    """kill -9."""
    found = server(tokenfuse)
    assert found is not None
    family = [found, *found.children(recursive=True)]
    found.kill()
    psutil.wait_procs(family, timeout=60)
    return found


def is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).is_success
    except httpx.HTTPError:
        return False


def test_a_running_database_is_adopted_and_a_dead_one_is_started_again(tokenfuse: Tokenfuse, api_port: int) -> None:
    (made,) = tokenfuse.json("token", "create", "--name", "kept", "--scope", "read")
    killed = kill_server(tokenfuse)
    assert (tokenfuse.folder / "data/pg/postmaster.pid").exists(), "left behind, as after a power cut"
    assert [token["id"] for token in tokenfuse.json("token", "list")] == [made["id"]], "a command starts it, nothing is lost"
    running = server(tokenfuse)
    assert running is not None
    assert running != killed

    up = tokenfuse.start("up")
    wait_for("ready API", lambda: is_ready(api_port))
    assert server(tokenfuse) == running, "adopted"
    kill_server(tokenfuse)
    wait_for("new server", lambda: server(tokenfuse) not in (None, running))
    wait_for("API on the new server", lambda: is_ready(api_port))
    assert made["id"] in {token["id"] for token in tokenfuse.json("token", "list")}

    new = server(tokenfuse)
    assert new is not None
    tokenfuse.run("down", timeout=180)
    up.communicate(timeout=60)
    assert up.returncode == 0
    assert not new.is_running() or new.status() == psutil.STATUS_ZOMBIE, "ended; who reaps it is the host's affair"

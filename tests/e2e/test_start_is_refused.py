"""What stands in the way of a start is named at once: a wrong database URL, a folder that is none, a port somebody holds."""

from __future__ import annotations

import socket
import stat

import pytest
from tokenfuse_command import Tokenfuse

pytestmark = pytest.mark.db


@pytest.mark.parametrize(
    ("url", "code", "says"),
    [
        ("here", 2, ("db_url", "not a URL", "postgresql://")),
        ("mysql://u:hunter2@h/d", 2, ("db_url", "not PostgreSQL", "mysql")),
        ("postgresql://u:hunter2@127.0.0.1:1/d", 1, ("cannot be reached", "127.0.0.1", "tokenfuse doctor")),
    ],
)
def test_a_database_url_that_leads_nowhere(tokenfuse: Tokenfuse, url: str, code: int, says: tuple[str, ...]) -> None:
    done = tokenfuse.run("show", "usage", "--db", url, expect=code)
    assert done.stdout == ""
    assert all(part in done.stderr for part in says), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "hunter2" not in done.stderr


def test_doctor_says_that_the_database_does_not_answer_and_goes_on(tokenfuse: Tokenfuse) -> None:
    findings = tokenfuse.json("doctor", "--db", "postgresql://u@127.0.0.1:1/d", expect=1)
    faults = {finding["check"] for finding in findings if finding["verdict"] == "error"}
    assert "database" in faults
    assert {"java", "ports", "targets"} <= {finding["check"] for finding in findings}


@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_port_somebody_holds_is_named_before_anything_starts(
    tokenfuse: Tokenfuse, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    folder = tokenfuse.folder / f"taken-{command}"
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        monkeypatch.setitem(tokenfuse.environment, "TOKENFUSE_API_PORT", str(port))
        done = tokenfuse.run(command, "--data-dir", str(folder), expect=1)
    assert f"api_port {port}" in done.stderr
    assert "TOKENFUSE_API_PORT" in done.stderr
    assert not (folder / "pg").exists()
    assert not (folder / "run" / "supervisor.json").exists()
    assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o700

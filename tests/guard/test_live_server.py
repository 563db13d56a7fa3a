"""A guarded app under a real uvicorn, set up by environment alone: a published policy refuses the next request."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from guard_servers import KEY, KEY_ID, Centre, reject, signed
from test_fetch import wait_for

APP = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from tokenfuse_guard.asgi import GuardMiddleware


async def chat(request):
    return PlainTextResponse("ok")


app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
app.add_middleware(GuardMiddleware)
"""


@pytest.fixture
def url(centre: Centre, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served.py").write_text(APP)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    env = {
        "PATH": os.environ["PATH"],
        "TOKENFUSE_GUARD_URL": centre.url,
        "TOKENFUSE_GUARD_TOKEN": centre.token,
        "TOKENFUSE_GUARD_NAME": "edge",
        "TOKENFUSE_GUARD_KEYS": f"{KEY_ID}:{KEY.hex()}",
        "TOKENFUSE_GUARD_DEPLOYMENT": "eu/prod/tiny",
        "TOKENFUSE_GUARD_REPORT_EVERY_S": "1",
    }
    command = [sys.executable, "-m", "uvicorn", "served:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, start_new_session=True)
    address = f"http://127.0.0.1:{port}/v1/chat/completions"
    try:
        wait_for(lambda: post(address) is not None, 60)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def post(url: str) -> int | None:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}", method="POST"), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_a_published_policy_refuses_and_its_end_lets_pass(url: str, centre: Centre) -> None:
    keys = {KEY_ID: KEY.hex().encode()}
    centre.publish(signed([reject("deployment:eu/prod/tiny", breaker=7, epoch=1)], version=1, keys=keys))
    wait_for(lambda: post(url) == 503)
    centre.publish(signed([], version=2, keys=keys))
    wait_for(lambda: post(url) == 200)
    wait_for(lambda: sum(report["refused"] for report in centre.reports))
    rows = [row for report in centre.reports for row in report["entries"]]
    assert {(row["breaker"], row["epoch"], row["what"]) for row in rows} == {(7, 1, "refused")}

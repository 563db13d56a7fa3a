"""moto as a server on a free port, once a run; a test gets it empty. Credentials are invented and no other host is asked."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_servers import Door

STARTED_S = 90
_START = (
    "from moto.server import ThreadedMotoServer; import sys, time\n"
    "server = ThreadedMotoServer('127.0.0.1', 0, verbose=False); server.start()\n"
    "print(server.get_host_and_port()[1], flush=True); sys.stdin.read()"
)


@pytest.fixture(scope="session")
def _moto() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    url = f"http://127.0.0.1:{port}"
    until = time.monotonic() + STARTED_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=30).read()
            break
        except OSError:
            assert time.monotonic() < until, "moto did not start"
            time.sleep(0.1)
    yield url
    process.terminate()
    process.wait(30)


@pytest.fixture
def moto_url(_moto: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The server's URL, all state gone; the environment has invented credentials and no other AWS settings."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": str(tmp_path / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-credentials"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    urllib.request.urlopen(urllib.request.Request(f"{_moto}/moto-api/reset", method="POST"), timeout=60).read()
    return _moto


@pytest.fixture
def door(moto_url: str) -> Iterator[Door]:
    made = Door(moto_url)
    yield made
    made.close()

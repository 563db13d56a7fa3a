"""A real LiteLLM proxy in its own environment, with the guard mounted as one file, between mock upstreams and a mock centre."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "guard"))
from guard_servers import KEY, KEY_ID, Centre, Upstream, signed  # noqa: E402

PROXY = ROOT / ".local" / "litellm-venv" / "bin" / "litellm"
TOKEN = "tf_test_secret"
SECRET = KEY.hex()
AUTH = '''
from litellm.proxy._types import UserAPIKeyAuth


async def auth(request, api_key):
    """Keys read sk-ORG-TEAM-USER: who the caller is, as a key table would say."""
    org, team, user = api_key.split("-")[1:4]
    return UserAPIKeyAuth(
        api_key=api_key, key_alias=api_key, org_id=org, organization_alias=org, team_id=team, team_alias=team, user_id=user
    )
'''
CONFIG = """
model_list:
  - model_name: tiny
    litellm_params: {{model: hosted_vllm/deepseek-tiny, api_base: "{upstream}/v1", api_key: none}}
  - model_name: failing
    litellm_params: {{model: hosted_vllm/failing, api_base: "{upstream}/v1", api_key: none}}
  - model_name: vendor
    litellm_params: {{model: openai/gpt-4o-mini, api_base: "{vendor}/v1", api_key: sk-vendor}}
litellm_settings:
  callbacks: [{callbacks}]
  fallbacks: [{{"tiny": ["vendor"]}}]
  default_fallbacks: ["vendor"]
router_settings: {{num_retries: 0, allowed_fails: 0, cooldown_time: 60}}
general_settings: {{custom_auth: auth.auth}}
"""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def error(self) -> dict[str, Any]:
        return dict(json.loads(self.text)["error"])


@dataclass
class Proxy:
    url: str
    centre: Centre
    upstream: Upstream
    vendor: Upstream
    folder: Path
    versions: list[int] = field(default_factory=lambda: [0])

    def chat(self, key: str = "sk-acme-search-ann", model: str = "tiny", text: str = "count to three", **more: Any) -> Answer:
        body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as got:
                return Answer(got.status, {k.lower(): v for k, v in got.headers.items()}, got.read().decode())
        except urllib.error.HTTPError as error:
            return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read().decode())

    def obey(self, *entries: dict[str, Any]) -> None:
        """Publish a policy and wait until the guard holds it."""
        version = self.versions[-1] + 1
        self.versions.append(version)
        self.centre.publish(signed(list(entries), version=version, keys={KEY_ID: SECRET.encode()}))
        kept = self.folder / "state" / "policy.json"
        wait_for(lambda: kept.exists() and json.loads(json.loads(kept.read_text())["body"])["version"] == version)

    def usage(self, number: int) -> list[dict[str, Any]]:
        """At least ``number`` payloads, once they have arrived at the centre."""
        wait_for(lambda: len(self.centre.usage) >= number)
        return self.centre.usage


def wait_for(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_proxy(folder: Path, callbacks: str, extra: dict[str, str]) -> Iterator[Proxy]:
    """Start the proxy with these callbacks; its environment holds nothing of ours but ``extra``."""
    if not PROXY.exists():
        pytest.skip("the LiteLLM environment is absent: run `make litellm-env`")
    centre, upstream, vendor = Centre(TOKEN), Upstream(), Upstream()
    shutil.copy(ROOT / "deploy" / "tokenfuse_guard.py", folder)
    (folder / "auth.py").write_text(AUTH)
    (folder / "config.yaml").write_text(CONFIG.format(upstream=upstream.url, vendor=vendor.url, callbacks=callbacks))
    try:
        with litellm(folder, {k: v.replace("CENTRE", centre.url) for k, v in extra.items()}) as (url, _):
            yield Proxy(url, centre, upstream, vendor, folder)
    finally:
        for server in (centre, upstream, vendor):
            server.close()


@contextmanager
def litellm(folder: Path, extra: dict[str, str], workers: int = 1) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The proxy with ``folder``'s config.yaml, once it answers: its URL and process (the leader of its group)."""
    port = free_port()
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    env |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", **extra}
    command = [str(PROXY), "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", str(port)]
    if workers > 1:  # gunicorn imports once and forks: uvicorn would import LiteLLM in each
        command += ["--num_workers", str(workers), "--run_gunicorn"]
    with (folder / "proxy.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        _ready(f"http://127.0.0.1:{port}/health/liveliness", process, folder)
        yield f"http://127.0.0.1:{port}", process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def _ready(url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    def up() -> bool:
        if process.poll() is not None:
            raise AssertionError((folder / "proxy.log").read_text()[-3000:])
        try:
            with urllib.request.urlopen(url, timeout=2):
                return True
        except OSError:
            return False

    wait_for(up, 180)

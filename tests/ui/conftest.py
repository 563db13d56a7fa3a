"""The pages in this process with a client of the test's choice, and in real Chromium against a small local API."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest
import streamlit as st
from api_server import Api, serving
from pages_world import NOW, ROOT, STREAMLIT_FLAGS, FakeClient, free_port, wait_until_healthy
from streamlit.testing.v1 import AppTest

from ui.components import session


@pytest.fixture(autouse=True)
def _no_old_answers() -> Iterator[None]:
    """Streamlit's caches outlive a page and would feed one test's answers to the next."""
    st.cache_data.clear()
    yield
    st.cache_data.clear()
    st.cache_resource.clear()


@pytest.fixture
def open_app(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """``open_app(client, page="unit_cost", query={...})`` -> the signed-in app, run once."""

    def run(
        client: FakeClient, page: str = "overview", query: Mapping[str, str] | None = None, token: str | None = "tf_1_x"
    ) -> AppTest:
        monkeypatch.setattr(session, "get_client", lambda _token: client)
        monkeypatch.setattr(session, "now", lambda: NOW)
        app = AppTest.from_file(str(ROOT / "ui" / "app.py"), default_timeout=30)
        if token:
            app.session_state["token"] = token
        for name, value in (query or {}).items():
            app.query_params[name] = value
        app.run()
        return app if page == "overview" else app.switch_page(f"views/{page}.py").run()

    return run


@pytest.fixture(scope="session")
def local_api() -> Iterator[Api]:
    with serving() as api:
        yield api


@pytest.fixture(scope="session")
def ui_url(local_api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pages as ``tokenfuse up`` serves them."""
    port = free_port()
    log = tmp_path_factory.mktemp("ui") / "streamlit.log"
    address = ["--server.port", str(port), "--server.address", "127.0.0.1"]
    words = ["run", str(ROOT / "ui" / "app.py"), *STREAMLIT_FLAGS, *address, "--", "--api-url", local_api.url]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", *words], stdout=out, stderr=out, start_new_session=True, cwd=log.parent
        )
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/_stcore/health", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)

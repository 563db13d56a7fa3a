"""One proxy with the guard's hook and one with LiteLLM's own callback alone, for all tests of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from litellm_world import KEY_ID, SECRET, TOKEN, Proxy, run_proxy
from sqlalchemy import Engine, text

from models.access_repo import create_token
from models.database import open_engine


@pytest.fixture(scope="session")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """LiteLLM with the guard's hook."""
    folder = tmp_path_factory.mktemp("guarded")
    extra = {
        "TOKENFUSE_GUARD_URL": "CENTRE",
        "TOKENFUSE_GUARD_TOKEN": TOKEN,
        "TOKENFUSE_GUARD_NAME": "edge",
        "TOKENFUSE_GUARD_KEYS": f"{KEY_ID}:{SECRET}",
        "TOKENFUSE_GUARD_STATE_DIR": str(folder / "state"),
        "TOKENFUSE_GUARD_REPORT_EVERY_S": "1",
        "TOKENFUSE_GUARD_ALLOW_TRUNCATE": "1",
        "TOKENFUSE_GUARD_TENANT_KEYS": f"g1:{SECRET}",
    }
    yield from run_proxy(folder, "tokenfuse_guard.handler", extra)


@pytest.fixture(scope="session")
def plain_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """An ordinary LiteLLM that reports by its built-in callback alone."""
    extra = {
        "GENERIC_LOGGER_ENDPOINT": "CENTRE/v1/usage/litellm",
        "GENERIC_LOGGER_HEADERS": f"Authorization=Bearer {TOKEN}",
        "DEFAULT_FLUSH_INTERVAL_SECONDS": "1",
    }
    yield from run_proxy(tmp_path_factory.mktemp("plain"), "generic_api", extra)


@pytest.fixture(scope="module")
def engine(_template_url: str) -> Iterator[Engine]:
    name = f"t{uuid.uuid4().hex[:12]}"
    root = open_engine(_template_url)
    with root.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE template_tf"))
    made = open_engine(_template_url.replace("/postgres?", f"/{name}?"))
    yield made
    made.dispose()
    root.dispose()


@pytest.fixture(scope="module")
def token(engine: Engine) -> str:
    with engine.begin() as connection:
        return create_token(connection, "edge", ("policy", "ingest"), "", datetime.now(UTC))[1]

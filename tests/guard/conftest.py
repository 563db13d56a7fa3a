"""A mock centre per test, and a guard with a clock the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from guard_clock import Clock
from guard_servers import KEY, KEY_ID, Centre

from tokenfuse_guard.guard import Guard
from tokenfuse_guard.settings import GuardSettings


@pytest.fixture
def clock() -> Clock:
    return Clock(1_796_040_000.0)


@pytest.fixture
def settings(tmp_path: Path) -> GuardSettings:
    return GuardSettings(
        name="edge", token="tf_test_secret", keys=((KEY_ID, KEY),), state_dir=str(tmp_path / "state"), deployment="eu/prod/tiny"
    )


@pytest.fixture
def guard(settings: GuardSettings, clock: Clock) -> Guard:
    return Guard(settings, clock)


@pytest.fixture
def centre() -> Iterator[Centre]:
    server = Centre()
    yield server
    server.close()

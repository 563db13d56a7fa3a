"""The demo's start: once prepared it keeps its place in time, whatever stopped the first load."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from cli.demo import load
from cli.settings import Settings
from cli.settings import load as load_settings

pytestmark = pytest.mark.db


@pytest.fixture
def settings(tmp_path: Path, db_url: str, db: Engine, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "none.toml"))
    return load_settings(data_dir=tmp_path, db_url=db_url)


def test_a_load_cut_short_is_begun_again_at_the_same_place(settings: Settings) -> None:
    first = load.prepare(settings, 2)
    assert first is not None
    assert load.prepare(settings, 30) == first


def test_a_loaded_demo_is_not_loaded_again(settings: Settings) -> None:
    demo = load.prepare(settings, 1)
    assert demo is not None
    assert load.load_history(settings, demo).requests > 0
    assert load.prepare(settings, 1) is None


def test_loading_twice_offers_the_same_requests(settings: Settings) -> None:
    demo = load.prepare(settings, 1)
    assert demo is not None
    once, twice = load.load_recording(settings, demo), load.load_recording(settings, demo)
    assert once == twice

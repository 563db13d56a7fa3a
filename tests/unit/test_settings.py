"""Every setting is documented, with its true default; a wrong one is named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from cli.settings import Settings, TargetSetting, load
from cli.settings_sources import DiscoverySetting, PrometheusSetting
from core.errors import BadInput

EXAMPLE = (Path(__file__).parents[2] / "tokenfuse.example.toml").read_text()


@pytest.fixture(autouse=True)
def _no_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENFUSE_SETTINGS", str(tmp_path / "tokenfuse.toml"))


@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_example_names_every_setting(name: str) -> None:
    assert re.search(rf"^#? ?{name} = ", EXAMPLE, re.MULTILINE), f"{name} is not in tokenfuse.example.toml"


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (block, name)
        for block, model in (("targets", TargetSetting), ("prometheus", PrometheusSetting), ("discovery", DiscoverySetting))
        for name in model.model_fields
    ],
)
def test_the_example_names_every_field_of_a_block(block: str, name: str) -> None:
    shown = EXAMPLE.split(f"# [[{block}]]")[1].split("\n# ---")[0]
    assert re.search(rf"^# {name} = ", shown, re.MULTILINE)


def test_the_example_shows_the_defaults() -> None:
    shown = tomllib.loads(EXAMPLE)
    plain = load()
    for name, value in shown.items():
        default = getattr(plain, name)
        assert str(value) == str(default) or list(default) == value == [] or value == default, name


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenfuse.toml").write_text('api_port = 9001\ncurrency = "EUR"\n')
    monkeypatch.setenv("TOKENFUSE_API_PORT", "9002")
    found = load()
    assert (found.api_port, found.currency) == (9002, "EUR")


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("api_port = 70000", "api_port"),
        ('zone = "Mars/Base"', "zone"),
        ('currency = "dollar"', "currency"),
        ("colour = 1", "colour"),
        ('guard_on_expiry = "maybe"', "guard_on_expiry"),
        ("[[targets]]\nurl = 1", "targets.0.url"),
        ('[[prometheus]]\nname = "a b"\nurl = "http://p"', "prometheus.0.name"),
        ('[[prometheus]]\nname = "a"\nurl = "http://p"\nsince = "long"', "prometheus.0.since"),
        ('[[discovery]]\nname = "a"\nkind = "consul"', "discovery.0.kind"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "tokenfuse.toml").write_text(text)
    with pytest.raises(BadInput) as caught:
        load()
    assert caught.value.field == field
    assert "tokenfuse.toml" in str(caught.value)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenfuse.toml").write_text("zone = = 1")
    with pytest.raises(BadInput, match=r"tokenfuse\.toml"):
        load()


def test_secrets_do_not_show() -> None:
    assert "hunter2" not in repr(load(db_url="postgresql://u:hunter2@h/d"))

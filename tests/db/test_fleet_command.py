"""`tokenfuse fleet` as a person uses it: name a switch, try it, let it act, see it, undo it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli_command import Command
from sqlalchemy import Engine

from control.fleet.actions import settle
from control.fleet.effector import fleet_effectors
from control.fleet.registry import FleetSettings, registry
from core.ports import Effect
from models.breaker_repo import ensure_breaker, list_breakers, save_breaker

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
from actuator_worlds import HASH, LiteLLMServer

pytestmark = pytest.mark.db
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def litellm() -> Iterator[LiteLLMServer]:
    made = LiteLLMServer()
    yield made
    made.close()


@pytest.fixture
def command(command: Command, monkeypatch: pytest.MonkeyPatch, litellm: LiteLLMServer) -> Command:
    monkeypatch.setenv("TOKENFUSE_LITELLM_URL", litellm.url)
    monkeypatch.setenv("TOKENFUSE_LITELLM_KEY", "sk-master")
    return command


def test_from_naming_a_switch_to_undoing_what_it_did(db: Engine, command: Command, litellm: LiteLLMServer) -> None:
    assert "No target" in command("fleet", "targets", "list", as_json=False)[1]
    words = ("fleet", "targets", "add", "--scope", "tenant:acme/red", "--actuator", "litellm")
    code, (target,), _ = command(*words, "--address", f"key/{HASH}", "--limit", "rpm_limit=10")
    assert (code, target["options"]) == (0, {"rpm_limit": 10})
    assert command("fleet", "targets", "list")[1][0]["acts"] == "dry run"
    code, rows, _ = command("fleet", "plan")
    assert (code, [(r["move"], r["before"], r["wanted"]) for r in rows]) == (
        0, [("block", {"blocked": False}, {"blocked": True}), ("limit", {"rpm_limit": 600}, {"rpm_limit": 10})],
    )  # fmt: skip
    assert "/key/unblock" in rows[0]["revert"][0]
    assert "sk-master" not in str(rows)
    assert command("fleet", "enable", "litellm", "--reason", "tried it")[1] == [{"actuator": "litellm", "acts": "yes"}]
    reachable = registry(FleetSettings(litellm.url, "sk-master"))
    with db.begin() as connection:
        ensure_breaker(connection, "tenant:acme/red", NOW, NOW)
        (breaker,) = list_breakers(connection)
        save_breaker(connection, replace(breaker, phase="open", enforced=True, epoch=4))
    assert settle(db, reachable, NOW).applied == 1
    assert litellm.key["blocked"] is True
    code, shown, said = command("fleet", "actions", as_json=False)
    assert (code, "applied" in shown, "/key/unblock" in said) == (0, True, True)
    code, (after,), _ = command("fleet", "revert", "1", "--reason", "needed")
    assert (code, after["state"], litellm.key["blocked"]) == (0, "reverted", False)
    assert command("fleet", "revert", "1", "--reason", "again")[0] == 1
    assert settle(db, reachable, NOW).applied == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scope", "tenant:acme", "--actuator", "litellm", "--address", "key/sk-secret"), "64 hex digits"),
        (("--scope", "acme", "--actuator", "litellm", "--address", "team/red"), "scope"),
        (("--scope", "tenant:acme", "--actuator", "litellm", "--address", "team/red", "--limit", "rpm"), "NAME=VALUE"),
        (("--scope", "tenant:acme", "--actuator", "litellm", "--address", "team/red", "--limit", "rpm=1"), "options.rpm"),
    ],
)
def test_what_cannot_be_a_target_is_named(command: Command, words: tuple[str, ...], said: str) -> None:
    code, _, error = command("fleet", "targets", "add", *words)
    assert (code, said in error, "sk-secret" in error) == (2, True, False)


def test_a_breakers_command_to_the_fleet_is_done_even_where_nothing_can_be_frozen(db: Engine, litellm: LiteLLMServer) -> None:
    channels = fleet_effectors(db, FleetSettings(litellm.url, "sk-master"), lambda: NOW)
    effect = Effect("breaker:1:4:freeze_scale_out", "freeze_scale_out", {"breaker": 1, "epoch": 4})
    delivery = channels["freeze_scale_out"].deliver(effect)
    assert (delivery.outcome, delivery.detail) == ("delivered", "no target of this scope can be frozen")

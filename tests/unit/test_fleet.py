"""What a breaker asks of the fleet, when actions begin and end, and what a reading says of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.breaker_values import Breaker
from core.errors import BadInput, Refused
from core.fleet import (
    ActionState,
    FleetAction,
    FleetTarget,
    Wish,
    beginning,
    check_limits,
    compare,
    ending,
    frozen_size,
    lowered,
    wishes,
)

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
MIN = timedelta(minutes=1)
BREAKER = Breaker(7, "tenant:acme", NOW, NOW, epoch=3)
KEY = FleetTarget(1, "tenant:acme/red", "litellm", "team/red", {"rpm_limit": 5})
POOL = FleetTarget(2, "deployment:lab/prod/tiny", "kubernetes", "hpa/prod/tiny")
ABLE: Any = {"litellm": ("block", "limit"), "kubernetes": ("freeze",)}
WISH = Wish(7, 3, "tenant:acme", "block", NOW)


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ({}, []),
        ({"phase": "open"}, []),
        ({"phase": "open", "enforced": True}, ["block"]),
        ({"phase": "open", "enforced": True, "paused_until": NOW + MIN}, []),
        ({"phase": "open", "enforced": True, "paused_until": NOW}, ["block"]),
        ({"phase": "warned", "rules_enforced": True}, []),
        ({"phase": "degraded"}, []),
        ({"phase": "degraded", "frozen_until": NOW + MIN}, []),
        ({"phase": "degraded", "rules_enforced": True}, ["limit"]),
        ({"phase": "degraded", "rules_enforced": True, "frozen_until": NOW + MIN}, ["limit", "freeze"]),
        ({"phase": "degraded", "rules_enforced": True, "frozen_until": NOW}, ["limit"]),
    ],
)
def test_what_a_breaker_asks(more: dict[str, Any], asked: list[str]) -> None:
    assert [wish.move for wish in wishes(replace(BREAKER, **more), NOW)] == asked


def test_a_freeze_carries_its_end() -> None:
    frozen = replace(BREAKER, phase="degraded", rules_enforced=True, frozen_until=NOW + 60 * MIN)
    assert [wish.until for wish in wishes(frozen, NOW)] == [None, NOW + 60 * MIN]


def action(state: ActionState = "applied", **more: Any) -> FleetAction:
    return FleetAction(**{"id": 1, "breaker_id": 7, "epoch": 3, "target": KEY, "move": "block", "state": state,
                          "planned_at": NOW, "tried_at": NOW, **more})  # fmt: skip


@pytest.mark.parametrize(
    ("wish", "actions", "begins"),
    [
        (WISH, [], [1]),
        (replace(WISH, scope="tenant:acme/red"), [], [1]),
        (replace(WISH, scope="tenant:acme/blue"), [], []),
        (replace(WISH, scope="deployment:lab/prod/tiny", move="freeze"), [], [2]),
        (replace(WISH, scope="platform"), [], [1]),
        (WISH, [action()], []),
        (replace(WISH, breaker_id=9), [action()], []),
        (replace(WISH, move="limit"), [action()], [1]),
        (WISH, [action("reverted")], []),
        (replace(WISH, epoch=4), [action("reverted")], [1]),
        (replace(WISH, epoch=4), [action("reverted", end_asked_by="ann")], []),
        (replace(WISH, epoch=4), [action("drifted")], []),
        (replace(WISH, epoch=4), [action("failed")], []),
        (replace(WISH, epoch=4, since=NOW + MIN), [action("drifted")], [1]),
    ],
)
def test_what_begins(wish: Wish, actions: list[FleetAction], begins: list[int]) -> None:
    assert [target.id for _, target in beginning([wish], [KEY, POOL], actions, ABLE)] == begins


def test_a_target_without_limits_is_not_limited() -> None:
    assert beginning([replace(WISH, move="limit")], [replace(KEY, options={})], [], ABLE) == []


@pytest.mark.parametrize(
    ("asked", "one", "enabled", "why"),
    [
        ([WISH], action(), {"litellm"}, None),
        ([], action(), {"litellm"}, "the breaker asks for it no longer"),
        ([WISH], action(expires_at=NOW), {"litellm"}, "its time is up"),
        ([WISH], action(end_asked_by="ann"), {"litellm"}, "ended by ann"),
        ([WISH], action(), set(), "its actuator was switched off"),
        ([WISH], action("planned", tried_at=None), set(), None),
        ([], action("drifted"), {"litellm"}, None),
    ],
)
def test_what_ends_and_why(asked: list[Wish], one: FleetAction, enabled: set[str], why: str | None) -> None:
    assert [found for _, found in ending(asked, [one], enabled, NOW)] == ([] if why is None else [why])


@pytest.mark.parametrize(
    ("present", "found"),
    [({"n": 3, "x": 1}, "wanted"), ({"n": 8}, "before"), ({"n": 5}, "other"), ({}, "other"), ({"n": None}, "other")],
)
def test_a_reading_against_an_action(present: dict[str, Any], found: str) -> None:
    assert compare(action(before={"n": 8}, wanted={"n": 3}), present) == found


def test_limits_only_fall() -> None:
    present = {"rpm_limit": 3, "tpm_limit": None, "max_budget": "12.5"}
    assert lowered({"rpm_limit": 5, "tpm_limit": 100, "max_budget": "9.99"}, present) == {
        "rpm_limit": 3, "tpm_limit": 100, "max_budget": "9.99",
    }  # fmt: skip


@pytest.mark.parametrize(
    "options", [{"rpm": 1}, {"rpm_limit": "many"}, {"rpm_limit": -1}, {"tpm_limit": "1.5"}, {"rpm_limit": "NaN"}]
)
def test_bad_limits_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=next(iter(options))):
        check_limits(options)


def test_limits_are_whole_numbers_and_a_budget_is_text() -> None:
    found = check_limits({"rpm_limit": "10", "max_budget": "20.50"})
    assert found == {"rpm_limit": 10, "max_budget": "20.5"}


def test_frozen_at_what_runs() -> None:
    assert [frozen_size(size, least, "x") for size, least in ((5, 1), (0, 0), (2, 3))] == [5, 1, 3]
    with pytest.raises(Refused, match="present size"):
        frozen_size(None, 1, "x")

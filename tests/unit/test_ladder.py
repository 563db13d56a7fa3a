"""The ladder of tier 2: its culprits alone, the lowest service tier first, each rung one step more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from core.breaker_values import Breaker
from core.errors import BadInput
from core.ladder import LadderPolicy, ladder_entries
from core.policy import PolicyBody, PolicyEntry, entry_from_json, parse_body
from tokenfuse_guard.entries import RequestFacts
from tokenfuse_guard.policy import Policy

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POLICY = LadderPolicy(reroute_to="tiny-long")
DEGRADED = Breaker(
    7, "deployment:lab/prod/tiny", NOW, NOW, phase="degraded", epoch=3, rules_enforced=True, culprits=("tenant:acme/red",)
)


def entries(rung: int, policy: LadderPolicy = POLICY, **more: Any) -> tuple[PolicyEntry, ...]:
    return ladder_entries(replace(DEGRADED, rung=rung, **more), policy, lambda scope: (), NOW)


@pytest.mark.parametrize(
    ("rung", "p2", "p1", "p0"),
    [
        (0, [], [], []),
        (1, ["delay"], [], []),
        (2, ["delay", "limit"], ["delay"], []),
        (3, ["delay", "limit", "reroute"], ["delay", "limit"], ["delay"]),
        (4, ["reject"], ["delay", "limit", "reroute"], ["delay", "limit"]),
    ],
)
def test_each_rung_by_service_tier(rung: int, p2: list[str], p1: list[str], p0: list[str]) -> None:
    found = entries(rung)
    by_tier = [[e.action for e in found if f"service_tier:{tier}" in e.within] for tier in ("P2", "P1", "P0")]
    assert by_tier == [p2, p1, p0]
    assert {(e.scope, e.tier, e.breaker, e.epoch, e.shadow) for e in found} <= {("tenant:acme/red", 2, 7, 3, False)}


def test_without_another_pool_nobody_is_rerouted() -> None:
    assert "reroute" not in {e.action for rung in range(5) for e in entries(rung, LadderPolicy())}


@pytest.mark.parametrize("phase", ["closed", "warned", "open"])
def test_only_a_degraded_breaker_has_a_ladder(phase: Any) -> None:
    assert entries(4, phase=phase) == ()


@pytest.mark.parametrize("more", [{"rules_enforced": False}, {"paused_until": NOW + timedelta(minutes=1)}])
def test_in_shadow_or_paused_it_is_counted_and_not_obeyed(more: dict[str, Any]) -> None:
    assert {e.shadow for e in entries(4, **more)} == {True}


def test_exemptions_stand_in_each_entry() -> None:
    found = ladder_entries(replace(DEGRADED, rung=4), POLICY, lambda scope: (scope + "/vip",), NOW)
    assert {e.exempt for e in found} == {("tenant:acme/red/vip",)}


def test_a_step_of_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match=r"ladder\.delay_s"):
        LadderPolicy(delay_s=0)


def guard_policy(rung: int) -> Policy:
    """As a guard compiles what the centre writes."""
    body = PolicyBody(1, NOW, NOW + timedelta(minutes=15), "edge", "open", entries(rung))
    assert parse_body(body.canonical()) == body
    return Policy({"version": 1, "issued_at": "2026-11-30T12:00:00Z", "expires_at": "2026-11-30T12:15:00Z", "guard": "edge",
                   "entries": [e.as_json() for e in body.entries]})  # fmt: skip


@pytest.mark.parametrize(
    ("tenant", "deployment", "tier", "refused", "delayed", "cap"),
    [
        ("acme/red//ann", "lab/prod/tiny", "P2", True, False, None),
        ("acme/red//ann", "lab/prod/tiny", "P1", False, True, 1024),
        ("acme/red//ann", "lab/prod/tiny", "P0", False, True, 1024),
        ("acme/red//ann", "lab/prod/other", "P2", False, False, None),
        ("acme/blue//ann", "lab/prod/tiny", "P2", False, False, None),
        ("", "lab/prod/tiny", "P2", False, False, None),
    ],
)
def test_a_guard_obeys_it_for_the_culprit_on_that_deployment_alone(
    tenant: str, deployment: str, tier: str, refused: bool, delayed: bool, cap: int | None
) -> None:
    facts = RequestFacts("tiny", deployment, tenant, tier, prompt_tokens_at_most=100)
    policy = guard_policy(4)
    decision = policy.decide(policy.match(facts), facts)
    assert (decision.refusal is not None, decision.delay_s > 0, decision.max_output_tokens) == (refused, delayed, cap)
    assert decision.reroute_to == ("tiny-long" if delayed and tier == "P1" else "")


def test_a_long_prompt_of_the_culprit_is_refused_by_name_of_the_limit() -> None:
    facts = RequestFacts("tiny", "lab/prod/tiny", "acme/red//ann", "P1", prompt_tokens=9000)
    policy = guard_policy(3)
    refusal = policy.decide(policy.match(facts), facts).refusal
    assert refusal is not None
    assert (refusal.code, "max_prompt_tokens=8192" in refusal.message) == ("prompt_too_long", True)


def test_the_guard_asks_for_the_model_where_an_entry_is_bound_to_a_deployment() -> None:
    assert guard_policy(4).names_deployments


def test_an_entry_without_bounds_is_written_as_before() -> None:
    entry = PolicyEntry("x", "platform", 3, "reject", "r")
    assert "within" not in entry.as_json()
    assert entry_from_json(entry.as_json()) == entry

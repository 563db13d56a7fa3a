"""What a guard decides, written as a table: entries in force, a request, what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from guard_servers import limit, reject

from tokenfuse_guard.entries import Decision, RequestFacts
from tokenfuse_guard.meters import Meters
from tokenfuse_guard.policy import MAX_DELAY_S, Policy

REQUEST = RequestFacts(
    model="tiny", deployment="eu/prod/tiny", tenant="acme/search/chat/ann", service_tier="P1", prompt_tokens_at_most=900
)


def policy(*entries: dict[str, Any]) -> Policy:
    stamps = {"issued_at": "2026-11-30T12:00:00.000Z", "expires_at": "2026-11-30T12:15:00.000Z"}
    return Policy({"version": 1, "guard": "edge", "on_expiry": "open", "entries": list(entries), **stamps})


def decide(*entries: dict[str, Any], can_truncate: bool = False, **facts: Any) -> Decision:
    found, request = policy(*entries), REQUEST._replace(**facts)
    return found.decide(found.match(request), request, can_truncate=can_truncate)


@pytest.mark.parametrize(
    "scope",
    [
        "platform",
        "service_tier:P1",
        "deployment:eu/prod/tiny",
        "tenant:acme",
        "tenant:acme/search",
        "tenant:acme/search/chat/ann",
    ],
)
def test_a_scope_that_covers_the_request_refuses_it(scope: str) -> None:
    refusal = decide(reject(scope)).refusal
    assert refusal is not None
    assert refusal.code == "budget_exceeded"
    assert scope in refusal.message


@pytest.mark.parametrize(
    "scope",
    ["service_tier:P2", "deployment:eu/prod/tin", "deployment:eu/prod/tiny2", "tenant:acm", "tenant:acme/searc", "tenant:other"],
)
def test_a_scope_beside_it_does_not(scope: str) -> None:
    assert decide(reject(scope)).refusal is None


def test_a_tenant_scope_touches_nobody_whose_identity_is_not_proven() -> None:
    assert decide(reject("tenant:acme"), tenant="").refusal is None


@pytest.mark.parametrize("exempt", ["tenant:acme/search/chat/ann", "tenant:acme", "service_tier:P1", "deployment:eu/prod/tiny"])
def test_an_exempt_request_is_not_touched(exempt: str) -> None:
    assert decide(reject("platform", exempt=[exempt])).refusal is None


@pytest.mark.parametrize("quiet", [{"shadow": True}, {"mode": "warn"}])
def test_shadow_and_warn_only_note(quiet: dict[str, Any]) -> None:
    decision = decide(reject("platform", **quiet))
    assert decision.refusal is None
    assert [what for _, what in decision.notes] == ["would_refuse"]


def test_a_quiet_entry_does_not_hide_an_acting_one() -> None:
    decision = decide(reject("platform", shadow=True, priority=9), reject("tenant:acme"))
    assert decision.refusal is not None
    assert sorted(what for _, what in decision.notes) == ["refused", "would_refuse"]


def test_reject_with_allowed_models_lets_those_through() -> None:
    entry = reject("tenant:acme", allowed_models=["tiny"])
    assert decide(entry).refusal is None
    refused = decide(entry, model="large").refusal
    assert refused is not None
    assert (refused.code, refused.param) == ("model_not_allowed", "model")


@pytest.mark.parametrize(
    ("at_most", "exact", "refused"),
    [
        (1000, None, False),
        (1001, None, True),
        (5000, 1000, False),
        (5000, 1001, True),
        (None, None, True),
        (None, 10, False),
    ],
    ids=["bytes under", "bytes over, nobody to tokenise", "tokens at the cap", "tokens over", "no bound", "no bound but counted"],
)
def test_a_prompt_cap(at_most: int | None, exact: int | None, refused: bool) -> None:
    decision = decide(limit("platform", {"max_prompt_tokens": 1000}), prompt_tokens_at_most=at_most, prompt_tokens=exact)
    assert (decision.refusal is not None) is refused


@pytest.mark.parametrize(
    ("asked", "becomes"), [(None, 64), (500, 64), (64, None), (10, None)], ids=["none asked", "more", "as much", "less"]
)
def test_an_output_cap_is_written_only_where_it_lowers(asked: int | None, becomes: int | None) -> None:
    assert decide(limit("platform", {"max_output_tokens": 64}), max_output_tokens=asked).max_output_tokens == becomes


def test_of_several_caps_the_lowest_holds() -> None:
    entries = [limit("platform", {"max_output_tokens": 64}), limit("tenant:acme", {"max_output_tokens": 32})]
    assert decide(*entries).max_output_tokens == 32


def step(action: str, **more: Any) -> dict[str, Any]:
    return {"id": action, "scope": "platform", "tier": 2, "action": action, "reason": "r", **more}


def test_truncate_cuts_only_where_somebody_opted_in_and_else_refuses() -> None:
    entry = step("truncate", limits={"max_prompt_tokens": 800})
    assert decide(entry, can_truncate=True).truncate_to_tokens == 800
    assert decide(entry, can_truncate=True, prompt_tokens_at_most=700).truncate_to_tokens is None
    refused = decide(entry).refusal
    assert refused is not None
    assert refused.code == "prompt_too_long"


def test_reroute_and_delay() -> None:
    assert decide(step("reroute", reroute_to="small")).reroute_to == "small"
    assert decide(step("reroute", reroute_to="tiny")).reroute_to == ""
    assert decide(step("delay", retry_after_s=3)).delay_s == 3
    assert decide(step("delay", retry_after_s=3000)).delay_s == MAX_DELAY_S


def test_an_action_of_a_newer_centre_is_left_out_and_counted() -> None:
    found = policy(step("explode"), reject("platform"))
    assert found.unknown == 1
    assert found.decide(found.match(REQUEST), REQUEST).refusal is not None


def test_the_wait_is_at_least_what_the_policy_says_and_spread_by_a_quarter() -> None:
    waits = {refusal.retry_after_s for _ in range(200) if (refusal := decide(reject("platform", retry_after_s=40)).refusal)}
    assert min(waits) >= 40
    assert max(waits) <= 50
    assert len(waits) > 3


def test_tokens_per_minute_refills_evenly_and_may_be_overdrawn() -> None:
    found, meters = policy(limit("tenant:acme", {"tokens_per_min": 600})), Meters(8192)
    match = found.match(REQUEST)
    first = meters.admit(match, REQUEST, 0.0)
    assert first.refusal is None
    meters.settle(first.hold, 900, 0.0)
    over = meters.admit(match, REQUEST, 10.0).refusal
    assert over is not None
    assert over.retry_after_s == 21
    assert meters.admit(match, REQUEST, 31.0).refusal is None


def test_b28_the_overshoot_is_told_until_the_bucket_is_full_again_and_bounded_by_what_was_in_flight() -> None:
    """The limit is 1000, three requests of 1200 are let in before the first of them ends."""
    found, meters = policy(limit("tenant:acme", {"tokens_per_min": 1000})), Meters(8192)
    match = found.match(REQUEST)
    holds = [meters.admit(match, REQUEST, 0.0).hold for _ in range(3)]
    for hold in holds:
        meters.settle(hold, 1200, 0.0)
    assert meters.admit(match, REQUEST, 0.0).refusal is not None
    told = {"entry": "limit:tenant:acme", "scope": "tenant:acme", "tokens": 2600, "largest_request": 1200, "most_in_flight": 3}
    assert meters.overshoots(1.0) == {"overshoots": [told]}
    assert told["tokens"] <= told["most_in_flight"] * told["largest_request"]
    assert meters.overshoots(200.0) == {"overshoots": [told]}
    assert meters.overshoots(201.0) == {"overshoots": []}


def test_long_prompts_at_once_are_counted_and_freed() -> None:
    found, meters = policy(limit("platform", {"max_concurrent_long": 1})), Meters(100)
    long, short = REQUEST._replace(prompt_tokens=101), REQUEST._replace(prompt_tokens=100)
    match = found.match(long)
    first = meters.admit(match, long, 0.0)
    assert meters.admit(match, long, 0.0).refusal is not None
    assert meters.admit(match, short, 0.0).refusal is None
    meters.settle(first.hold, 0, 0.0)
    assert meters.admit(match, long, 0.0).refusal is None

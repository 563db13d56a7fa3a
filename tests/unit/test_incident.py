"""An incident is one episode: replays tell nobody twice, severity never falls, money after the trip is told or explained."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.breaker_values import Breaker, Trip
from core.incident import (
    SEVERITIES,
    Change,
    Incident,
    acknowledge,
    assign,
    breaker_change,
    comment,
    fold,
    overshoot,
    remind,
)
from core.money import money

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CHANGE = Change("tenant:acme/red", "breaker", True, "page", "open", AT, "control", "95 % of the cap", breaker_id=7, epoch=3)
CALM = replace(CHANGE, firing=False, phase="closed", severity="notice", actor="ann", reason="legitimate", epoch=4)
TRIP = Trip("day", AT + 12 * HOUR, money("95", "USD"), money("100", "USD"))
CLOSED = Breaker(7, "tenant:acme/red", AT, AT, enforced=True, rules_enforced=True, epoch=2)


def opened(change: Change = CHANGE) -> Incident:
    found = fold(None, change)
    assert found is not None
    return found[0]


def test_it_opens_changes_and_recovers_as_one() -> None:
    first = fold(None, replace(CHANGE, severity="notice", phase="warned"))
    assert first is not None
    second = fold(first[0], CHANGE)
    assert second is not None
    third = fold(second[0], CALM)
    assert third is not None
    assert [f[1].kind for f in (first, second, third)] == ["opened", "changed", "recovered"]
    assert [f[1].seq for f in (first, second, third)] == [1, 2, 3]
    assert third[0].severity == "page"
    assert third[0].outcome == "recovered by ann: legitimate"


def test_calm_without_an_incident_and_the_same_again_tell_nothing() -> None:
    assert fold(None, CALM) is None
    assert fold(opened(), replace(CHANGE, at=AT + HOUR)) is None


@given(st.lists(st.tuples(st.sampled_from(SEVERITIES), st.sampled_from(["warned", "degraded", "open"])), max_size=8))
def test_severity_never_falls_and_replays_tell_nobody_twice(steps: list[tuple[str, str]]) -> None:
    incident, ranks = None, []
    for severity, phase in steps:
        change = replace(CHANGE, severity=severity, phase=phase)
        folded = fold(incident, change)
        incident = incident if folded is None else folded[0]
        assert fold(incident, change) is None
        assert incident is not None
        ranks.append(SEVERITIES.index(incident.severity))
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("after", "firing", "severity", "shadow"),
    [
        (replace(CLOSED, phase="warned"), True, "notice", False),
        (replace(CLOSED, phase="degraded"), True, "warning", False),
        (replace(CLOSED, phase="open", trip=TRIP), True, "page", False),
        (replace(CLOSED, phase="open", trip=TRIP, enforced=False), True, "notice", True),
        (replace(CLOSED, phase="open", trip=TRIP, paused_until=AT + HOUR), True, "notice", True),
        (replace(CLOSED, phase="degraded", rules_enforced=False), True, "notice", True),
        (replace(CLOSED, held=True), True, "page", False),
        (replace(CLOSED, over_unmetered=True), True, "notice", False),
        (replace(CLOSED, paused_until=AT + HOUR), False, "notice", True),
    ],
)
def test_what_a_breaker_means_for_people(after: Breaker, firing: bool, severity: str, shadow: bool) -> None:
    change = breaker_change(CLOSED, after, "control", AT, None, "finops")
    assert (change.firing, change.severity, change.shadow, change.owner) == (firing, severity, shadow, "finops")


@pytest.mark.parametrize(
    ("trip", "spend", "at", "amount", "reason"),
    [
        (TRIP, money("95.5", "USD"), AT + HOUR, money("0.5", "USD"), ""),
        (TRIP, None, AT + HOUR, None, "not known"),
        (TRIP, money("1", "USD"), TRIP.period_end, None, "period is over"),
        (None, money("1", "USD"), AT, None, "no cap"),
    ],
)
def test_money_after_the_trip(trip: Trip | None, spend: object, at: datetime, amount: object, reason: str) -> None:
    found = overshoot(trip, spend, at)  # type: ignore[arg-type]
    assert found[0] == amount
    assert reason in found[1]


@pytest.mark.parametrize(
    ("severity", "after", "acked", "told"),
    [("page", HOUR, False, True), ("page", HOUR - timedelta(seconds=1), False, False), ("page", HOUR, True, False),
     ("warning", HOUR, False, False), ("warning", 4 * HOUR, False, True), ("notice", 99 * HOUR, False, False)],
)  # fmt: skip
def test_reminders(severity: str, after: timedelta, acked: bool, told: bool) -> None:
    incident = replace(opened(), severity=severity, acknowledged_by="ann" if acked else "")  # type: ignore[arg-type]
    assert (remind(incident, AT + after) is not None) is told


def test_people_acknowledge_and_take_once_and_may_always_comment() -> None:
    first = acknowledge(opened(), "ann", "on it", AT)
    assert first is not None
    assert acknowledge(first[0], "bob", "me too", AT) is None
    second = assign(first[0], "bob", "ann", "his team", AT)
    assert second is not None
    assert second[1].reason == "to bob: his team"
    assert assign(second[0], "bob", "ann", "again", AT) is None
    assert comment(second[0], "ann", "x", AT)[0].seq == 4

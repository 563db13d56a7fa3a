"""From verdicts to alerts: it fires after the hold, recovers after being clear for long, never flaps, and folds a window once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.detect import Verdict
from core.rule_fold import Event, RuleState, Timing, fold

T0 = datetime(2026, 11, 2, tzinfo=UTC)
STEP = timedelta(minutes=5)
TIMING = Timing(timedelta(minutes=10), timedelta(minutes=15), timedelta(minutes=20))
LEVELS = {"f": "firing", "b": "between", "c": "clear", "n": "no_data"}


def run(levels: str, timing: Timing = TIMING) -> tuple[RuleState, list[tuple[int, Event]]]:
    state, events = RuleState(), []
    for n, letter in enumerate(levels):
        state, event = fold(timing, state, Verdict(LEVELS[letter]), T0 + n * STEP, T0 + (n + 1) * STEP)  # type: ignore[arg-type]
        events += [(n, event)] if event else []
    return state, events


@pytest.mark.parametrize(
    ("levels", "events"),
    [
        ("cccc", []),
        ("f", []),
        ("ff", [(1, "fired")]),
        ("fcfcfcfc", []),
        ("fbfbfb", []),
        ("fnf", []),
        ("ffbbbbbb", [(1, "fired")]),
        ("ffcc", [(1, "fired")]),
        ("ffccc", [(1, "fired"), (4, "recovered")]),
        ("ffccbccc", [(1, "fired"), (7, "recovered")]),
        ("ffnnnnnnn", [(1, "fired")]),
        ("ffcccff", [(1, "fired"), (4, "recovered"), (6, "fired")]),
    ],
)
def test_alerts_of_a_row_of_windows(levels: str, events: list[tuple[int, Event]]) -> None:
    assert run(levels)[1] == events


@pytest.mark.parametrize(
    ("levels", "severity", "shown"),
    [("", "page", "NO_DATA"), ("c", "page", "OK"), ("f", "page", "OK"), ("ff", "page", "ALERT"), ("ff", "notice", "WARNING"),
     ("ffn", "page", "ALERT"), ("ffnnnn", "page", "NO_DATA"), ("ffnnnnf", "page", "ALERT"), ("cnnnn", "page", "NO_DATA")],
)  # fmt: skip
def test_what_people_see(levels: str, severity: str, shown: str) -> None:
    assert run(levels)[0].shown(severity, TIMING) == shown


LETTERS = st.text("fbcn", max_size=60)


@given(LETTERS)
def test_events_alternate_and_keep_their_distance(levels: str) -> None:
    state, events = run(levels)
    assert [event for _, event in events] == ["fired", "recovered"] * (len(events) // 2) + ["fired"] * (len(events) % 2)
    assert state.epoch == len(events)
    for (before, _), (after, event) in pairwise(events):
        least = TIMING.recover_after if event == "recovered" else TIMING.hold
        assert (after - before) * STEP >= least


@given(LETTERS, st.lists(st.integers(0, 59), max_size=10))
def test_windows_told_again_or_late_change_nothing(levels: str, again: list[int]) -> None:
    state, _ = run(levels)
    for n in again:
        if n < len(levels):
            assert fold(TIMING, state, Verdict("firing"), T0 + n * STEP, T0 + (n + 1) * STEP) == (state, None)


@given(st.text("bc", max_size=40), st.text("bf", max_size=40))
def test_between_the_bounds_it_never_flaps(quiet: str, loud: str) -> None:
    assert run(quiet)[1] == []
    assert [event for _, event in run("ff" + loud)[1]] == ["fired"]

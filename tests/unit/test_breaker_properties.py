"""Whatever happens in whatever order: the breaker's promises."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.breaker import step
from core.breaker_values import (
    Allowance,
    Approve,
    Breaker,
    BreakerPolicy,
    CapReading,
    CapSignal,
    Command,
    Enforce,
    Pause,
    Reset,
    RuleSignal,
    Shadow,
    Signal,
)
from core.errors import TokenfuseError
from core.money import Money

POLICY = BreakerPolicy()
START = datetime(2026, 11, 30, tzinfo=UTC)
LEVELS = st.sampled_from(["firing", "between", "clear", "no_data"])
PEOPLE = st.sampled_from(["ann", "bob", "", "control"])


class BreakerLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.breaker = Breaker(1, "tenant:acme", START, START)
        self.keys: set[str] = set()

    def fold(self, signal: Signal) -> None:
        before = self.breaker
        try:
            after, commands = step(POLICY, before, signal, self.now)
        except TokenfuseError:
            return
        self.check(before, signal, after, commands)
        self.breaker = after

    def check(self, before: Breaker, signal: Signal, after: Breaker, commands: tuple[Command, ...]) -> None:
        person = isinstance(signal, (Reset, Approve, Enforce, Shadow, Pause))
        assert after.epoch - before.epoch in (0, 1)
        if after.phase != before.phase or commands:
            assert after.epoch == before.epoch + 1
        if before.phase == "open" and after.phase != "open":
            assert person or before.presigned is not None or not before.enforced
        if before.phase == "degraded" and after.phase in ("closed", "warned"):
            assert isinstance(signal, Approve)
        if isinstance(signal, (CapSignal, RuleSignal)) and signal.catching_up:
            assert not (before.phase != "closed" and after.phase == "closed")
        if isinstance(signal, CapSignal) and signal.readings and all(r.spend is None for r in signal.readings):
            assert (after, commands) == (before, ())
        if isinstance(signal, CapSignal) and not signal.metered:
            assert after.phase != "open" or before.phase == "open"
        for command in commands:
            assert command.key not in self.keys
            self.keys.add(command.key)
        if not person:
            again, repeated = step(POLICY, after, signal, self.now)
            assert (again, repeated) == (after, ()) or isinstance(signal, RuleSignal), "a replayed measurement acts once"

    @rule(minutes=st.integers(0, 600))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule(
        spends=st.lists(st.none() | st.integers(0, 200), max_size=2),
        metered=st.booleans(),
        catching_up=st.booleans(),
        refused=st.none() | st.sampled_from([Decimal(0), Decimal("0.5"), Decimal(1)]),
    )
    def spending(self, spends: list[int | None], metered: bool, catching_up: bool, refused: Decimal | None) -> None:
        midnight = self.now.replace(hour=0, minute=0) + timedelta(days=1)
        readings = tuple(
            CapReading(period, midnight, None if s is None else Money(Decimal(s), "USD"), Money(Decimal(100), "USD"))
            for period, s in zip(("day", "week"), spends, strict=False)
        )
        self.fold(CapSignal(readings, metered, catching_up, refused))

    @rule(unit_cost=LEVELS, pressure=LEVELS, culprits=st.sampled_from([(), ("tenant:x",)]), catching_up=st.booleans())
    def condition(self, unit_cost: str, pressure: str, culprits: tuple[str, ...], catching_up: bool) -> None:
        self.fold(RuleSignal(unit_cost, pressure, culprits, catching_up))  # type: ignore[arg-type]

    @precondition(lambda self: self.breaker.phase == "open")
    @rule(actor=PEOPLE, reason=st.sampled_from(["ok", ""]), allowed=st.none() | st.integers(50, 300))
    def reset(self, actor: str, reason: str, allowed: int | None) -> None:
        cap = None if allowed is None else Money(Decimal(allowed), "USD")
        before = self.breaker
        self.fold(Reset(actor, reason, None if cap is None else Allowance(cap, new_cap=cap), Money(Decimal(100), "USD")))
        if self.breaker.phase != before.phase:
            assert reason == "ok"
            assert actor in ("ann", "bob")
            assert allowed is not None
            assert Decimal(100) / allowed < POLICY.trip_share

    @rule(actor=PEOPLE)
    def approve(self, actor: str) -> None:
        self.fold(Approve(actor, "reviewed"))

    @rule(actor=PEOPLE, read=st.booleans())
    def enforce(self, actor: str, read: bool) -> None:
        self.fold(Enforce(actor, "arm", has_cap=True, read_shadow_report=read))

    @rule(actor=PEOPLE)
    def shadow(self, actor: str) -> None:
        self.fold(Shadow(actor, "disarm"))

    @rule(actor=PEOPLE, minutes=st.none() | st.integers(-5, 120))
    def pause(self, actor: str, minutes: int | None) -> None:
        self.fold(Pause(actor, "incident", None if minutes is None else self.now + timedelta(minutes=minutes)))

    @invariant()
    def only_an_armed_open_unpaused_breaker_refuses(self) -> None:
        b = self.breaker
        assert b.refuses(self.now) == (b.phase == "open" and b.enforced and not b.paused(self.now))

    @invariant()
    def an_open_breaker_knows_what_opened_it(self) -> None:
        assert (self.breaker.phase == "open") == (self.breaker.trip is not None)

    @invariant()
    def a_fresh_copy_is_equal(self) -> None:
        assert replace(self.breaker) == self.breaker


TestBreakerLife = BreakerLife.TestCase
TestBreakerLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

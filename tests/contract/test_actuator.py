"""The actuator port: every adapter and the fake, worked by ``control.fleet.actions``, keep the same promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from actuator_worlds import FakeWorld, KubernetesWorld, LiteLLMWorld, World
from sqlalchemy import Engine

from control.fleet import people
from control.fleet.actions import FleetReport, Registered, Registry, settle
from control.fleet.kubernetes_scale import KubernetesActuator
from core.breaker_values import Breaker
from core.errors import Conflict, TokenfuseError
from core.fleet import FleetAction, FleetTarget
from ingest.discovery.kube_access import KubeAccess
from models.audit_repo import list_audit, verify_chain
from models.breaker_repo import ensure_breaker, list_breakers, save_breaker
from models.fleet_action_repo import add_target, list_actions, set_switch
from models.tables_decide import OutboxRow

pytestmark = pytest.mark.db
NOW = datetime(2026, 11, 30, 12, 5, tzinfo=UTC)
MIN = timedelta(minutes=1)
WORLDS: Mapping[str, Callable[[], World]] = {
    "fake": FakeWorld,
    "litellm-key-block": LiteLLMWorld,
    "litellm-team-block": lambda: LiteLLMWorld("team"),
    "litellm-model-block": lambda: LiteLLMWorld("model"),
    "litellm-key-limit": lambda: LiteLLMWorld("key", "limit"),
    "litellm-team-limit": lambda: LiteLLMWorld("team", "limit"),
    "kubernetes-hpa": lambda: KubernetesWorld("hpa"),
    "kubernetes-keda": lambda: KubernetesWorld("scaledobject"),
    "kubernetes-deployment": lambda: KubernetesWorld("deployment"),
}


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    yield made
    made.close()


class Stage:
    """A breaker, one target in its scope, and the world's actuator switched on."""

    def __init__(self, db: Engine, world: World, *, on: bool = True) -> None:
        self.db, self.world = db, world
        self.registry: Registry = {world.name: Registered(world.actuator, (world.move,))}
        with db.begin() as connection:
            ensure_breaker(connection, "deployment:lab/prod/tiny", NOW, NOW)
            target = FleetTarget(0, "deployment:lab/prod/tiny", world.name, world.address, world.options)
            assert add_target(connection, target, "ann", NOW)
            if on:
                set_switch(connection, world.name, True, "ann", "tried it", NOW)

    def breaker(self, **more: Any) -> Breaker:
        with self.db.begin() as connection:
            (found,) = list_breakers(connection)
            after = replace(found, **more)
            save_breaker(connection, after)
        return after

    def trip(self, epoch: int = 7, since: datetime = NOW) -> None:
        """The breaker asks for the world's move."""
        if self.world.move == "block":
            self.breaker(phase="open", enforced=True, epoch=epoch, since=since)
        else:
            frozen = {"frozen_until": since + 60 * MIN} if self.world.move == "freeze" else {}
            self.breaker(phase="degraded", rules_enforced=True, epoch=epoch, since=since, **frozen)

    def calm(self, epoch: int = 8, at: datetime = NOW) -> None:
        self.breaker(phase="closed", frozen_until=None, epoch=epoch, since=at)

    def settle(self, now: datetime = NOW) -> FleetReport:
        return settle(self.db, self.registry, now)

    def actions(self) -> list[FleetAction]:
        with self.db.connect() as connection:
            return list_actions(connection)

    def action(self) -> FleetAction:
        (found,) = self.actions()
        return found

    def audited(self) -> list[str]:
        with self.db.connect() as connection:
            assert verify_chain(connection).broken_seq is None
            return [record.action for record in reversed(list_audit(connection))]


@pytest.fixture
def stage(db: Engine, world: World) -> Stage:
    return Stage(db, world)


def test_plan_apply_verify_revert(stage: Stage, world: World) -> None:
    stood = world.present()
    assert stage.settle() == FleetReport(), "nothing is asked, nothing is done"
    stage.trip()
    assert stage.settle() == FleetReport(planned=1, applied=1)
    changed = world.present()
    assert (changed != stood, stage.action().state, stage.action().epoch) == (True, "applied", 7)
    stage.settle(NOW + MIN)
    assert stage.action().state == "verified"
    stage.calm()
    assert stage.settle(NOW + 2 * MIN) == FleetReport(reverted=1)
    assert (world.present(), stage.action().detail) == (stood, "the breaker asks for it no longer")
    assert stage.audited() == ["fleet.planned", "fleet.applied", "fleet.verified", "fleet.reverted"]


def test_what_stood_before_is_kept_with_plain_commands_and_no_secret(stage: Stage, world: World) -> None:
    before = {n: v for n, v in world.actuator.read(world.address).value.items()}
    stage.trip()
    stage.settle()
    action = stage.action()
    assert action.before == {name: before[name] for name in action.wanted}
    assert action.commands == world.actuator.commands(world.address, action.before) != ()
    assert "sk-master" not in repr(action)


def test_applied_twice_acts_once(stage: Stage, world: World) -> None:
    stage.trip()
    for minute in range(5):
        stage.settle(NOW + minute * MIN)
    assert len(stage.actions()) == 1
    once = world.writes
    world.actuator.write(world.address, stage.action().before, stage.action().wanted)
    assert world.writes == once, "setting what stands there already does nothing"


def test_a_higher_epoch_of_the_same_episode_acts_once(stage: Stage, world: World) -> None:
    stage.trip()
    stage.settle()
    once = world.writes
    stage.breaker(epoch=9, reason="ladder step 2")
    stage.settle(NOW + MIN)
    assert (len(stage.actions()), world.writes) == (1, once)


class Killed(BaseException):
    pass


def killed_after_the_write(stage: Stage, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = world.actuator.write

    def then_die(*args: Any) -> None:
        real(*args)
        raise Killed

    monkeypatch.setattr(world.actuator, "write", then_die)
    with pytest.raises(Killed):
        stage.settle()
    monkeypatch.undo()


def test_killed_between_the_write_and_the_record(stage: Stage, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.trip()
    stood = world.present()
    killed_after_the_write(stage, world, monkeypatch)
    assert (stage.action().state, stage.action().tried_at) == ("planned", NOW)
    once = world.writes
    assert stage.settle(NOW + MIN).applied == 1
    assert world.writes == once, "it stands there already: nothing is written again"
    stage.calm()
    stage.settle(NOW + 2 * MIN)
    assert world.present() == stood, "the value before the first try is put back"


def test_killed_after_the_write_and_over_by_the_time_it_starts_again(
    stage: Stage, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.trip()
    stood = world.present()
    killed_after_the_write(stage, world, monkeypatch)
    stage.calm()
    assert stage.settle(NOW + MIN) == FleetReport(reverted=1)
    assert world.present() == stood


def test_what_somebody_changed_since_is_reported_and_left_alone(stage: Stage, world: World) -> None:
    stage.trip()
    stage.settle()
    world.meddle()
    theirs, once = world.present(), world.writes
    assert stage.settle(NOW + MIN) == FleetReport(drifted=1)
    assert "somebody changed it since" in stage.action().detail
    stage.settle(NOW + 2 * MIN)
    stage.calm()
    stage.settle(NOW + 3 * MIN)
    assert (world.present(), world.writes, len(stage.actions())) == (theirs, once, 1)


def test_a_write_over_somebody_elses_change_is_a_conflict(world: World) -> None:
    seen = world.actuator.read(world.address)
    wanted = world.actuator.wanted(world.move, world.options, seen)
    before = {name: seen.value[name] for name in wanted}
    world.actuator.write(world.address, before, wanted)
    world.meddle()
    if world.actuator.read(world.address).value.items() >= before.items():
        return  # a switch of two positions: their change is what stood before
    with pytest.raises(Conflict):
        world.actuator.write(world.address, wanted, before)


def test_switched_off_it_only_plans(db: Engine, world: World) -> None:
    stage, stood = Stage(db, world, on=False), world.present()
    stage.trip()
    assert stage.settle() == FleetReport(planned=1)
    assert stage.settle(NOW + MIN) == FleetReport()
    assert (stage.action().state, stage.action().wanted != {}) == ("planned", True)
    stage.calm()
    assert stage.settle(NOW + 2 * MIN) == FleetReport(reverted=1)
    assert "nothing had been done" in stage.action().detail
    assert (world.writes, world.present()) == (0, stood)


def test_in_shadow_nothing_is_asked(stage: Stage, world: World) -> None:
    stage.trip()
    stage.breaker(enforced=False, rules_enforced=False)
    assert (stage.settle(), stage.actions(), world.writes) == (FleetReport(), [], 0)


def test_switching_off_puts_back_what_it_did(stage: Stage, world: World, db: Engine) -> None:
    stood = world.present()
    stage.trip()
    stage.settle()
    with db.begin() as connection:
        set_switch(connection, world.name, False, "ann", "enough", NOW)
    assert stage.settle(NOW + MIN) == FleetReport(reverted=1)
    assert world.present() == stood


def test_a_person_ends_it_and_the_episode_does_not_repeat_it(stage: Stage, world: World, db: Engine) -> None:
    stood = world.present()
    stage.trip()
    stage.settle()
    with db.begin() as connection:
        people.ask_end(connection, stage.action().id, "ann", "we need the capacity", NOW)
    assert stage.settle(NOW + MIN) == FleetReport(reverted=1)
    assert world.present() == stood
    stage.breaker(epoch=9)
    assert stage.settle(NOW + 2 * MIN) == FleetReport()
    stage.calm(epoch=10)
    stage.trip(epoch=11, since=NOW + 10 * MIN)
    assert stage.settle(NOW + 10 * MIN) == FleetReport(planned=1, applied=1), "a new episode is a new decision"


def test_a_pause_puts_it_back_and_its_end_applies_it_again(stage: Stage, world: World) -> None:
    stood = world.present()
    stage.trip()
    stage.settle()
    stage.breaker(paused_until=NOW + 5 * MIN, epoch=8)
    assert stage.settle(NOW + MIN) == FleetReport(reverted=1)
    assert world.present() == stood
    assert stage.settle(NOW + 6 * MIN) == FleetReport(planned=1, applied=1)


def test_out_of_reach_it_waits_and_goes_on(stage: Stage, world: World) -> None:
    stage.trip()
    world.break_()
    assert stage.settle() == FleetReport(), "what cannot be read is not planned"
    world.mend()
    assert stage.settle(NOW + MIN) == FleetReport(planned=1, applied=1)
    world.break_()
    stage.calm()
    assert stage.settle(NOW + 2 * MIN).reverted == 0
    assert stage.action().stands
    world.mend()
    assert stage.settle(NOW + 3 * MIN) == FleetReport(reverted=1)


def test_people_are_told_of_what_changed_outside(stage: Stage, world: World, db: Engine) -> None:
    stage.trip()
    stage.settle()
    with db.connect() as connection:
        (row,) = connection.execute(OutboxRow.__table__.select())
    assert (row.kind, row.key) == ("notify", f"fleet:{stage.action().id}:applied")
    assert row.payload["commands"] == list(stage.action().commands)


def test_a_pool_is_frozen_at_its_size_and_thaws_after_its_time(db: Engine) -> None:
    world = KubernetesWorld("hpa")
    stage = Stage(db, world)
    stage.trip()
    stage.settle()
    assert (stage.action().before, stage.action().wanted) == ({"max_replicas": 8}, {"max_replicas": 3})
    assert stage.action().commands == ('kubectl patch hpa tiny -n prod --type=merge -p \'{"spec": {"maxReplicas": 8}}\'',)
    stage.settle(NOW + 59 * MIN)
    assert world.present()[0]["maxReplicas"] == 3
    assert stage.settle(NOW + 60 * MIN) == FleetReport(reverted=1)
    assert world.present()[0]["maxReplicas"] == 8
    world.close()


def test_somebody_quicker_is_read_again(db: Engine) -> None:
    world = KubernetesWorld("hpa")
    world.server.conflicts = 2
    stage = Stage(db, world)
    stage.trip()
    assert stage.settle().applied == 1
    assert (world.present()[0]["maxReplicas"], world.writes) == (3, 1)
    world.close()


@pytest.mark.parametrize(
    ("address", "token", "said"),
    [("hpa/prod/none", "kube-token", "is not there"), ("hpa/prod/tiny", "other", "allow get on horizontalpodautoscalers")],
)
def test_what_cannot_be_worked_is_named(address: str, token: str, said: str) -> None:
    world = KubernetesWorld("hpa")
    with pytest.raises(TokenfuseError, match=said):
        KubernetesActuator(KubeAccess(world.server.url, token=token)).read(address)
    world.close()

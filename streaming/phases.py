"""What the next start of the job must be, decided from what lies on disk alone, so that a kill at any point loses no step.

An epoch is done with when it is sealed and its folder holds no visible segment any more (consumed segments go to the archive).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.errors import Conflict
from eventlog import manifest
from streaming import checkpoints
from streaming.feed import feed_folder
from streaming.flink_path import flink_path
from streaming.plan import Plan
from streaming.settings import StreamSettings
from streaming.warmup import warmup_folder

TOPICS: tuple[str, ...] = ("usage", "engine")
WARM = "warmup-"


@dataclass(frozen=True, slots=True)
class Phase:
    """One start of the job. ``drain`` marks an old plan that runs only until its sealed epochs are done with."""

    plan: Plan
    epochs: Mapping[str, str]
    restore: str
    new_sources: bool = False
    drain: bool = False

    @property
    def warms_up(self) -> bool:
        return any(epoch.startswith(WARM) for epoch in self.epochs.values())

    def same_place(self, other: Phase) -> bool:
        """Whether a running job of this phase may go on as ``other``."""
        return self.plan.fingerprint == other.plan.fingerprint and dict(self.epochs) == dict(other.epochs)


def read_folder(settings: StreamSettings, topic: str, epoch: str) -> Path:
    """Where the job reads a topic's epoch; the folder's name is the epoch's."""
    if epoch.startswith(WARM):
        return warmup_folder(settings.data_dir, topic, epoch)
    return feed_folder(settings.data_dir, epoch) if topic == "engine" else settings.log / topic / epoch


def next_phase(settings: StreamSettings, plan: Plan) -> Phase:
    """Recover, roll to a new epoch, drain an old plan, warm up a new one, or start for the first time."""
    found = checkpoints.newest(settings.checkpoints)
    if found is None:
        return Phase(plan, {topic: _oldest_epoch(settings, topic) for topic in TOPICS}, "")
    run, restore = found.run, flink_path(found.path)
    done = {topic: _is_done(settings, topic, run.epochs[topic]) for topic in TOPICS}
    warming = any(epoch.startswith(WARM) for epoch in run.epochs.values())
    moves = all(done.values()) if warming else True
    advanced = {topic: _after(settings, topic, run.epochs[topic]) if moves else run.epochs[topic] for topic in TOPICS}
    if run.plan.fingerprint == plan.fingerprint:
        return Phase(plan, advanced, restore, new_sources=advanced != dict(run.epochs))
    if all(done.values()):
        _require_later(advanced, run.epochs)
        return Phase(plan, {topic: WARM + epoch for topic, epoch in advanced.items()}, "")
    return Phase(run.plan, run.epochs, restore, drain=True)


def _require_later(advanced: Mapping[str, str], epochs: Mapping[str, str]) -> None:
    for topic, epoch in epochs.items():
        if advanced[topic] == epoch:
            raise Conflict(f"epoch {epoch} of {topic} is sealed and nothing follows it", hint="start the log's writer first")


def _oldest_epoch(settings: StreamSettings, topic: str) -> str:
    manifest.current_epoch(settings.log, topic)
    return manifest.epochs(settings.log, topic)[0]


def _is_done(settings: StreamSettings, topic: str, epoch: str) -> bool:
    if epoch.startswith(WARM):
        return not any(read_folder(settings, topic, epoch).glob("*.csv"))
    return manifest.is_sealed(settings.log, topic, epoch) and not manifest.segments(settings.log, topic, epoch)


def _after(settings: StreamSettings, topic: str, epoch: str) -> str:
    """The first epoch at or after ``epoch`` that is not done with."""
    if not _is_done(settings, topic, epoch):
        return epoch
    if epoch.startswith(WARM):
        return epoch.removeprefix(WARM)
    later = [name for name in manifest.epochs(settings.log, topic) if int(name) > int(epoch)]
    return later[0] if later else epoch

"""Versions of the workload classes: trained, activated from an instant to come, renamed, and given one class more in a burst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, Engine

from control.workload_training import LEAST_STABLE, Trained, said, train
from core.errors import BadInput, Conflict, NotFound, Refused
from core.usage import MAX_NAME
from core.windows import Window
from core.workload import FIRST, NEW, WorkloadClass
from core.workload_columns import Ints
from core.workload_drift import LEAST_REQUESTS, LOOK_BACK, NewClass, new_class, why_better
from core.workload_match import matched, with_new_class
from eventlog.workload_sql import sample_shapes
from models.audit_repo import append_audit
from models.database import transaction
from models.workload_repo import (
    StoredModel,
    class_names,
    lock_models,
    put_class_name,
    put_model,
    scored_minutes,
    set_valid_from,
    stored_models,
)

LEAD = timedelta(seconds=30)
"""Every process that scores knows an activated version within 5 seconds; it must not hold before."""
BURST_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class Made:
    """What a training gave: the version (not yet stored in a dry run), and why it should take the place of the one in force
    ('' when it should not)."""

    stored: StoredModel
    better: str


def latest(stored: Sequence[StoredModel]) -> StoredModel | None:
    """Of the activated versions the one with the latest ``valid_from``."""
    return max((one for one in stored if one.valid_from), key=lambda one: one.valid_from or one.created_at, default=None)


def highest_number(stored: Sequence[StoredModel]) -> int:
    """The highest class number ever given: none comes back."""
    return max((one.number for version in stored for one in version.classes), default=FIRST - 1)


def train_version(engine: Engine, data_dir: Path, window: Window, author: str, now: datetime, *, keep: bool = True) -> Made:
    """Train on the archive and store the version without activating it. Raises Refused with too few requests."""
    trained, found = train(data_dir, window)
    with transaction(engine) as connection:
        number = lock_models(connection) + 1
        made = _version(number, trained, found, stored_models(connection), author, now, window)
        if keep:
            put_model(connection, made.stored)
            detail = {"requests": trained.requests, "classes": len(trained.groups), "better": made.better}
            append_audit(connection, now, author, "classes.train", f"workload-model:{number}", detail)
    return made


def _version(
    number: int, trained: Trained, found: Ints, stored: Sequence[StoredModel], author: str, now: datetime, window: Window
) -> Made:
    before = latest(stored)
    old = before.classes if before else ()
    classes = matched(old, trained.groups, trained.weights, highest_number(stored))
    unstable = "" if trained.stable else f"not stable: {trained.stability[len(trained.groups)]:.2f}, {LEAST_STABLE} is needed"
    better = "" if unstable else why_better(old, classes, trained.weights, found)
    reason = better or unstable or "no better than the classes in force"
    made = StoredModel(number, now, author, "trained", reason, trained.weights, classes, trained=said(trained, window))
    return Made(made, better)


def activate(connection: Connection, version: int, at: datetime, author: str, now: datetime) -> None:
    """Let a version hold for requests that finish from ``at`` on.

    Raises NotFound, Conflict when it was activated before, BadInput when ``at`` is too soon or before another's."""
    lock_models(connection)
    stored = stored_models(connection)
    one = next((found for found in stored if found.version == version), None)
    if one is None:
        raise NotFound(f"there is no version {version} of the workload classes", hint="see tokenfuse classes list")
    if one.valid_from is not None:
        raise Conflict(f"version {version} is activated from {one.valid_from.isoformat()}", hint="train another version")
    if at < now + LEAD:
        hint = f"choose {(now + LEAD).isoformat(timespec='seconds')} or later: every process must know it before"
        raise BadInput("is too soon", field="at", value=at.isoformat(), hint=hint)
    last = latest(stored)
    if last is not None and last.valid_from is not None and at <= last.valid_from:
        hint = f"version {last.version} holds from {last.valid_from.isoformat()}; choose a later instant"
        raise BadInput("is not after the last activation", field="at", value=at.isoformat(), hint=hint)
    set_valid_from(connection, version, at)
    append_audit(connection, now, author, "classes.activate", f"workload-model:{version}", {"valid_from": at.isoformat()})


def rename(connection: Connection, number: int, name: str, author: str, now: datetime) -> None:
    """Give a class a name. Raises NotFound for a number no version has, BadInput for a name that is empty, long or taken."""
    name = name.strip()
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise BadInput(f"must be 1 to {MAX_NAME} printable characters", field="name", value=name[:60])
    stored = stored_models(connection)
    if number not in {one.number for version in stored for one in version.classes}:
        raise NotFound(f"there is no workload class {number}", hint="see tokenfuse classes list")
    if name in {held for other, held in names_of(stored, class_names(connection)).items() if other != number}:
        raise BadInput("is the name of another class", field="name", value=name, hint="choose another")
    put_class_name(connection, number, name, author, now)
    append_audit(connection, now, author, "classes.rename", f"workload-class:{number}", {"name": name})


def names_of(stored: Sequence[StoredModel], said: dict[int, str]) -> dict[int, str]:
    """The name of every class there ever was: a person's, else that of its newest version."""
    made = {one.number: one.name for version in sorted(stored, key=lambda v: v.version) for one in version.classes}
    return {NEW: "new: unlike every class", **made, **said}


def add_new_classes(engine: Engine, data_dir: Path, now: datetime) -> list[tuple[NewClass, StoredModel]]:
    """Where a deployment has a burst of requests unlike every class, a version with one class more, made of them; it holds after
    ``LEAD``. Minutes before the newest version began do not count: it may know those requests already."""
    with transaction(engine) as connection:
        lock_models(connection)
        last = latest(stored_models(connection))
        if last is None or last.valid_from is None or last.valid_from > now:
            return []
        since = max(now - LOOK_BACK, last.valid_from)
        series = scored_minutes(connection, since, now)
        bursts = [found for minutes in series.values() if (found := new_class(minutes, now)) is not None]
        if not bursts:
            return []
        burst = max(bursts, key=lambda one: one.requests)
        shapes = sample_shapes(data_dir, Window(burst.since, now), BURST_ROWS, NEW)
        if len(shapes) < LEAST_REQUESTS:
            return []
        return [(burst, _with_burst(connection, last, burst, shapes, now))]


def _with_burst(connection: Connection, last: StoredModel, burst: NewClass, shapes: Ints, now: datetime) -> StoredModel:
    stored = stored_models(connection)
    classes: tuple[WorkloadClass, ...] = with_new_class(last.model(now), shapes, highest_number(stored))
    reason = f"{burst.requests} of {burst.scored} requests since {burst.since.isoformat()} were unlike every class"
    made = replace(
        last, version=stored[-1].version + 1, valid_from=now + LEAD, created_at=now, author="tokenfuse", kind="new_class",
        reason=reason, classes=classes,
    )  # fmt: skip
    put_model(connection, made)
    detail = {"class": classes[-1].number, "name": classes[-1].name, "reason": reason}
    append_audit(connection, now, "tokenfuse", "classes.new", f"workload-model:{made.version}", detail)
    return made


@dataclass(frozen=True, slots=True)
class Schedule:
    """Train every ``every`` on the archive's last ``look_back``; a better and stable version holds after ``LEAD``."""

    every: timedelta = timedelta(days=7)
    look_back: timedelta = timedelta(days=7)


def train_due(engine: Engine, data_dir: Path, schedule: Schedule, now: datetime) -> Made | None:
    """One scheduled training when it is due; None when it is not, or when the archive holds too little."""
    with transaction(engine) as connection:
        trained = [one.created_at for one in stored_models(connection) if one.kind == "trained"]
    if trained and now - max(trained) < schedule.every:
        return None
    try:
        made = train_version(engine, data_dir, Window(now - schedule.look_back, now), "tokenfuse", now)
    except Refused:
        return None
    if made.better:
        with transaction(engine) as connection:
            activate(connection, made.stored.version, now + 2 * LEAD, "tokenfuse", now)
    return made

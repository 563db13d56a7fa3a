"""Versions of the workload classes in the database: trained, activated for an instant, renamed, and a burst's own class."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert
from workload_samples import CHAT, CONTRACT, START, archive, mixed

from bench.year import coarser
from control.workload_versions import LEAD, Schedule, activate, add_new_classes, names_of, rename, train_due, train_version
from core.errors import BadInput, Conflict, NotFound
from core.windows import Window
from eventlog.archive_sql import usage_minutes
from ingest.usage.classes import ClassScorer
from ingest.usage.rows import prepare
from models.partitions import ensure_months
from models.tables import UsageMinuteRow
from models.tables_usage import USAGE_KEYS, USAGE_MEASURES
from models.workload_repo import StoredModels, class_names, newer_models, stored_models

pytestmark = pytest.mark.db
HOUR = Window(START, START + timedelta(hours=1))
NOW = HOUR.end


def test_a_version_holds_from_the_instant_it_is_activated_for(db: Engine, tmp_path: Path) -> None:
    place = archive(tmp_path, mixed(400))
    assert train_version(db, place, HOUR, "ann", NOW, keep=False).better == "the first classes"
    made = train_version(db, place, HOUR, "ann", NOW)
    assert [one.number for one in made.stored.classes] == [2, 3, 4]
    with db.begin() as connection:
        assert newer_models(connection, "0:") is None
        with pytest.raises(NotFound):
            activate(connection, 9, NOW + LEAD, "ann", NOW)
        with pytest.raises(BadInput, match="too soon"):
            activate(connection, 1, NOW, "ann", NOW)
        activate(connection, 1, NOW + LEAD, "ann", NOW)
        with pytest.raises(Conflict):
            activate(connection, 1, NOW + 2 * LEAD, "ann", NOW)
        rename(connection, 2, "the chat", "ann", NOW)
        with pytest.raises(BadInput, match="another class"):
            rename(connection, 3, "the chat", "ann", NOW)
        assert names_of(stored_models(connection), class_names(connection))[2] == "the chat"
    assert train_due(db, place, Schedule(), NOW + timedelta(days=6)) is None
    found = StoredModels(db)("")
    assert found is not None
    assert [(model.version, model.valid_from) for model in found.models] == [(1, NOW + LEAD)]


def test_a_burst_unlike_every_class_gets_one_of_its_own(db: Engine, tmp_path: Path) -> None:
    made = train_version(db, archive(tmp_path / "first", mixed(400)), HOUR, "ann", NOW)
    with db.begin() as connection:
        activate(connection, made.stored.version, NOW + LEAD, "ann", NOW)
    later = NOW + timedelta(minutes=10)
    sent = mixed(60, (CONTRACT, CHAT), later)
    lines = ClassScorer(StoredModels(db), lambda: 0.0).lines([prepare(one) for one in sent])
    place = archive(tmp_path / "second", sent, lines)
    names = (*USAGE_KEYS, *USAGE_MEASURES)
    rows = usage_minutes(place, Window(later, later + timedelta(minutes=2)))
    with db.begin() as connection:
        ensure_months(connection, [later])
        values = [{"minute": r.minute, **dict(zip(names, (*r.keys, *r.measures), strict=True))} for r in rows]
        connection.execute(insert(UsageMinuteRow), values)
        coarser(connection, "usage")
    at = later + timedelta(minutes=1)
    ((burst, new),) = add_new_classes(db, place, at)
    assert (burst.requests, burst.scored) == (30, 60)
    assert (new.kind, new.classes[-1].number, new.valid_from) == ("new_class", 5, at + LEAD)
    assert add_new_classes(db, place, at + timedelta(seconds=10)) == []
    scored = ClassScorer(StoredModels(db), lambda: 0.0).lines([prepare(one) for one in mixed(4, (CONTRACT,), at + LEAD)])
    assert {line.split(",ok,exact,")[1].split(",")[0] for line in scored} == {"5"}

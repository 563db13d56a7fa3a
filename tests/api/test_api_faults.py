"""When something is away: the answer says so and when to come again, and shows neither traceback nor secret."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from api_client import Api, Clock, TokenMaker
from sqlalchemy import Engine
from test_api_ingest import record

from api.app import create_app
from api.errors import STATUS, status_of
from api.settings import ApiSettings
from core import errors
from core.ports import Ack, EventLog, LogBatch, Topic
from eventlog.spool import DiskSpace, SpoolLog, SpoolSettings
from models.database import open_engine

pytestmark = pytest.mark.db


@pytest.fixture
def serve(settings: ApiSettings, db: Engine, clock: Clock) -> Iterator[Callable[..., Api]]:
    """``serve(log=…, engine=…, settings=…)`` -> a running API."""
    running: list[Api] = []

    def start(log: EventLog, engine: Engine | None = None, changed: ApiSettings | None = None) -> Api:
        running.append(Api(create_app(changed or settings, engine or db, log, now=clock)))
        return running[-1]

    yield start
    for api in running:
        api.close()


def test_a_disk_nearly_full_is_507_and_nothing_was_taken(
    serve: Callable[..., Api], token: TokenMaker, tmp_path: Path, clock: Clock
) -> None:
    full = SpoolLog(tmp_path / "log", SpoolSettings(), clock, space=lambda _: DiskSpace(10, 1000))
    answer = serve(full).post("/v1/usage", token("ingest"), [record(1)])
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")
    assert int(answer.headers["retry-after"]) > 0
    full.flush()
    assert list(full.read("usage")) == []
    full.close()


class Broken:
    """A log with a bug, whose message holds a secret."""

    def append(self, topic: Topic, batch: LogBatch) -> Ack:
        raise RuntimeError("password=hunter2")

    def read(self, topic: Topic, after: str | None = None, limit: int = 0) -> Iterator[Any]:
        return iter(())

    def close(self) -> None: ...


def test_an_unexpected_fault_is_a_plain_500_and_logged(
    serve: Callable[..., Api], token: TokenMaker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="tokenfuse.api"):
        answer = serve(Broken()).post("/v1/usage", token("ingest"), [record(1)])
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert "hunter2" not in answer.text
    assert "Traceback" not in answer.text
    assert "unexpected fault: POST /v1/usage" in caplog.text


def test_without_a_database_everything_but_health_is_503(serve: Callable[..., Api], log: EventLog) -> None:
    nowhere = open_engine("postgresql://nobody@127.0.0.1:1/none")
    api = serve(log, engine=nowhere)
    assert api.get("/healthz").status_code == 200
    ready = api.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "not_ready")
    answer = api.get("/v1/usage", "tf_a1b2c3_" + "5" * 64)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert "127.0.0.1" not in answer.text
    nowhere.dispose()


def test_more_batches_at_once_than_there_are_slots_are_429(api: Api, token: TokenMaker) -> None:
    parts = api.app.state.parts
    for _ in range(parts.settings.max_ingest_in_flight):
        parts.ingest_slots.acquire()
    answer = api.post("/v1/usage", token("ingest"), [record(1)])
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    for _ in range(parts.settings.max_ingest_in_flight):
        parts.ingest_slots.release()
    assert api.post("/v1/usage", token("ingest"), [record(1)]).status_code == 202


def test_a_route_or_method_that_is_not_there_has_the_same_error_body(api: Api, token: TokenMaker) -> None:
    for method, path, status in (("GET", "/v2/usage", 404), ("DELETE", "/v1/usage", 405)):
        answer = api.call(method, path, token("admin"))
        assert answer.status_code == status
        assert set(answer.json()["error"]) >= {"code", "message", "hint"}


def test_every_error_of_the_tree_has_a_status() -> None:
    def below(kind: type[errors.TokenfuseError]) -> Iterator[type[errors.TokenfuseError]]:
        yield kind
        for inner in kind.__subclasses__():
            yield from below(inner)

    for kind in below(errors.TokenfuseError):
        assert status_of(kind("x")) >= 400
    order = [kind for kind, _ in STATUS]
    for place, kind in enumerate(order):
        assert not any(issubclass(later, kind) for later in order[place + 1 :]), kind

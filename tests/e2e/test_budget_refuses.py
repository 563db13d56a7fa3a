"""A budget crossed by one request: the guard refuses the next one, and only a person re-closes it. All processes are real."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from bench.stack import POOL, Stack, free_port, give_history, record, running
from tokenfuse_guard.asgi import GuardMiddleware
from tokenfuse_guard.settings import GuardSettings
from tokenfuse_guard.tenant_header import HEADER, sign_tenant

pytestmark = [pytest.mark.e2e, pytest.mark.flink]

TENANT_KEY = b"the gateway's key of 32 bytes ..."


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running(settings={"TOKENFUSE_POLICY_TTL_MINUTES": "1", "TOKENFUSE_GUARD_ON_EXPIRY": "open"}) as live:
        give_history(live)
        yield live


class Guarded:
    """A small service behind the guard, on a real port. ``/v1/completions`` answers after ``delay_s`` of the body."""

    def __init__(self, stack: Stack, name: str, on_expiry: str | None = None) -> None:
        token, key = stack.guard(name)
        settings = GuardSettings(
            url=stack.api_url, token=token, name=name, keys=((key["key_id"], key["secret"].encode()),),
            state_dir=str(stack.folder), deployment=str(POOL), tenant_keys=(("g", TENANT_KEY),), wait_s=5.0, report_every_s=1.0,
            on_expiry=on_expiry,
        )  # fmt: skip
        app = FastAPI()

        @app.post("/v1/completions")
        async def complete(body: dict[str, Any]) -> dict[str, str]:
            await asyncio.sleep(body.get("delay_s", 0))
            return {"text": "ok"}

        self.middleware = GuardMiddleware(app, settings)
        port = free_port()
        self._server = uvicorn.Server(
            uvicorn.Config(self.middleware, host="127.0.0.1", port=port, log_config=None, lifespan="off")
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{port}/v1/completions"
        wait_for("the guarded service", lambda: _up(self.url))

    def ask(self, team: str, delay_s: float = 0.0) -> httpx.Response:
        vouched = sign_tenant(f"bench/{team}", "P1", TENANT_KEY, time.time())
        return httpx.post(self.url, json={"delay_s": delay_s}, headers={HEADER: vouched}, timeout=30)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self.middleware.stop()


def _up(url: str) -> bool:
    try:
        return httpx.post(url, json={}).status_code == 200
    except httpx.HTTPError:
        return False


def wait_for(what: str, done: Callable[[], bool], timeout_s: float = 90) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def guarded(stack: Stack) -> Iterator[Guarded]:
    service = Guarded(stack, "e2e-guard")
    yield service
    service.close()


def arm(stack: Stack, team: str, cap: str) -> int:
    """A capped budget whose breaker is enforced; the breaker's id."""
    scope = f"tenant:bench/{team}"
    stack.api.post("/v1/budgets", json={"scope": scope, "period": "day", "amount": cap, "cap": cap}).raise_for_status()
    (breaker,) = (b for b in stack.api.get("/v1/breakers").json()["breakers"] if b["scope"] == scope)
    body = {"reason": "test", "shadow_report_read": True}
    stack.api.post(f"/v1/breakers/{breaker['id']}/enforce", json=body).raise_for_status()
    return int(breaker["id"])


def cross(stack: Stack, team: str) -> None:
    """One request dearer than any cap used here."""
    body = [record(f"{team}-{time.time_ns()}", datetime.now(UTC), team=team, prompt=80_000, output=20_000)]
    answer = stack.api.post("/v1/usage", json=body).raise_for_status().json()
    assert answer["accepted"] == 1


def test_the_next_request_is_refused_and_the_one_in_flight_finishes(stack: Stack, guarded: Guarded) -> None:
    arm(stack, "crossing", "0.001")
    assert guarded.ask("crossing").status_code == 200
    slow: list[httpx.Response] = []
    in_flight = threading.Thread(target=lambda: slow.append(guarded.ask("crossing", delay_s=12)))
    in_flight.start()
    cross(stack, "crossing")
    wait_for("refusal", lambda: guarded.ask("crossing").status_code == 503)
    refused = guarded.ask("crossing")
    assert refused.headers["x-should-retry"] == "false"
    assert int(refused.headers["retry-after"]) > 0
    assert set(refused.json()["error"]) == {"message", "type", "param", "code"}
    assert guarded.ask("somebody-else").status_code == 200
    in_flight.join()
    assert slow[0].status_code == 200


def test_only_a_person_with_a_reason_and_an_allowance_re_closes_it(stack: Stack, guarded: Guarded) -> None:
    breaker = arm(stack, "reclose", "0.001")
    cross(stack, "reclose")
    wait_for("refusal", lambda: guarded.ask("reclose").status_code == 503)
    refused = stack.api.post(f"/v1/breakers/{breaker}/reset", json={"reason": "please"})
    assert refused.status_code == 422
    assert "allowance" in refused.text
    body = {"reason": "month end batch", "allowance": {"new_cap": "100"}}
    stack.api.post(f"/v1/breakers/{breaker}/reset", json=body).raise_for_status()
    wait_for("traffic", lambda: guarded.ask("reclose").status_code == 200)
    actions = [r["action"] for r in stack.api.get("/v1/audit").json()["records"] if r["subject"].endswith("tenant:bench/reclose")
               or str(breaker) in r["subject"]]  # fmt: skip
    assert any("reset" in action for action in actions), actions
    assert stack.api.get("/v1/audit/verify").json()["intact"] is True


def test_a_breaker_in_shadow_decides_and_refuses_nothing(stack: Stack, guarded: Guarded) -> None:
    scope = "tenant:bench/shadow"
    stack.api.post("/v1/budgets", json={"scope": scope, "period": "day", "amount": "0.001", "cap": "0.001"}).raise_for_status()
    cross(stack, "shadow")

    def opened() -> bool:
        return any(b["scope"] == scope and b["phase"] == "open" for b in stack.api.get("/v1/breakers").json()["breakers"])

    wait_for("decision in shadow", opened)
    assert guarded.ask("shadow").status_code == 200


def test_the_same_crossing_twice_trips_once(stack: Stack) -> None:
    breaker = arm(stack, "once", "0.001")
    cross(stack, "once")
    wait_for("trip", lambda: stack.api.get(f"/v1/breakers/{breaker}/events").json()["events"] != [])
    cross(stack, "once")
    time.sleep(5)
    opened = [e for e in stack.api.get(f"/v1/breakers/{breaker}/events").json()["events"] if e["to_phase"] == "open"]
    assert len(opened) == 1


@pytest.fixture
def closed(stack: Stack) -> Iterator[Guarded]:
    """A guard whose own settings say: no policy, no traffic."""
    service = Guarded(stack, "e2e-guard-closed", on_expiry="closed")
    yield service
    service.close()


def test_with_the_api_down_guards_obey_until_expiry_then_fail_as_told_and_say_so(
    stack: Stack, guarded: Guarded, closed: Guarded
) -> None:
    arm(stack, "api-down", "0.001")
    cross(stack, "api-down")
    wait_for("refusal by both", lambda: [guard.ask("api-down").status_code for guard in (guarded, closed)] == [503, 503])
    assert [guard.ask("somebody-else").status_code for guard in (guarded, closed)] == [200, 200]
    with api_down(stack):
        assert guarded.ask("api-down").status_code == closed.ask("api-down").status_code == 503
        wait_for("expiry", lambda: guarded.ask("api-down").status_code == 200, timeout_s=120)
        assert guarded.ask("somebody-else").headers["x-tokenfuse-policy"].startswith("policy_expired; open; version=")

        wait_for("expiry", lambda: closed.ask("somebody-else").status_code == 503, timeout_s=120)
        refused = closed.ask("somebody-else")
        assert refused.json()["error"]["code"] == "policy_expired"
        assert "no cost policy is in force" in refused.json()["error"]["message"]
        assert refused.headers["x-should-retry"] == "false"
    wait_for("a policy again", lambda: closed.ask("somebody-else").status_code == 200)
    assert closed.ask("api-down").status_code == 503
    wait_for("the report of what it refused meanwhile", lambda: "e2e-guard-closed" in reporters_of_refusals(stack))


def reporters_of_refusals(stack: Stack) -> set[str]:
    records = stack.api.get("/v1/audit").json()["records"]
    return {record["actor"] for record in records if record["action"] == "guard.report" and record["detail"].get("refused")}


@contextmanager
def api_down(stack: Stack) -> Iterator[None]:
    """Kill the API and keep the supervisor from starting it again."""
    os.kill(stack.process.pid, signal.SIGSTOP)
    try:
        os.killpg(json.loads((stack.data_dir / "run" / "children.json").read_text())["api"]["pid"], signal.SIGKILL)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{stack.api_url}/healthz", timeout=1)
        yield
    finally:
        os.kill(stack.process.pid, signal.SIGCONT)

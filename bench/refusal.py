"""From an accepted event to the guard's refusal: every trial has its own tenant and armed budget, all there from the start."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import text

from bench.figures import Figure, Row, percentile
from bench.machine import Cores, told
from bench.stack import POOL, Stack, give_history, record, running
from control.running_cost import spend
from core.windows import period_window
from models.database import transaction
from tokenfuse_guard.entries import RequestFacts
from tokenfuse_guard.fetch import Fetcher
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.settings import GuardSettings

TRIALS, QUICK_TRIALS = 100, 8
TRAFFIC_TRIALS, QUICK_TRAFFIC_TRIALS = 10, 2
CAP = Decimal("0.0005")
"""What the pool's A10G costs in 1.8 s: open work is never priced above the capacity elapsed in its quarter hour."""
CROSSING, PASSING = (400_000, 100_000), (4_000, 1_000)
"""Prompt and output tokens of the request that crosses the cap, and of those that go on meanwhile."""
TRAFFIC_PER_S = 10
GIVE_UP_S = 60.0
STAGES = ("accept → segment", "segment → delta applied", "delta → breaker", "breaker → policy", "policy → guard")
STAMPS = text("""
    SELECT (SELECT min(applied_at) FROM applied_file WHERE kind = 'usage' AND applied_at >= :accepted) AS applied,
           (SELECT min(e.at) FROM breaker_event e JOIN breaker b ON b.id = e.breaker_id
            WHERE b.scope = :scope AND e.to_phase = 'open') AS opened,
           (SELECT issued_at FROM policy_version WHERE version = :version) AS issued
""")


@dataclass(frozen=True, slots=True)
class Trial:
    """``refused_s`` from the 202; ``stages_s`` in the order of STAGES, None where a stamp was missed; what passed meanwhile."""

    refused_s: float
    stages_s: tuple[float | None, ...]
    passed: int = 0


def measure(*, quick: bool) -> Row:
    trials, with_traffic = (QUICK_TRIALS, QUICK_TRAFFIC_TRIALS) if quick else (TRIALS, TRAFFIC_TRIALS)
    teams = [f"trial{number}" for number in range(trials + with_traffic)]
    began = time.monotonic()
    with running(settings={"TOKENFUSE_BLAST_LIMIT_PERCENT": "100"}) as stack:
        give_history(stack)
        for team in teams:
            arm(stack, team)
        guard, fetcher = live_guard(stack)
        one(stack, guard, arm_and_name(stack, "warm-up"))
        start_up_s = time.monotonic() - began
        cores = Cores(stack.process.pid, stack.data_dir)
        found = [one(stack, guard, team) for team in teams[:trials]]
        shares = cores.shares()
        busy = [one(stack, guard, team, traffic=True) for team in teams[trials:]]
        over = [overshoot(stack, team, trial.passed) for team, trial in zip(teams[trials:], busy, strict=True)]
        fetcher.stop()
    return _row(found, busy, over, shares, start_up_s)


def _row(
    found: Sequence[Trial], busy: Sequence[Trial], over: Sequence[Decimal], shares: dict[str, float], start_up_s: float
) -> Row:
    refused = [trial.refused_s for trial in found]
    return Row(
        "refusal",
        "event accepted → guard refuses (tier 3 crossed by it)",
        f"{len(found)} trials one after the other, {len(found) + len(busy)} armed budgets, a guard that long-polls; the clock "
        f"runs from the HTTP 202; {len(busy)} more trials with {TRAFFIC_PER_S} requests a second going on",
        (
            Figure("p50", percentile(refused, 0.5), "s", "less"),
            Figure("p99", percentile(refused, 0.99), "s", "less", floor=8, goal=3),
            Figure("slowest", max(refused), "s", "less"),
            Figure("p99 under traffic", percentile([t.refused_s for t in busy], 0.99), "s", "less"),
            Figure("requests passed after the crossing one, most", max(t.passed for t in busy), "requests", "less"),
            Figure("spent by them, median", percentile(map(float, over), 0.5), f"USD (cap {CAP})", "less"),
        ),
        f"medians: {_stages(found)}; {told(shares)}",
        start_up_s,
        {"refused_s": refused, "under_traffic_s": [t.refused_s for t in busy], "overshoot_usd": [str(o) for o in over]},
    )


def _stages(found: Sequence[Trial]) -> str:
    parts = []
    for number, name in enumerate(STAGES):
        seen = [s for trial in found if (s := trial.stages_s[number]) is not None]
        parts.append(f"{name} {percentile(seen, 0.5):.2f} s" if seen else f"{name} not seen")
    return ", ".join(parts)


def arm(stack: Stack, team: str) -> None:
    """A capped day budget whose breaker is enforced."""
    scope = f"tenant:bench/{team}"
    body: dict[str, Any] = {"scope": scope, "period": "day", "amount": str(CAP), "cap": str(CAP)}
    stack.api.post("/v1/budgets", json=body).raise_for_status()
    with transaction(stack.engine) as connection:
        found = connection.execute(text("SELECT id FROM breaker WHERE scope = :scope"), {"scope": scope}).scalar_one()
    reason = {"reason": "bench", "shadow_report_read": True}
    stack.api.post(f"/v1/breakers/{found}/enforce", json=reason).raise_for_status()


def arm_and_name(stack: Stack, team: str) -> str:
    arm(stack, team)
    return team


def live_guard(stack: Stack) -> tuple[Guard, Fetcher]:
    token, key = stack.guard("bench-guard")
    settings = GuardSettings(
        url=stack.api_url, token=token, name="bench-guard", keys=((key["key_id"], key["secret"].encode()),), deployment=str(POOL)
    )
    guard = Guard(settings)
    fetcher = Fetcher(guard)
    fetcher.start()
    _until("the guard's first policy", lambda: guard.policy is not None)
    return guard, fetcher


def refuses(guard: Guard, team: str) -> bool:
    facts = RequestFacts(model=POOL.model_id, deployment=str(POOL), tenant=f"bench/{team}//", service_tier="P1")
    return guard.decide(guard.match(facts), facts)[0].refusal is not None


def one(stack: Stack, guard: Guard, team: str, *, traffic: bool = False) -> Trial:
    """Send one request that crosses the cap and wait for the guard's refusal of that tenant."""
    if refuses(guard, team):
        raise AssertionError(f"{team} is refused before it crossed")
    _post(stack, team, *CROSSING)
    accepted = time.time()
    segment: float | None = None
    passed, next_s = 0, accepted
    while not refuses(guard, team):
        now = time.time()
        if now > accepted + GIVE_UP_S:
            raise AssertionError(f"{team} is not refused within {GIVE_UP_S:.0f} s; logs in {stack.data_dir}/run")
        if segment is None:
            segment = _first_segment(stack.data_dir / "log/usage", accepted)
        if traffic and now >= next_s:
            next_s = now + 1 / TRAFFIC_PER_S
            _post(stack, team, *PASSING)
            passed += 1
        time.sleep(0.005)
    refused = time.time()
    assert guard.policy is not None
    stages = _stage_times(stack, team, accepted, segment, guard.policy.version, refused)
    return Trial(refused - accepted, stages, passed)


def _post(stack: Stack, team: str, prompt: int, output: int) -> None:
    body = [record(f"{team}-{time.time_ns()}", datetime.now(UTC), team=team, prompt=prompt, output=output)]
    answer = stack.api.post("/v1/usage", json=body).raise_for_status().json()
    if answer["accepted"] != 1:
        raise AssertionError(f"not accepted: {answer}")


def _first_segment(log: Path, accepted: float) -> float | None:
    """When the oldest segment renamed after ``accepted`` became visible (its change time)."""
    found = []
    for epoch in log.glob("[0-9]*"):
        with os.scandir(epoch) as entries:
            found += [entry.stat().st_ctime for entry in entries if entry.name.endswith(".csv")]
    return min((at for at in found if at >= accepted - 0.3), default=None)


def _stage_times(
    stack: Stack, team: str, accepted: float, segment: float | None, version: int, refused: float
) -> tuple[float | None, ...]:
    values = {"accepted": datetime.fromtimestamp(accepted, UTC), "scope": f"tenant:bench/{team}", "version": version}
    with stack.engine.connect() as connection:
        row = connection.execute(STAMPS, values).one()
    stamps = [accepted, segment, *(at.timestamp() if at is not None else None for at in row), refused]
    return tuple(None if a is None or b is None else b - a for a, b in pairwise(stamps))


def overshoot(stack: Stack, team: str, passed: int) -> Decimal:
    """Money spent by the requests that passed after the crossing one: their part of the tenant's spend, by tokens."""
    counted = text("SELECT coalesce(sum(requests), 0) FROM usage_day WHERE org = 'bench' AND team = :team")
    stack.wait("all of its usage", lambda c: int(c.execute(counted, {"team": team}).scalar_one()) == passed + 1)
    now = datetime.now(UTC)
    with transaction(stack.engine) as connection:
        found = spend(connection, f"tenant:bench/{team}", period_window("day", now, "UTC"), "usage", now)
    if found.amount is None:
        raise AssertionError(f"the spend of {team} is not known: {found.reason}")
    small, large = sum(PASSING), sum(CROSSING)
    return found.amount.amount * (passed * small) / (passed * small + large)


def _until(what: str, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while not done():
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {GIVE_UP_S:.0f} s")
        time.sleep(0.05)

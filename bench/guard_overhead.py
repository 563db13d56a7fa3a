"""What the guard adds to a request, in microseconds, with 10,000 tenants in the policy (goal: 20 µs p99, body parse apart).

Run: ``python -m bench.guard_overhead [--requests N] [--tenants N]``; prints JSON. Two places are timed: the ASGI middleware
around an app that answers at once (``added`` = guarded − the bare app's median), and the decision inside the LiteLLM hook
(identity, match, decide, count) for callers of 1,000 end users, with and without identity rules. "under cap" has a prompt cap in
force on every request and a 4 kB body under it. Times are the thread's own and the calmest of ten blocks
is shown, so that a busy machine disturbs them less. A warm-up comes first.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from tokenfuse_guard.asgi import GuardMiddleware, Message, Receive, Scope, Send
from tokenfuse_guard.call_facts import charge_of
from tokenfuse_guard.entries import RequestFacts
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.identity_rules import IdentityRules
from tokenfuse_guard.policy import Policy
from tokenfuse_guard.prompt import bound
from tokenfuse_guard.settings import GuardSettings
from tokenfuse_guard.tenant_header import HEADER, sign_tenant

KEY, BLOCKS, USERS, RULES = b"k" * 32, 10, count(), 100
SETTINGS = GuardSettings(deployment="eu/prod/tiny", tenant_keys=(("k1", KEY),))
BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "word " * 800}]}).encode()


ATTACHED: dict[str, Any] = {
    "metadata": {"user_api_key_hash": "a" * 64, "user_api_key_auth_metadata": {"owner": "search"}, "tags": ["env:prod"]},
    "proxy_server_request": {"headers": {"x-team": "search"}},
}
"""What LiteLLM attaches to a call."""


class Key:
    """A key's owner as LiteLLM hands it over."""

    organization_alias, team_alias, project_alias, user_id = "org7", "team42", "chat", "ann"
    api_key, key_alias, metadata = "a" * 64, "rag-prod", {"tags": ["env:prod"]}


def policy(tenants: int, *, cap: bool) -> Policy:
    """Open breakers with exemptions of ``tenants`` tenants, none of them the one that is timed; and a platform cap or not."""
    now = datetime.now(UTC)
    entries: list[dict[str, Any]] = [
        {"id": f"b{n}", "scope": f"tenant:org{n % 50}/closed{n}", "tier": 3, "action": "reject", "exempt": [f"tenant:org{n}/x"]}
        for n in range(tenants)
    ]
    if cap:
        limits = {"max_prompt_tokens": 16_000}
        entries.append({"id": "cap", "scope": "platform", "tier": 0, "action": "limit", "limits": limits, "exempt": ["tenant:x"]})
    times = {"issued_at": now.isoformat(), "expires_at": (now + timedelta(hours=1)).isoformat()}
    return Policy({"version": 1, "guard": "bench", "on_expiry": "open", "entries": entries, **times})


def guard_with(tenants: int, *, cap: bool) -> Guard:
    guard = Guard(SETTINGS)
    guard.policy = policy(tenants, cap=cap)
    return guard


def identity_rules(rules: int) -> IdentityRules:
    """Rules over alias, key, a tag, a header and a label; the last one is the one that applies."""
    conditions = [["key_alias", "regex", "app([0-9]+)-([a-z]+)"], ["key_id", "prefix", "0"], ["tag.env", "exact", "dev"],
                  ["header.x-team", "glob", "*-ads"], ["metadata.owner", "exact", "ops"]]  # fmt: skip
    made: list[dict[str, Any]] = [{"when": [conditions[n % 5]], "set": {"team": f"t{n}"}} for n in range(rules - 1)]
    made.append({"when": [["key_alias", "regex", "rag-([a-z]+)"]], "set": {"team": "rag-$1"}})
    version = {
        "version": 1,
        "from_ms": 0,
        "start": "said",
        "default": {},
        "gateway_sets": ["header.x-team"],
        "rules": made,
    }
    return IdentityRules({"format": 1, "versions": [version], "names": {}})


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})


async def _receive() -> Message:
    return {"type": "http.request", "body": BODY, "more_body": False}


async def _send(_: Message) -> None:
    return None


def through(called: Callable[[Scope, Receive, Send], Coroutine[Any, Any, None]], headers: list[tuple[bytes, bytes]]) -> None:
    """Drive one request to its end; nothing in it waits, so no event loop is needed."""
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "root_path": "", "headers": headers}
    try:
        called(scope, _receive, _send).send(None)
    except StopIteration:
        return


def hooked(guard: Guard, data: dict[str, Any], known: RequestFacts) -> None:
    """What the LiteLLM hook does on a request, its body having been parsed and measured by ``known``."""
    guard.posture()
    data["user"] = f"u{next(USERS) % 1000}"
    tenant, tier = charge_of(guard, Key, data, known.model, known.deployment)
    facts = known._replace(tenant=tenant, service_tier=tier)
    guard.decide(guard.match(facts), facts)


def quantiles_us(work: Callable[[], None], requests: int) -> dict[str, float]:
    """Median and 99th percentile of the calmest of ten blocks (the one with the lowest p99)."""
    for _ in range(max(200, requests // 10)):
        work()
    gc.collect()
    blocks = [_block(work, max(200, requests // BLOCKS)) for _ in range(BLOCKS)]
    took = min(blocks, key=lambda found: found[len(found) * 99 // 100])
    return {"p50": took[len(took) // 2] / 1000, "p99": took[len(took) * 99 // 100] / 1000}


def _block(work: Callable[[], None], requests: int) -> list[int]:
    took = []
    for _ in range(requests):
        before = time.thread_time_ns()
        work()
        took.append(time.thread_time_ns() - before)
    return sorted(took)


def run(requests: int, tenants: int) -> dict[str, Any]:
    """Added microseconds by place and whether a cap is in force."""
    length = [(b"content-length", str(len(BODY)).encode())]
    vouched = [*length, (HEADER.encode(), sign_tenant("org7/team42/chat/ann", "P1", KEY, time.time()).encode())]
    data = {**json.loads(BODY), **ATTACHED}
    bare = quantiles_us(lambda: through(app, length), requests)
    found: dict[str, Any] = {"requests": requests, "tenants": tenants, "bare_app_us": bare}
    for name, cap in (("no cap", False), ("under cap", True)):
        guard = guard_with(tenants, cap=cap)
        guarded = GuardMiddleware(app, guard=guard)
        known = RequestFacts("tiny", "eu/prod/tiny", prompt_tokens_at_most=bound(data, 256).tokens if cap else None)
        for place, work in (
            ("asgi", partial(through, guarded, length)),
            ("asgi, signed tenant", partial(through, guarded, vouched)),
        ):
            took = quantiles_us(work, requests)
            found[f"{place}, {name}: added_us"] = {q: round(us - bare["p50"], 1) for q, us in took.items()}
        took = quantiles_us(partial(hooked, guard, data, known), requests)
        found[f"litellm hook, {name}: added_us"] = {q: round(us, 1) for q, us in took.items()}
        guard.rules = identity_rules(RULES)
        took = quantiles_us(partial(hooked, guard, data, known), requests)
        found[f"litellm hook, {name}, {RULES} identity rules: added_us"] = {q: round(us, 1) for q, us in took.items()}
    found["measuring a parsed 4 kB body_us"] = quantiles_us(lambda: bound(data, 256) and None, requests)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--tenants", type=int, default=10_000)
    given = parser.parse_args()
    machine = f"{platform.machine()} Python {platform.python_version()}"
    print(json.dumps({"machine": machine, **run(given.requests, given.tenants)}, indent=1))


if __name__ == "__main__":
    main()

"""Rules for one LiteLLM proxy: does it refuse when told to, report every call, and make streams say what they used?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from core.fleet_facts import Callback, GatewayFacts, GatewayModel, Judgement, StreamUsage, unknown

HOOKS = ("tokenfuse_guard", "guardhandler")
POSTS_HERE = "/v1/usage/litellm"


def host_port(url: str) -> str:
    """``HOST:PORT`` of an address, empty where it is none."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return ""
    return f"{parts.hostname}:{port}" if parts.hostname else ""


def answers(facts: GatewayFacts) -> Judgement:
    if facts.down:
        return Judgement("fail", facts.down, where=facts.url, value=facts.url)
    told = facts.seen.get("version")
    return Judgement("pass", "it is ready", f"LiteLLM {told.value}" if told else "", told.where if told else facts.url)


def _hook(facts: GatewayFacts) -> Callback | None:
    """By its configured name, or by the class that runs where only that is told."""
    active = facts.seen.get("active_callbacks")
    running = [Callback(name, "", active.where) for name in active.value.split(", ")] if active is not None else []
    return next((one for one in (*(facts.callbacks or ()), *running) if any(word in one.name.lower() for word in HOOKS)), None)


def hook(facts: GatewayFacts) -> Judgement:
    found = _hook(facts)
    if found is not None:
        return Judgement("pass", "the guard's hook is there", found.name, found.where)
    if facts.callbacks is None:
        return unknown(facts, "its callbacks")
    names = ", ".join(one.name for one in facts.callbacks) or "none"
    where = facts.callbacks[0].where if facts.callbacks else facts.url
    return Judgement("fail", "the guard's hook is not among them: no budget can refuse anything", f"callbacks: {names}", where)


def usage_reported(facts: GatewayFacts) -> Judgement:
    found = _hook(facts)
    if found is not None:
        return Judgement("pass", "the guard's hook posts usage", found.name, found.where)
    posts = [one for one in facts.callbacks or () if one.name == "generic_api"]
    if posts:
        return _generic(posts)
    database, logged = facts.seen.get("database"), facts.switch("spend_log")
    if database is not None and database.value == "connected" and logged:
        return Judgement("pass", "the spend log is written; `tokenfuse backfill` reads it", database.value, database.where)
    if database is not None and database.value == "connected" and logged is None:
        reason = (
            "a database is connected, so the spend log is written unless disable_spend_logs is set, which LiteLLM does not tell"
        )
        return Judgement("unknown", reason, database.value, database.where)
    if facts.callbacks is None or (database is None and logged is not False):
        return unknown(facts, "its callbacks or its database")
    found_in = database or facts.seen["spend_log"]
    reason = "neither the guard's hook nor generic_api nor a database: no call is reported"
    return Judgement("fail", reason, "spend log off" if logged is False else found_in.value, found_in.where)


def _generic(posts: list[Callback]) -> Judgement:
    where = posts[0].where
    told = {"success", "failure"} if any(one.on == "success_and_failure" for one in posts) else {one.on for one in posts}
    endpoint = next((one.endpoint for one in posts if one.endpoint), "")
    if endpoint and not urlsplit(endpoint).path.endswith(POSTS_HERE):
        return Judgement("fail", f"generic_api does not post to {POSTS_HERE}", endpoint, where)
    if not {"success", "failure"} <= told:
        return Judgement("fail", f"generic_api is told of {' and '.join(sorted(told))} only", "generic_api", where)
    if not endpoint:
        return Judgement("unknown", "generic_api is there; LiteLLM does not tell where it posts to", "generic_api", where)
    return Judgement("pass", "generic_api posts every call", endpoint, where)


def usage_asked(target: str, served: frozenset[str], gateways: Sequence[GatewayFacts]) -> StreamUsage:
    """Whether every gateway in front of the engine asks each of its streams for usage."""
    told: set[StreamUsage] = set()
    for one in gateways:
        always = one.switch("always_include_stream_usage")
        address = frozenset({host_port(target)})
        if one.models is None:
            told.add("always" if always else "unknown")
        elif any(_serves(model, address, served) for model in _own(one)):
            told.add("always" if always else "unknown" if always is None else "not always")
    order: tuple[StreamUsage, ...] = ("not always", "unknown", "always")
    return next((state for state in order if state in told), "no gateway")


def _own(facts: GatewayFacts) -> list[GatewayModel]:
    return [model for model in facts.models or () if model.self_hosted]


def always_stream_usage(facts: GatewayFacts) -> Judgement:
    """By its own setting alone: ``stream_options`` among a deployment's parameters make the upstream send usage that LiteLLM
    throws away (seen in 1.95.1)."""
    told = facts.seen.get("always_include_stream_usage")
    if told is not None and told.value == "true":
        return Judgement("pass", "every stream is asked for its usage", "true", told.where)
    lost = sorted(model.name for model in _own(facts) if model.asks_usage)
    named = f"; stream_options of {', '.join(lost)} do not help: LiteLLM throws that usage away" if lost else ""
    if told is None:
        said = unknown(facts, "always_include_stream_usage")
        return replace(said, reason=said.reason + named)
    return Judgement("fail", f"streams of clients that do not ask are booked by a guess{named}", told.value, told.where)


def engines_read(facts: GatewayFacts) -> Judgement:
    """Whether the engines behind the gateway are the ones whose counters are read."""
    if facts.models is None:
        return unknown(facts, "its deployments")
    own = _own(facts)
    where = own[0].where if own else facts.url
    strange = sorted({f"{m.name} ({m.api_base})" for m in own if not _serves(m, facts.engines, facts.served)})
    if not own:
        return Judgement("unknown", "it has no deployment on an engine of ours", f"{len(facts.models)} deployments", where)
    if not strange:
        return Judgement("pass", "the engine of each deployment is read", f"{len(own)} deployments", where)
    if facts.unasked:
        reason = (
            f"the address is not an engine's, and {facts.unasked} engines that do not answer may serve it: {', '.join(strange)}"
        )
        return Judgement("unknown", reason, f"{len(own)} deployments", where)
    return Judgement("fail", f"no engine that is read serves {', '.join(strange)}", f"{len(own)} deployments", where)


def _serves(model: GatewayModel, addresses: frozenset[str], served: frozenset[str]) -> bool:
    """By address; a service's or balancer's address is not an engine's, so the model's name counts as well."""
    return host_port(model.api_base) in addresses or model.model.partition("/")[2] in served

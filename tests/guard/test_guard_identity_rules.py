"""Identity rules in a guard: dated, judged by what the gateway proves, kept when the newest cannot be understood."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from guard_clock import Clock
from guard_servers import KEY, KEY_ID, reject, signed
from identity_world import call_data, key, rule, rule_set, told

from api.schemas.policy import GuardReportIn
from core.identity_codec import identity_facts
from tokenfuse_guard.call_facts import MAX_LABEL, MAX_LABEL_NAME, SECRET_WORDS, charge_of, header_of, may_be_kept
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.identity_rules import MAX_REMEMBERED_ANSWERS, IdentityRules, UnknownRules
from tokenfuse_guard.litellm_hook import GuardHandler, Refused
from tokenfuse_guard.settings import GuardSettings
from tokenfuse_guard.tenant_header import HEADER, read_tenant

RAG = rule("key_alias", "regex", "rag-([a-z]+)", team="rag-$1")
NOW = datetime.fromtimestamp(1_796_040_000, UTC)


@pytest.fixture
def gateway(tmp_path: Path) -> GuardSettings:
    return GuardSettings(name="edge", keys=((KEY_ID, KEY),), state_dir=str(tmp_path / "state"), org="home")


def holding(gateway: GuardSettings, clock: Clock, *sets: tuple[datetime, dict[str, Any]], entries: Any = ()) -> Guard:
    guard = Guard(gateway, clock)
    guard.take(signed(list(entries), now=NOW, identity=told(*sets, now=NOW)))
    return guard


def charged(guard: Guard, data: dict[str, Any], owner: Any = None) -> str:
    return charge_of(guard, owner or key(), data, "tiny", "default/default/tiny")[0]


def asked(guard: Guard, owner: Any, **more: Any) -> int:
    """The status a caller gets."""
    handler = GuardHandler(guard=guard)
    try:
        asyncio.run(handler.async_pre_call_hook(owner, None, call_data(owner, **more), "acompletion"))
    except Refused:
        return 503
    return 200


def test_a_tenant_that_only_rules_make_is_refused_when_its_breaker_is_open(gateway: GuardSettings, clock: Clock) -> None:
    guard = holding(gateway, clock, (NOW, rule_set(RAG)), entries=[reject("tenant:acme/rag-prod")])
    assert asked(guard, key(key_alias="rag-prod")) == 503
    assert asked(guard, key(key_alias="rag-dev")) == 200
    assert asked(guard, key(key_alias="chat")) == 200
    guard.take(signed([reject("tenant:acme/search")], version=2, now=NOW, identity=told((NOW, rule_set(RAG)), now=NOW)))
    assert asked(guard, key(key_alias="rag-prod")) == 200
    assert asked(guard, key(key_alias="chat")) == 503


def test_a_service_tier_that_rules_set_is_degraded_with_it(gateway: GuardSettings, clock: Clock) -> None:
    batch = rule("key_alias", "prefix", "batch-", service_tier="P2")
    guard = holding(gateway, clock, (NOW, rule_set(batch)), entries=[reject("service_tier:P2")])
    assert asked(guard, key(key_alias="batch-1")) == 503
    assert asked(guard, key(key_alias="rag-prod")) == 200


def test_the_version_in_force_at_the_request_applies(gateway: GuardSettings, clock: Clock) -> None:
    sets = [(NOW + timedelta(minutes=n), rule_set(rule("org", "exact", "acme", team=f"v{n}"))) for n in (1, 2)]
    guard = holding(gateway, clock, *sets)
    found = []
    for _ in range(5):
        found.append((charged(guard, call_data(key())), guard.report()["rules_version"]))
        clock.at_s += 30
    assert found == [
        ("acme/search", None), ("acme/search", None), ("acme/v1", 1), ("acme/v1", 1), ("acme/v2", 2),
    ]  # fmt: skip


CLIENT = {
    "user": ({}, {"user": "victim"}),
    "tag.env": ({}, {"tags": ("env:victim",)}),
    "tag": ({}, {"tags": ("victim",)}),
    "header.x-team": ({}, {"headers": {"x-team": "victim"}}),
    "metadata.owner": ({}, {"labels": {"owner": "victim"}}),
}
OWNER = {
    "user": ({"user_id": "victim"}, {"user": "somebody"}),
    "tag.env": ({"metadata": {"tags": ["env:victim"]}}, {}),
    "tag": ({"team_metadata": {"tags": ["victim"]}}, {}),
    "metadata.owner": ({"metadata": {"owner": "victim"}}, {"labels": {"owner": "somebody"}}),
}


@pytest.mark.parametrize("field", CLIENT)
@pytest.mark.parametrize("is_marked", [False, True])
def test_what_a_client_writes_counts_only_where_the_rules_say_that_the_gateway_sets_it(
    gateway: GuardSettings, clock: Clock, field: str, is_marked: bool
) -> None:
    marks = [field] if is_marked else []
    guard = holding(gateway, clock, (NOW, rule_set(rule(field, "exact", "victim", team="caught"), gateway_sets=marks)))
    owner, body = CLIENT[field]
    assert charged(guard, call_data(key(**owner), **body), key(**owner)).startswith("acme/caught") is is_marked


@pytest.mark.parametrize("field", OWNER)
def test_what_the_key_says_counts_without_a_mark(gateway: GuardSettings, clock: Clock, field: str) -> None:
    guard = holding(gateway, clock, (NOW, rule_set(rule(field, "exact", "victim", team="caught"))))
    owner, body = OWNER[field]
    assert charged(guard, call_data(key(**owner), **body), key(**owner)).startswith("acme/caught")


def test_a_mark_on_tag_holds_for_every_tag(gateway: GuardSettings, clock: Clock) -> None:
    guard = holding(gateway, clock, (NOW, rule_set(rule("tag.env", "exact", "a", team="caught"), gateway_sets=["tag"])))
    assert charged(guard, call_data(key(), tags=("env=a",))) == "acme/caught"


def test_a_client_that_forges_the_gateways_metadata_is_not_believed(gateway: GuardSettings, clock: Clock) -> None:
    """On routes where LiteLLM writes ``litellm_metadata``, ``metadata`` is the client's (without ``user_api_key_*``)."""
    guard = holding(gateway, clock, (NOW, rule_set(rule("metadata.owner", "exact", "ops", team="caught"))))
    data = call_data(key())
    data["litellm_metadata"] = data.pop("metadata")
    data["metadata"] = {"user_api_key_auth_metadata": {"owner": "ops"}}
    assert charged(guard, data) == "acme/search"


def test_a_key_without_an_alias_is_called_as_the_imported_names_say(gateway: GuardSettings, clock: Clock) -> None:
    guard = Guard(gateway, clock)
    guard.take(signed([], now=NOW, identity=told((NOW, rule_set(RAG)), now=NOW, names={"a" * 64: "rag-own", "b" * 64: "chat"})))
    assert guard.rules is not None
    assert guard.rules.key_names == {"a" * 64: "rag-own"}
    assert charged(guard, call_data(key(key_alias=None)), key(key_alias=None)) == "acme/rag-own"
    assert charged(guard, call_data(key())) == "acme/rag-prod"


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"more": 1},
        {"names": None},
        {"versions": [{}]},
        {"versions": "x"},
    ],
)
def test_a_section_of_another_shape_is_unknown(change: dict[str, Any]) -> None:
    with pytest.raises(UnknownRules):
        IdentityRules({**told((NOW, rule_set(RAG)), now=NOW), **change})


@pytest.mark.parametrize(
    "odd",
    [
        {"when": [["key_alias", "fuzzy", "rag"]], "set": {"team": "x"}},
        {"when": [["source_ip", "exact", "10.0.0.1"]], "set": {"team": "x"}},
        {"when": [["key_alias", "exact", "a", "i"]], "set": {"team": "x"}},
        {"when": [["key_alias", "regex", "("]], "set": {"team": "x"}},
        {"when": [["key_alias", "exact", "a"]], "set": {"cost_centre": "x"}},
        {"when": [["key_alias", "exact", "a"]], "set": {"team": "x"}, "then": "jump"},
        {"when": [["key_alias", "exact", "a"]], "set": {"team": "x"}, "unless": []},
    ],
    ids=["operator", "field", "condition", "pattern", "part", "then", "key"],
)
def test_rules_it_does_not_know_leave_the_former_ones_in_use_and_are_reported(
    gateway: GuardSettings, clock: Clock, odd: dict[str, Any]
) -> None:
    guard = holding(gateway, clock, (NOW, rule_set(RAG)))
    newer = told((NOW, rule_set()), now=NOW)
    newer["versions"][0]["rules"] = [odd]
    guard.take(signed([reject("tenant:acme/rag-prod")], version=2, now=NOW, identity=newer))
    assert asked(guard, key()) == 503, "the entries of the new policy, by the rules of the former"
    report = guard.report()
    assert "former ones are kept" in report["rules_fault"]
    assert report["note"] == report["rules_fault"]
    assert GuardReportIn.model_validate(report).rules_version == 1

    guard.fault = ""
    guard.take(signed([], version=3, now=NOW, identity=newer))
    assert guard.fault == "", "the same fault again is no news"
    again = Guard(gateway, clock)
    assert charged(again, call_data(key())) == "acme/rag-prod", "also after a restart"

    again.take(signed([], version=4, now=NOW, identity=told((NOW, rule_set(RAG)), now=NOW)))
    assert again.report()["rules_fault"] == ""


def test_without_former_rules_the_gateway_is_taken_at_its_word(gateway: GuardSettings, clock: Clock) -> None:
    guard = Guard(gateway, clock)
    guard.take(signed([], now=NOW, identity={"format": 9}))
    assert charged(guard, call_data(key())) == "acme/search"
    assert "former" in Guard(gateway, clock).report()["rules_fault"]


def test_a_policy_without_rules_ends_them(gateway: GuardSettings, clock: Clock) -> None:
    guard = holding(gateway, clock, (NOW, rule_set(RAG)))
    guard.take(signed([], version=2, now=NOW))
    assert charged(guard, call_data(key())) == "acme/search"


def test_the_same_rules_in_a_new_policy_are_not_compiled_again(gateway: GuardSettings, clock: Clock) -> None:
    guard = holding(gateway, clock, (NOW, rule_set(RAG)))
    held = guard.rules
    guard.take(signed([], version=2, now=NOW, identity=told((NOW, rule_set(RAG)), now=NOW)))
    assert guard.rules is held


def test_remembered_answers_are_bounded() -> None:
    version = IdentityRules(told((NOW, rule_set(rule("user", "glob", "*", team="x"))), now=NOW)).at(NOW.timestamp())
    assert version is not None
    for number in range(MAX_REMEMBERED_ANSWERS + 10):
        said = ("acme", "", "", f"u{number}")
        assert version.charge(said, "P1", ((said[3],),)).path == ("acme", "x", "", said[3])
    assert len(version._answers) <= MAX_REMEMBERED_ANSWERS


def test_the_engine_is_told_the_tenant_that_rules_make(gateway: GuardSettings, clock: Clock) -> None:
    settings = gateway._replace(tenant_keys=(("t1", KEY),))
    handler = GuardHandler(guard=holding(settings, clock, (NOW, rule_set(RAG))))
    kwargs = {**call_data(key()), "model": "hosted_vllm/tiny"}
    made = asyncio.run(handler.async_pre_call_deployment_hook(kwargs, "acompletion"))
    assert made is not None
    vouched = read_tenant(made["extra_headers"][HEADER], settings.tenant_keys, clock())
    assert vouched == ("acme/rag-prod", "P1")


@pytest.mark.parametrize("name", ["x-team", "x-auth-team", "X-Secret", "x" * MAX_LABEL_NAME, "x" * (MAX_LABEL_NAME + 1)])
@pytest.mark.parametrize("value", ["a", "", "x" * MAX_LABEL, "x" * (MAX_LABEL + 1), "a\nb"])
def test_guard_and_ledger_keep_the_same_labels(name: str, value: str) -> None:
    kept = identity_facts(headers={name: value})
    assert may_be_kept(name) is bool(identity_facts(headers={name: "a"}))
    found = header_of({"proxy_server_request": {"headers": {name: value}}}, name)
    assert (found if may_be_kept(name) else "") == next(iter(kept.values()), "")
    assert all(not may_be_kept(f"x-{word}") for word in SECRET_WORDS)

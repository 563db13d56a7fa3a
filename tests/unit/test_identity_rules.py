"""Whom a request is charged to: conditions, order, captures, defaults, and what makes a rule set not acceptable."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput
from core.identity import OPERATORS, PLAIN_FIELDS, Condition, Facts, Rule, RuleSet, RuleVersion, in_force, reigns
from core.identity_codec import (
    conditions_text,
    decode_rules,
    digest_of,
    encode_rules,
    identity_facts,
    parse_conditions,
    record_facts,
    said_of,
)
from core.identity_match import Matcher
from core.identity_regex import MAX_VALUE, safe_pattern
from core.identity_state import IdentityState, Judge, name_at
from core.usage import Deployment, TenantPath

FACTS = Facts(
    said=TenantPath("acme", "search", "", "ann", "hash-1"),
    service_tier="P1",
    deployment=Deployment("bj-1", "prod", "Qwen3-32B"),
    requested_model="qwen-fast",
    tags=("env:prod", "cost=cc-17", "batch"),
    more={"key_alias": "search-batch-7", "gateway": "litellm", "header.x-team": "ads/cn", "metadata.owner": "李雷"},
)
T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)


def rule(field: str, operator: str, value: str, then: str = "stop", name: str = "r", **sets: str) -> dict[str, Any]:
    return {"name": name, "when": [{"field": field, "op": operator, "value": value}], "set": sets or {"org": "x"}, "then": then}


def matcher(*rules: dict[str, Any], **rest: Any) -> Matcher:
    return Matcher(decode_rules({"rules": list(rules), "default": {}, **rest}))


@pytest.mark.parametrize(
    ("field", "operator", "value", "applies"),
    [
        ("org", "exact", "acme", True),
        ("org", "exact", "Acme", False),
        ("project", "exact", "", True),
        ("team", "prefix", "sea", True),
        ("team", "prefix", "earch", False),
        ("user", "glob", "a?n", True),
        ("key_alias", "glob", "search-*-?", True),
        ("key_alias", "glob", "search", False),
        ("key_id", "exact", "hash-1", True),
        ("service_tier", "exact", "P1", True),
        ("requested_model", "prefix", "qwen", True),
        ("model_id", "exact", "Qwen3-32B", True),
        ("cluster", "glob", "bj-*", True),
        ("namespace", "exact", "dev", False),
        ("gateway", "exact", "litellm", True),
        ("tag", "exact", "batch", True),
        ("tag", "regex", r"env:(prod|stage)", True),
        ("tag", "exact", "absent", False),
        ("tag.env", "exact", "prod", True),
        ("tag.cost", "exact", "cc-17", True),
        ("tag.none", "exact", "", True),
        ("header.x-team", "prefix", "ads/", True),
        ("metadata.owner", "exact", "李雷", True),
        ("metadata.none", "regex", ".*", False),
        ("project", "glob", "*", False),
        ("key_alias", "regex", r"search-\w+-\d", True),
        ("key_alias", "regex", r"batch", False),
    ],
)
def test_a_condition_on_each_kind_of_fact(field: str, operator: str, value: str, applies: bool) -> None:
    found = matcher(rule(field, operator, value, team="hit")).resolve(FACTS)
    assert (found.tenant.team == "hit") is applies
    assert found.matched == (("r",) if applies else ())


def test_all_conditions_must_hold() -> None:
    both = {"name": "both", "set": {"team": "hit"}, "when": [
        {"field": "org", "op": "exact", "value": "acme"}, {"field": "user", "op": "exact", "value": "bob"}]}  # fmt: skip
    found = matcher(both).resolve(FACTS, explain=True)
    assert found.tenant == FACTS.said
    assert (found.steps[0].outcome, found.steps[0].why) == ("no match", "user is 'ann'")


def test_the_first_rule_that_stops_wins_and_one_that_continues_lets_later_ones_add() -> None:
    first, second = rule("org", "exact", "acme", name="a", team="one"), rule("org", "exact", "acme", name="b", team="two")
    assert matcher(first, second).resolve(FACTS).tenant.team == "one"
    assert matcher(second, first).resolve(FACTS).tenant.team == "two"
    going_on = rule("org", "exact", "acme", "continue", "a", team="one", project="p")
    found = matcher(going_on, second).resolve(FACTS, explain=True)
    assert (found.tenant.team, found.tenant.project, found.matched) == ("two", "p", ("a", "b"))
    assert [step.outcome for step in matcher(first, second).resolve(FACTS, explain=True).steps] == ["applied", "not reached"]


def test_later_rules_judge_what_the_source_said_not_what_earlier_rules_made_of_it() -> None:
    renamed = rule("org", "exact", "acme", "continue", "a", org="acme-group")
    again = rule("org", "exact", "acme-group", name="b", team="never")
    assert matcher(renamed, again).resolve(FACTS).tenant == replace(FACTS.said, org="acme-group")


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("$1", "search"),
        ("${kind}", "batch"),
        ("t-${1}-$3", "t-search-7"),
        ("$$1", "$1"),
    ],
)
def test_captures_fill_templates(template: str, made: str) -> None:
    one = rule("key_alias", "regex", r"([a-z]+)-(?P<kind>[a-z]+)-(\d)", team=template)
    assert matcher(one).resolve(FACTS).tenant.team == made


def test_groups_are_numbered_through_all_conditions_and_an_absent_one_is_empty() -> None:
    two = {"name": "two", "set": {"team": "$1", "project": "$2", "user": "$3"}, "when": [
        {"field": "header.x-team", "op": "regex", "value": "([^/]+)/(.*)"},
        {"field": "tag.env", "op": "regex", "value": "(x)?prod"}]}  # fmt: skip
    assert matcher(two).resolve(FACTS).tenant == TenantPath("acme", "ads", "cn", "", "hash-1")


def test_a_result_that_cannot_be_a_name_or_a_tier_does_not_apply() -> None:
    facts = replace(FACTS, more={"header.x-team": 'a"b', "header.x-tier": "gold", "header.x-long": "y" * 121})
    for field, part in (("header.x-team", "team"), ("header.x-tier", "service_tier"), ("header.x-long", "project")):
        found = matcher(rule(field, "regex", "(.*)", **{part: "$1"})).resolve(facts, explain=True)
        assert (found.tenant, found.service_tier, found.matched) == (facts.said, "P1", ())
        assert found.steps[0].outcome == "not a name"
    tier = rule("header.x-tier", "regex", "(P[012])", service_tier="$1")
    assert matcher(tier).resolve(replace(facts, more={"header.x-tier": "P2"})).service_tier == "P2"


def test_the_default_fills_what_is_empty_at_the_end() -> None:
    nobody = Facts()
    assert matcher(default={"org": "unassigned"}).resolve(nobody).tenant.org == "unassigned"
    assert matcher(default={"org": "unassigned"}).resolve(FACTS).tenant == FACTS.said
    assert matcher(default={"org": "unassigned", "project": "none"}).resolve(FACTS).by_default == ("project",)
    assert decode_rules({}).default == (("org", "unassigned"),)


def test_a_set_may_start_from_nothing_and_the_key_stays() -> None:
    found = matcher(start="empty", default={"org": "unassigned"}).resolve(FACTS)
    assert found.tenant == TenantPath("unassigned", key_id="hash-1")


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"rules": [{"name": "", "when": [], "set": {}}]}, "rules[0].name"),
        ({"rules": [{"name": "a", "when": [], "set": {"org": "x"}}]}, "rules[0].when"),
        ({"rules": [{"name": "a", "when": [{"field": "org", "value": "x"}], "set": {}}]}, "rules[0].set"),
        ({"rules": [rule("colour", "exact", "x")]}, "rules[0].when[0].field"),
        ({"rules": [rule("tag.", "exact", "x")]}, "rules[0].when[0].field"),
        ({"rules": [rule("org", "like", "x")]}, "rules[0].when[0].op"),
        ({"rules": [rule("org", "prefix", "")]}, "rules[0].when[0].value"),
        ({"rules": [rule("org", "regex", "(a+)+")]}, "rules[0].when[0].value"),
        ({"rules": [rule("org", "glob", "*a*b*c*d*e*f*g*h*i*")]}, "rules[0].when[0].value"),
        ({"rules": [rule("org", "exact", "x", team="$1")]}, "rules[0].set.team"),
        ({"rules": [rule("org", "regex", "(x)", team="${who}")]}, "rules[0].set.team"),
        ({"rules": [rule("org", "exact", "x", team="5$")]}, "rules[0].set.team"),
        ({"rules": [rule("org", "exact", "x", team="a/b")]}, "rules[0].set.team"),
        ({"rules": [rule("org", "exact", "x", team='"')]}, "rules[0].set.team"),
        ({"rules": [rule("org", "exact", "x", service_tier="P9")]}, "rules[0].set.service_tier"),
        ({"rules": [rule("org", "exact", "x", key_id="y")]}, "rules[0].set.key_id"),
        ({"rules": [rule("org", "exact", "x", name="a"), rule("org", "exact", "x", name="a")]}, "rules[1].name"),
        ({"rules": [{**rule("org", "exact", "x"), "then": "jump"}]}, "rules[0].then"),
        ({"rules": [{**rule("org", "exact", "x"), "if": 1}]}, "rules[0].if"),
        ({"rules": {}}, "rules"),
        ({"default": {"service_tier": "P1"}}, "default"),
        ({"default": {"org": 7}}, "default.org"),
        ({"start": "middle"}, "start"),
        ({"rule": []}, "rule"),
        ([], "rules"),
    ],
)
def test_a_set_that_is_not_in_order_is_refused_by_place(rules: Any, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        Matcher(decode_rules(rules))
    assert caught.value.field == field


@pytest.mark.parametrize(
    "pattern",
    ["a", ".*", "(.*)", "^team-(.+)$", "([^-]*)-([^-]*)-([^-]*)-(.*)", r"[a-z]+-\d+-.*", "(.*)-(.*)", "(a|b)?c", r"x{2,5}y", 
     "[]^-]+", r"\w+@acme\.com", "(?:prod|stage)-(?P<team>[a-z]+)", r"a\$", "[^/]+/[^/]+/[^/]+/[^/]+/[^/]+", "a|b|"],
)  # fmt: skip
def test_patterns_that_are_taken(pattern: str) -> None:
    assert safe_pattern(pattern, "f").groups == re.compile(pattern).groups


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+", "(a*)*b", "(a|a)*", "(.*)(.*)(.*)(.*)", ".*.*.*=", "(.*)-(.*)-(.*)-(.*)", "(?=a)", r"(a)\1", "(?i)a", "a*?", "a++",
     r"\b", "(?P<A>x)", "(", ")", "[", "a**", "*", "x" * 201, "", "a?" * 30, "(a?b?c?)?" * 10, "[[]",
     "[a--b]", r"\1", "a{2", "(?<n>a)",
     "[z-a]", "a^b", "\n"],
)  # fmt: skip
def test_patterns_that_are_not(pattern: str) -> None:
    with pytest.raises(BadInput, match="f: "):
        safe_pattern(pattern, "f")


@given(st.from_regex(r"(\(?[ab.]?[*+?]?\)?[-|]?){1,6}", fullmatch=True), st.text("ab-", max_size=MAX_VALUE))
def test_a_pattern_that_is_taken_means_what_python_means_by_it(pattern: str, text: str) -> None:
    try:
        taken = safe_pattern(pattern, "f")
    except BadInput:
        return
    assert (taken.fullmatch(text) is None) == (re.fullmatch(pattern, text) is None)


values = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x4FFF, exclude_categories=("Cs", "Cc", "Cn", "Zl", "Zp", "Zs")), max_size=12
)
conditions = st.builds(Condition, st.sampled_from([*PLAIN_FIELDS, "tag.env", "header.x-a"]), st.sampled_from(OPERATORS), values)
AWKWARD = ["", " ", "a AND b", '"', '" AND "', "= x", "a = b AND c", " x ", "\\", "AND", 'a"b']


@given(
    st.lists(conditions, min_size=1, max_size=4)
    | st.lists(st.builds(Condition, st.just("org"), st.sampled_from(OPERATORS), st.sampled_from(AWKWARD)), min_size=1, max_size=4)
)
def test_conditions_written_as_one_line_are_read_back(given_: list[Condition]) -> None:
    assert list(parse_conditions(conditions_text(given_), "f")) == given_


@pytest.mark.parametrize("text", ["", "org", "org acme", "org == acme", "org = a AND ", 'org = "a'])
def test_a_line_that_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="rules"):
        parse_conditions(text, "rules[0].when")


names = st.sampled_from(["acme", "beta", "search", "ads", "ann", ""])
facts = st.builds(
    Facts,
    st.builds(TenantPath, names, names, names, names, st.sampled_from(["k1", "k2"])),
    st.sampled_from(["P0", "P1", "P2"]),
    st.just(Deployment("c", "n", "m")),
    names,
    st.lists(st.sampled_from(["env:prod", "env:dev", "x"]), max_size=2).map(tuple),
    st.dictionaries(st.sampled_from(["key_alias", "header.x-team"]), names.filter(bool)),
)
rule_values = st.builds(
    Rule,
    st.uuids().map(str),
    st.lists(
        st.builds(Condition, st.sampled_from(["org", "team", "key_alias", "tag.env"]), st.just("exact"), names),
        min_size=1,
        max_size=2,
    ).map(tuple),
    st.dictionaries(st.sampled_from(["org", "team", "project", "user"]), names, min_size=1, max_size=2).map(
        lambda d: tuple(d.items())
    ),
    st.booleans(),
)
rule_sets = st.builds(RuleSet, st.lists(rule_values, max_size=4).map(tuple), st.just((("org", "unassigned"),)), st.booleans())


@given(rule_sets, facts)
def test_the_same_rules_applied_again_to_what_they_made_give_the_same(rules: RuleSet, one: Facts) -> None:
    """A mapped record keeps what its source said, and that is what rules judge."""
    found = Matcher(rules).resolve(one)
    t = found.tenant
    record = {
        "tenant": {"org": t.org, "team": t.team, "project": t.project, "user": t.user, "key_id": t.key_id},
        "service_tier": found.service_tier,
        "deployment": {"cluster": "c", "namespace": "n", "model_id": "m"},
        "requested_model": one.requested_model,
        "raw": {"identity": {"tags": list(one.tags), **one.more, **said_of(one, 3)}},
    }
    assert record_facts(record) == one
    assert Matcher(rules).resolve(record_facts(record)) == found


@given(rule_sets, facts, st.integers(0, 4))
def test_a_rule_that_matches_nothing_moves_nothing_wherever_it_stands(rules: RuleSet, one: Facts, place: int) -> None:
    never = Rule("never", (Condition("gateway", "exact", "no such"),), (("org", "stolen"),))
    more = replace(rules, rules=(*rules.rules[:place], never, *rules.rules[place:]))
    assert Matcher(more).resolve(one) == Matcher(rules).resolve(one)


@given(rule_sets, facts)
def test_order_matters_only_among_rules_that_apply(rules: RuleSet, one: Facts) -> None:
    """Rules whose conditions do not hold may stand anywhere; those that hold keep their order."""
    ready = Matcher(rules)
    steps = {step.rule: step.outcome for step in ready.resolve(one, explain=True).steps}
    apply = [r for r in rules.rules if steps[r.name] != "no match"]
    rest = [r for r in rules.rules if steps[r.name] == "no match"]
    assert Matcher(replace(rules, rules=(*rest, *apply))).resolve(one) == ready.resolve(one)


@given(rule_sets)
def test_a_set_as_json_is_read_back_and_has_one_digest(rules: RuleSet) -> None:
    read = decode_rules(encode_rules(rules))
    assert Matcher(read).resolve(FACTS) == Matcher(rules).resolve(FACTS)
    assert digest_of(read) == digest_of(decode_rules(encode_rules(read)))


def version(number: int, minutes: int) -> RuleVersion:
    one = decode_rules({"rules": [rule("org", "exact", "acme", team=f"v{number}")]})
    return RuleVersion(number, T0 + timedelta(minutes=minutes), "ann", "why", T0, one)


@pytest.mark.parametrize(
    ("starts", "at", "number"),
    [
        ((0,), -1, None),
        ((0,), 0, 1),
        ((0, 10), 9, 1),
        ((0, 10), 10, 2),
        ((0, 10, 5), 7, 3),
        ((0, 10, 5), 12, 3),
        ((0, 5, 10), 7, 2),
        ((0, 5, 5), 5, 3),
        ((10, 0), 11, 2),
    ],
)
def test_the_newest_version_whose_time_has_come_is_in_force(starts: tuple[int, ...], at: int, number: int | None) -> None:
    """A later publication takes the place of one that was to begin after it: (0, 10, 5) never sees version 2."""
    versions = [version(n, minutes) for n, minutes in enumerate(starts, 1)]
    found = in_force(versions, T0 + timedelta(minutes=at))
    assert (found.version if found else None) == number
    due = [v for v in reigns(versions) if v.valid_from <= T0 + timedelta(minutes=at)]
    assert (due[-1].version if due else None) == number


def test_a_record_is_judged_by_the_rules_and_the_key_name_of_its_time() -> None:
    by_alias = decode_rules({"rules": [rule("key_alias", "regex", "(.*)", team="$1")]})
    names = {"hash-1": ((T0, "old"), (T0 + timedelta(hours=2), "new"))}
    state = IdentityState("1", (replace(version(1, 60), rules=by_alias),), names)
    judge = Judge(state)
    said = replace(FACTS, more={})
    teams = []
    for minutes in (0, 59, 60, 119, 120):
        found = judge.resolve(said, judge.period(round((T0 + timedelta(minutes=minutes)).timestamp() * 1000)))
        teams.append(found.tenant.team if found else None)
    assert teams == [None, None, "old", "old", "new"]
    assert judge.resolve(FACTS, judge.period(2**42)).tenant.team == "search-batch-7"  # type: ignore[union-attr]
    assert name_at(names["hash-1"], 0) == "old"
    assert not Judge(IdentityState("2", (), names)).has_rules


def test_facts_are_labels_and_no_secrets() -> None:
    found = identity_facts(
        key_alias="a", gateway="litellm", tags=["env:prod", "x" * 65], metadata={"owner": "ann", "n": 7, "long": "y" * 65},
        headers={"X-Team": "ads", "x-api-key": "sk-1", "Authorization": "Bearer z", "x-auth-token": "q"},
    )  # fmt: skip
    assert found == {
        "key_alias": "a",
        "gateway": "litellm",
        "tags": ["env:prod"],
        "header.x-team": "ads",
        "metadata.owner": "ann",
    }

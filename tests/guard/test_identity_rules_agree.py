"""The guard's rule engine and the centre's are two programs: on the same rules and facts they charge the same tenant."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from identity_world import T0, call_data, key, logged_payload, rule, rule_set, told

from core.errors import BadInput
from core.identity import Facts
from core.identity_codec import decode_rules, record_facts
from core.identity_match import Matcher
from core.identity_state import named
from core.usage import Deployment, TenantPath
from ingest.usage.litellm import LiteLlm
from ingest.usage.rows import Prepared, SourceOptions
from tokenfuse_guard.call_facts import charge_of
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.identity_rules import IdentityRules
from tokenfuse_guard.settings import GuardSettings

WORDS = st.sampled_from(["", "a", "rag-prod", "rag-", "search", "星辰", "a/b", 'q"', "x" * 121, "P0", "v2.1", "$"])
FIELDS = st.sampled_from(
    ["org", "team", "project", "user", "key_id", "key_alias", "service_tier", "requested_model", "model_id", "cluster",
     "namespace", "gateway", "tag", "tag.env", "header.x-team", "metadata.owner"]
)  # fmt: skip
TESTS = st.one_of(
    st.tuples(st.just("exact"), WORDS),
    st.tuples(st.just("prefix"), WORDS.filter(bool)),
    st.tuples(st.just("glob"), st.sampled_from(["*", "rag-*", "?", "[ar]*", "[!a]*", "*-*", "v2.1", "**a"])),
    st.tuples(st.just("regex"), st.sampled_from(["(.*)", "rag-([a-z]+)", "(a|search)", "(x)?(.*)", r"\w+", "^(s.*)$", "v2.1"])),
    st.tuples(st.just("regex"), st.sampled_from(["(?P<one>[a-z]*)-(?P<two>.*)", "(?P<one>.+)"])),
)
TEMPLATES = st.sampled_from(["", "ops", "$1", "$2", "${one}", "x-$1", "$$", "${two}$1", "P2", "P0"])
RULES = st.fixed_dictionaries(
    {
        "when": st.lists(st.tuples(FIELDS, TESTS), min_size=1, max_size=3),
        "set": st.dictionaries(st.sampled_from(["org", "team", "project", "user", "service_tier"]), TEMPLATES, min_size=1),
        "then": st.sampled_from(["stop", "continue"]),
    }
)
SETS = st.fixed_dictionaries(
    {
        "rules": st.lists(RULES, max_size=4),
        "default": st.dictionaries(st.sampled_from(["org", "team"]), st.sampled_from(["", "unassigned"])),
        "start": st.sampled_from(["said", "empty"]),
    }
)
FACTS = st.builds(
    Facts,
    said=st.builds(TenantPath, org=WORDS, team=WORDS, project=WORDS, user=WORDS, key_id=WORDS),
    service_tier=st.sampled_from(["P0", "P1", "P2"]),
    deployment=st.builds(Deployment, WORDS, WORDS, WORDS),
    requested_model=WORDS,
    tags=st.lists(st.sampled_from(["env:prod", "env=a", "rag-prod", "search", "cost:1"]), max_size=3).map(tuple),
    more=st.dictionaries(st.sampled_from(["key_alias", "gateway", "header.x-team", "metadata.owner"]), WORDS, max_size=4),
)


def written(drawn: dict[str, Any]) -> dict[str, Any]:
    """A drawn set as a person would write it."""
    rules = [
        {
            "name": f"r{number}",
            "when": [{"field": field, "op": operator, "value": value} for field, (operator, value) in one["when"]],
            "set": one["set"],
            "then": one["then"],
        }
        for number, one in enumerate(drawn["rules"])
    ]
    return {**drawn, "rules": rules}


@given(SETS, st.lists(FACTS, min_size=1, max_size=5))
def test_the_guard_charges_whom_the_centre_charges(drawn: dict[str, Any], many: list[Facts]) -> None:
    item = written(drawn)
    try:
        matcher = Matcher(decode_rules(item))
    except BadInput:
        return
    version = IdentityRules(told((T0, item))).at(T0.timestamp())
    assert version is not None
    for facts in [*many, *many]:
        said = (facts.said.org, facts.said.team, facts.said.project, facts.said.user)
        charge = version.charge(said, facts.service_tier, tuple(facts.values(field) for field in version.fields))
        found = matcher.resolve(facts)
        t = found.tenant
        assert (charge.path, charge.service_tier) == ((t.org, t.team, t.project, t.user), found.service_tier)


EVERYTHING = ["user", "tag", "header.x-team", "header.x-api-key", "metadata.owner", "metadata.cost"]


@pytest.mark.parametrize(
    "field",
    ["org", "team", "project", "key_id", "key_alias", "service_tier", "requested_model", "model_id", "cluster", "namespace",
     "gateway", "tag.env", "tag.cost", *EVERYTHING],
)  # fmt: skip
@pytest.mark.parametrize(
    "data",
    [
        call_data(key()),
        call_data(key(key_alias=None)),
        call_data(key(key_alias="k" * 65)),
        call_data(key(metadata={"owner": "ops", "tags": ["env:prod", "cost=cc 7 "]}), labels={"owner": "client", "cost": "9"}),
        call_data(key(), tags=("env:dev", "env=prod", "project:chat", "service_tier:P2"), user="ann"),
        call_data(key(organization_alias=None, org_id=None, team_alias=None, team_id=None), tags=("team:ads",)),
        call_data(key(user_id=None, end_user_id="jwt-user")),
        call_data(key(), headers={"x-team": "ads", "x-api-key": "secret"}, labels={"owner": 7, "cost": "x" * 65}),
    ],
    ids=["plain", "no alias", "alias too long", "key's labels win", "client's tags", "nobody's key", "end user", "headers"],
)
def test_the_guard_sees_the_same_facts_as_the_ledger(field: str, data: dict[str, Any]) -> None:
    """Each field is caught whole: what guard and ledger make of it is the same, where the gateway sets what clients could."""
    item = rule_set(
        rule(field, "regex", "(.*)", team="is $1"), rule(field, "exact", "", name="none", team="absent"), gateway_sets=EVERYTHING
    )
    names = {"a" * 64: "from-the-table"}
    guard = Guard(GuardSettings(org="default"), lambda: T0.timestamp())
    guard.rules = IdentityRules(told((T0, item), names=names))
    user = user_of(data)
    seen, tier = charge_of(guard, user, data, "tiny", "default/default/tiny")
    [row] = LiteLlm().rows(BytesIO(orjson.dumps(logged_payload(data))), SourceOptions(tenant=TenantPath(org="default")))
    assert isinstance(row, Prepared)
    facts = record_facts(orjson.loads(row.record), is_new=True)
    charged = Matcher(decode_rules(item)).resolve(named(facts, {"a" * 64: ((T0, "from-the-table"),)}, 0))
    t = charged.tenant
    path = "/".join([t.org, t.team, t.project, t.user]).rstrip("/")
    assert (path.startswith(seen), tier) == (True, charged.service_tier)
    assert seen.split("/")[:2] == [t.org, t.team] or "/" in t.team


def user_of(data: dict[str, Any]) -> Any:
    """The key that ``call_data`` was made for."""
    m = data["metadata"]
    return key(
        key_alias=m["user_api_key_alias"], organization_alias=m["user_api_key_org_alias"], org_id=m["user_api_key_org_id"],
        team_alias=m["user_api_key_team_alias"], team_id=m["user_api_key_team_id"], user_id=m["user_api_key_user_id"],
        end_user_id=m["user_api_key_end_user_id"], metadata=m["user_api_key_auth_metadata"],
    )  # fmt: skip

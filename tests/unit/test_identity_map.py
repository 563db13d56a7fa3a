"""Identity rules at the boundary: whatever form a record has, line and record say the new tenant, the source's word is kept."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from usage_samples import NOW, MemoryLog, parsed, usage_item

from core.errors import Unavailable
from core.identity import RuleVersion
from core.identity_codec import decode_rules, record_facts
from core.identity_match import Matcher
from core.identity_state import IdentityState
from core.usage import LINE_COLUMNS, TenantPath, encode_line, line_fields
from core.usage_codec import decode_usage
from ingest.usage.identity_map import IdentityMapper
from ingest.usage.rows import BadRow, Prepared, prepare
from ingest.usage.service import UsageIngest

BY_TEAM = {
    "default": {},
    "rules": [
        {"name": "search", "when": [{"field": "team", "op": "exact", "value": "search"}],
         "set": {"org": "acme, Inc.", "team": "research", "service_tier": "P2"}},
        {"name": "tagged", "when": [{"field": "tag.team", "op": "regex", "value": "(.+)"}], "set": {"team": "$1"}},
        {"name": "alias", "when": [{"field": "key_alias", "op": "prefix", "value": "rag-"}], "set": {"project": "rag"}},
        {"name": "model", "when": [{"field": "requested_model", "op": "prefix", "value": "gpt"}], "set": {"project": "vendor"}},
    ],
}  # fmt: skip


def version(rules: Any, number: int = 1, since: timedelta = timedelta(days=-30)) -> RuleVersion:
    return RuleVersion(number, NOW + since, "ann", "why", NOW, decode_rules(rules))


def mapper(*versions: RuleVersion, names: Any = None) -> IdentityMapper:
    state = IdentityState("1", versions, names or {})
    return IdentityMapper(lambda held: None if held == "1" else state, lambda: 0.0)


def rows_of(*items: dict[str, Any]) -> list[Prepared]:
    """The rows by the fast ways that apply, each item a line of its own, often enough to be learnt by shape."""
    lines = b"\n".join(orjson.dumps(item) for item in items for _ in range(12))
    return [row for row in parsed("usage", lines)[11::12] if isinstance(row, Prepared)]


RAW = {"prompt_tokens": 1, "completion_tokens": 1}
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "raw": {"raw": RAW},
    "facts": {"raw": {"identity": {"tags": ["team:ads"], "key_alias": "rag-1"}, **RAW}},
    "facts last": {"raw": {**RAW, "identity": {"key_alias": "rag-1", "tags": ["team:ads"]}}},
    "no facts": {"raw": {"identity": {}, **RAW}},
    "claims to be mapped": {"raw": {"identity": {"said": {"org": "stolen", "team": "search"}, "rules": "9"}}},
    "names in the raw": {"raw": {"x": {"identity": {"a": "b"}}, "raw": {"identity": {"key_alias": "rag-2"}}, **RAW}},
    "policy": {"policy": {"raw": {"identity": {"a": "b"}}, "action": "truncate"}, "raw": RAW},
    "commas": {"tenant": {"org": "a, b", "team": "search", "project": ",P", "user": "x,P1,y", "key_id": ",P2"}},
    "comma id": {"request_id": "a,b", "deployment": {"cluster": "c,P", "namespace": ",", "model_id": "m,P1"}},
    "model": {"requested_model": "gpt,\"P1\"", "raw": RAW},
    "unicode": {"tenant": {"org": "星辰", "team": "search", "project": "", "user": "张伟", "key_id": "k"}, "raw": RAW},
    "wasted": {"status": "error", "service_tier": "P0", "n": 3},
    "not search": {"tenant": {"org": "acme", "team": "Portal", "project": "P", "user": "", "key_id": ""}},
    "early": {"started_at": "2001-01-01T00:00:00Z", "first_token_at": None, "finished_at": "2001-01-01T00:00:01Z"},
}  # fmt: skip


def expected(row: Prepared, rules: Any) -> tuple[TenantPath, str]:
    found = Matcher(decode_rules(rules)).resolve(record_facts(orjson.loads(row.record), is_new=True))
    return found.tenant, found.service_tier


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("team", ["search", "other"])
def test_line_and_record_say_the_new_tenant_and_keep_the_old(form: str, team: str) -> None:
    item = usage_item(1, **FORMS[form])
    item["tenant"] = {**item["tenant"], "team": team if item["tenant"]["team"] == "search" else item["tenant"]["team"]}
    (row,) = rows_of(item)
    everything = (
        version(BY_TEAM, since=timedelta(days=-40_00)) if form != "early" else version(BY_TEAM, since=timedelta(days=-9999))
    )
    (found,) = mapper(everything).apply([row])
    assert isinstance(found, Prepared)
    tenant, tier = expected(row, BY_TEAM)
    before, after = orjson.loads(row.record), orjson.loads(found.record)
    assert after["tenant"] == {key: getattr(tenant, key) for key in ("org", "team", "project", "user", "key_id")}
    assert after["service_tier"] == tier
    line = dict(zip(LINE_COLUMNS, next(csv.reader([found.line])), strict=True))
    said = dict(zip(LINE_COLUMNS, next(csv.reader([row.line])), strict=True))
    named = ("org", "team", "project", "user_id", "key_id", "service_tier")
    assert tuple(line[n] for n in named) == (tenant.org, tenant.team, tenant.project, tenant.user, tenant.key_id, tier)
    assert {n: v for n, v in line.items() if n not in named} == {n: v for n, v in said.items() if n not in named}
    assert found.line == encode_line(line_fields(decode_usage(after)))
    changed = (tenant, tier) != (decode_usage(before).tenant, before["service_tier"])
    if not changed:
        assert found == row
        return
    assert after["raw"]["identity"]["said"] == {
        **{k: before["tenant"][k] for k in ("org", "team", "project", "user")}, "service_tier": before["service_tier"],
    }  # fmt: skip
    assert after["raw"]["identity"]["rules"] == "1"
    assert record_facts(after) == record_facts(before, is_new=True)
    rest = {name: value for name, value in after.items() if name not in ("tenant", "service_tier", "raw")}
    assert rest == {name: value for name, value in before.items() if name not in ("tenant", "service_tier", "raw")}
    kept = {name: value for name, value in after["raw"].items() if name != "identity"}
    assert kept == {name: value for name, value in (before.get("raw") or {}).items() if name != "identity"}


words = st.sampled_from(["search", "ads", "", "P1", "a,P2", "x y", "星辰"])
tenants = st.fixed_dictionaries({key: words for key in ("org", "team", "project", "user", "key_id")})
tags = st.lists(st.sampled_from(["team:ads", "team:}{", 'team:"']), max_size=2)
identities = st.fixed_dictionaries(
    {}, optional={"key_alias": st.sampled_from(["rag-1", "x"]), "tags": tags, "n": st.dictionaries(words, words, max_size=2)}
)
others = st.dictionaries(words, st.integers(0, 5), max_size=2)
raws = st.none() | st.fixed_dictionaries({}, optional={"prompt_tokens": st.integers(0, 9), "identity": identities, "z": others})


@given(tenants, raws, st.sampled_from(["P0", "P1", "P2"]), st.sampled_from(["", "gpt-4", 'gpt "x"']))
def test_mapping_the_bytes_is_mapping_the_record(tenant: Any, raw: Any, tier: str, model: str) -> None:
    """Two forms of one rule: cut and joined bytes, and the record decoded, resolved and encoded anew."""
    item = usage_item(1, tenant=tenant, service_tier=tier, requested_model=model, **({"raw": raw} if raw else {}))
    record = decode_usage(item)
    row = prepare(record)
    (found,) = mapper(version(BY_TEAM)).apply([row])
    assert isinstance(found, Prepared)
    path, new_tier = expected(row, BY_TEAM)
    want = prepare(replace(record, tenant=path, service_tier=new_tier))  # type: ignore[arg-type]
    assert found.line == want.line
    after, wanted = orjson.loads(found.record), orjson.loads(want.record)
    for body in (after, wanted):
        body.pop("raw", None)
    assert after == wanted


def test_without_rules_rows_pass_untouched() -> None:
    rows = rows_of(usage_item(1))
    assert mapper().apply(rows) is rows


def test_a_record_is_mapped_by_the_version_in_force_when_it_finished() -> None:
    """Published between two records; a late record is mapped as if it had come in time."""

    def rules(team: str) -> Any:
        return {"default": {}, "rules": [{"name": "x", "when": [{"field": "org", "value": "acme"}], "set": {"team": team}}]}

    first, second = version(rules("one"), 1, timedelta(minutes=-10)), version(rules("two"), 2, timedelta(minutes=-5))
    items = []
    for minutes in (11, 10, 6, 5, 1):
        finished = NOW - timedelta(minutes=minutes)
        items.append(usage_item(minutes, started_at=finished.isoformat(), first_token_at=None, finished_at=finished.isoformat()))
    found = mapper(first, second).apply(rows_of(*items))
    teams = [orjson.loads(row.record)["tenant"]["team"] for row in found if isinstance(row, Prepared)]
    assert teams == ["search", "one", "one", "two", "two"]


def test_a_key_is_known_by_the_name_it_had_then() -> None:
    by_alias = {
        "default": {},
        "rules": [{"name": "x", "when": [{"field": "key_alias", "op": "regex", "value": "(.+)"}], "set": {"team": "$1"}}],
    }
    names = {"k": ((NOW - timedelta(days=9), "old"), (NOW - timedelta(minutes=5), "new"))}
    at = [NOW - timedelta(minutes=m) for m in (6, 1)]
    items = [usage_item(n, started_at=t.isoformat(), first_token_at=None, finished_at=t.isoformat()) for n, t in enumerate(at)]
    found = mapper(version(by_alias), names=names).apply(rows_of(*items))
    assert [orjson.loads(row.record)["tenant"]["team"] for row in found if isinstance(row, Prepared)] == ["old", "new"]


def test_rules_are_read_again_when_due_and_the_last_ones_hold_while_the_database_is_away() -> None:
    states: list[Any] = [
        IdentityState("1"),
        None,
        Unavailable("away"),
        IdentityState("2", (version(BY_TEAM),)),
        Unavailable("away"),
    ]
    clock, asked = [0.0], []

    def load(held: str) -> IdentityState | None:
        asked.append(held)
        state = states[len(asked) - 1]
        if isinstance(state, Exception):
            raise state
        return state  # type: ignore[no-any-return]

    one = IdentityMapper(load, lambda: clock[0], refresh_s=5)
    rows = rows_of(usage_item(1))
    changed = []
    for seconds in (0, 4, 5, 10, 15, 20):
        clock[0] = float(seconds)
        changed.append(one.apply(rows)[0] != rows[0])
    assert asked == ["", "1", "1", "1", "2"]
    assert changed == [False, False, False, False, True, True]


def test_without_ever_having_read_the_rules_nothing_is_taken() -> None:
    def away(_held: str) -> IdentityState | None:
        raise Unavailable("away")

    with pytest.raises(Unavailable):
        IdentityMapper(away, lambda: 0.0).apply(rows_of(usage_item(1)))


def test_rules_do_not_lead_out_of_the_tenant_a_token_is_bound_to() -> None:
    log = MemoryLog()
    ingest = UsageIngest(
        log, now=lambda: NOW, ensure_partitions=lambda _: None, archive_has=lambda _: set(), identity=mapper(version(BY_TEAM))
    )
    verdicts = ingest.accept(rows_of(usage_item(1)), within=("acme",))
    assert [(v.verdict, v.field) for v in verdicts] == [("quarantined", "tenant")]
    assert "outside this token's tenant acme" in verdicts[0].reason
    assert log.lines("usage") == []
    assert [v.verdict for v in ingest.accept(rows_of(usage_item(2)), within=("acme, Inc.",))] == ["accepted"]
    assert json.loads(log.records()[0]["raw"]["identity"]["rules"]) == 1


def test_bad_rows_pass_as_they_are() -> None:
    rows = parsed("usage", b'[{"schema":"usage/1"}]')
    assert list(mapper(version(BY_TEAM)).apply(rows)) == rows
    assert isinstance(rows[0], BadRow)

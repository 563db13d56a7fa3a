"""The identity rules as guards get them: which versions, whose names, how large they may be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput, Refused
from core.identity import RuleVersion, in_force
from core.identity_codec import decode_rules, digest_of, encode_rules
from core.identity_guard import BEHIND, MAX_BYTES, MAX_BYTES_ALL, carried, check_size, client_conditions, fitted, section, size
from core.identity_match import Matcher
from core.identity_state import IdentityState, Names
from core.policy import PolicyBody, canonical_json, digest, parse_body

T0 = datetime(2026, 11, 30, 12, tzinfo=UTC)
RAG = {"name": "rag", "when": [{"field": "key_alias", "op": "regex", "value": "^rag-([a-z]+)$"}], "set": {"team": "$1"}}


def version(number: int, since: datetime, *rules: dict[str, Any], **rest: Any) -> RuleVersion:
    return RuleVersion(number, since, "ann", "r", since, decode_rules({"rules": list(rules), **rest}))


def state(*versions: RuleVersion, **names: str) -> IdentityState:
    known: dict[str, Names] = {key: ((T0, name),) for key, name in names.items()}
    return IdentityState("1", versions, known)


def test_the_section_is_compact_and_says_all_a_rule_means() -> None:
    goes_on = {"name": "p", "when": [{"field": "tag.env", "value": "dev"}], "set": {"service_tier": "P2"}, "then": "continue"}
    found = section(state(version(3, T0, goes_on, RAG, start="empty", gateway_sets=["tag.env"])), T0)
    assert found == {
        "format": 1,
        "names": {},
        "versions": [
            {
                "version": 3, "from_ms": 1796040000000, "start": "empty", "default": {"org": "unassigned"},
                "gateway_sets": ["tag.env"],
                "rules": [
                    {"when": [["tag.env", "exact", "dev"]], "set": {"service_tier": "P2"}, "then": "continue"},
                    {"when": [["key_alias", "regex", "rag-([a-z]+)"]], "set": {"team": "$1"}},
                ],
            }
        ],
    }  # fmt: skip


def test_without_rules_there_is_no_section_and_the_document_is_as_before() -> None:
    assert section(IdentityState(), T0) is None
    body = PolicyBody(1, T0, T0, "g", "open", ())
    assert "identity" not in body.canonical()
    assert digest(()) == digest((), None) != digest((), {})
    told = section(state(version(1, T0, RAG)), T0)
    again = parse_body(PolicyBody(1, T0, T0, "g", "open", (), told).canonical())
    assert again.identity == told


@given(
    st.lists(st.integers(0, 120), max_size=6),
    st.integers(0, 120),
    st.integers(-9, 120),
)
def test_what_is_carried_answers_every_time_from_a_guards_slow_clock_on(starts: list[int], now_minutes: int, later: int) -> None:
    versions = [version(n, T0 + timedelta(minutes=start)) for n, start in enumerate(starts, 1)]
    now = T0 + timedelta(minutes=now_minutes)
    at = now + timedelta(minutes=later)
    assert in_force(carried(versions, now), at) == in_force(versions, at)


def test_a_version_goes_when_no_guards_clock_can_need_it() -> None:
    versions = [version(1, T0 - timedelta(days=1)), version(2, T0)]
    assert [v.version for v in carried(versions, T0 + BEHIND - timedelta(seconds=1))] == [1, 2]
    assert [v.version for v in carried(versions, T0 + BEHIND)] == [2]


NAMES = {"k1": "rag-prod", "k2": "chat", "k3": "rag-2"}


@pytest.mark.parametrize(
    ("condition", "carried_names"),
    [
        ({"field": "key_alias", "op": "regex", "value": "rag-([a-z]+)"}, {"k1"}),
        ({"field": "key_alias", "op": "prefix", "value": "rag-"}, {"k1", "k3"}),
        ({"field": "key_alias", "value": "other"}, set()),
        ({"field": "key_alias", "value": ""}, {"k1", "k2", "k3"}),
        ({"field": "org", "value": "acme"}, set()),
    ],
    ids=["pattern", "prefix", "none", "the absence of a name", "no rule looks"],
)
def test_only_names_that_a_rule_tells_from_none_are_carried(condition: dict[str, Any], carried_names: set[str]) -> None:
    rule = {"name": "r", "when": [condition], "set": {"team": "x"}}
    found = section(state(version(1, T0, rule), **NAMES), T0)
    assert found is not None
    assert found["names"] == {key: NAMES[key] for key in carried_names}


def many(number: int, width: int = 100) -> list[dict[str, Any]]:
    value = "x" * width
    return [{"name": f"r{n}", "when": [{"field": "user", "value": f"{n}{value}"}], "set": {"team": value}} for n in range(number)]


def test_the_largest_set_of_simple_rules_fits_and_a_larger_section_is_refused() -> None:
    fits = section(state(version(1, T0, *many(500))), T0)
    assert fits is not None
    check_size(fits, 100)
    over = {**fits, "names": {f"{n:064d}": "rag-" + "x" * 50 for n in range(4_000)}}
    assert size(over) > MAX_BYTES
    with pytest.raises(Refused, match="at most 524,288 are published"):
        check_size(over, 1)


def test_rules_times_guards_are_bounded() -> None:
    found = section(state(version(1, T0, *many(100))), T0)
    most = MAX_BYTES_ALL // size(found)
    check_size(found, most)
    with pytest.raises(Refused, match=f"for each of {most + 1:,} guards"):
        check_size(found, most + 1)


def test_names_that_grew_later_are_left_out_before_the_rules_are() -> None:
    found = section(state(version(1, T0, RAG), **{f"k{n}": "rag-" + "x" * 100 for n in range(6_000)}), T0)
    assert found is not None
    fits, left_out = fitted(found)
    assert (fits, left_out) == ({**found, "names": {}}, "the names of 6,000 keys")
    assert fitted(fits) == (fits, "")
    assert fitted(None) == (None, "")
    assert size(fits) == len(canonical_json(fits))


def test_marks_are_kept_and_sets_without_them_keep_their_digest() -> None:
    marked = decode_rules({"rules": [RAG], "gateway_sets": ["header.x-team", "tag", "user"]})
    assert decode_rules(encode_rules(marked)) == marked
    plain = decode_rules({"rules": [RAG]})
    assert "gateway_sets" not in encode_rules(plain)
    assert digest_of(plain) != digest_of(marked)


@pytest.mark.parametrize(
    ("marks", "says"),
    [("x", "must be a list"), ([1], "must be a text"), (["org"], "needs no mark"), (["ip"], "is not a field"),
     (["header."], "is not a field"), (["tag"] * 51, "at most 50")],
)  # fmt: skip
def test_only_what_a_client_can_write_is_marked(marks: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Matcher(decode_rules({"gateway_sets": marks}))


def test_conditions_on_the_clients_word_are_listed() -> None:
    def rule(name: str, field: str) -> dict[str, Any]:
        return {"name": name, "when": [{"field": field, "value": "a"}, {"field": "org", "value": "b"}], "set": {"team": "x"}}

    found = decode_rules({"rules": [rule("a", "header.x-a"), rule("b", "tag.env"), rule("c", "header.x-b"), rule("d", "org")],
                          "gateway_sets": ["header.x-a", "tag"]})  # fmt: skip
    assert client_conditions(found.rules, found.gateway_sets) == ["c: header.x-b = a"]

"""The policy document: what is signed is what is sent, and a guard takes only what is meant for it, newer, and in time."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput, Refused
from core.policy import (
    PolicyBody,
    PolicyEntry,
    SigningKey,
    canonical_json,
    digest,
    next_version,
    parse_body,
    rfc3339,
    sign,
    verify,
)

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OLD, NEW = SigningKey("k1", b"0" * 32), SigningKey("k2", b"1" * 32)
REJECT = PolicyEntry(
    id="breaker:7", scope="tenant:acme/red", tier=3, action="reject", reason="95 % of the cap", retry_after_s=41,
    priority=300, exempt=("tenant:acme/red/p1/ceo",), breaker=7, epoch=3,
)  # fmt: skip
LIMIT = PolicyEntry(
    id="limit:1", scope="service_tier:P2", tier=0, action="limit", reason="standing limit", limits={"max_prompt_tokens": 4096}
)
BODY = PolicyBody(1_764_504_000_000, AT, AT + timedelta(minutes=15), "gw-1", "open", (REJECT, LIMIT))


def test_the_body_is_canonical_and_complete() -> None:
    text = BODY.canonical()
    assert text == canonical_json(json.loads(text))
    raw = json.loads(text)
    assert set(raw) == {"version", "issued_at", "expires_at", "guard", "on_expiry", "entries"}
    assert raw["issued_at"] == "2026-11-30T12:00:00.000Z"
    assert raw["entries"][0] == {
        "id": "breaker:7", "scope": "tenant:acme/red", "tier": 3, "action": "reject", "priority": 300, "reroute_to": "",
        "limits": {}, "allowed_models": [], "retry_after_s": 41, "reason": "95 % of the cap",
        "exempt": ["tenant:acme/red/p1/ceo"], "shadow": False, "breaker": 7, "epoch": 3, "mode": "enforce",
    }  # fmt: skip
    assert parse_body(text) == BODY


def test_the_signature_is_plain_hmac_over_the_transmitted_bytes() -> None:
    document = sign(BODY.canonical(), [OLD])
    assert document["signatures"] == [
        {"key_id": "k1", "hmac_sha256": hmac.new(b"0" * 32, document["body"].encode(), hashlib.sha256).hexdigest()}
    ]


@pytest.mark.parametrize(
    ("signers", "known"),
    [([OLD], [OLD]), ([OLD, NEW], [OLD]), ([OLD, NEW], [NEW]), ([NEW], [OLD, NEW])],
    ids=["one key", "rotation: guard still old", "rotation: guard already new", "rotation over"],
)
def test_rotation_has_no_gap(signers: list[SigningKey], known: list[SigningKey]) -> None:
    assert verify(sign(BODY.canonical(), signers), known, "gw-1", 0, AT) == BODY


@pytest.mark.parametrize(
    ("guard", "held", "now", "keys", "says"),
    [
        ("gw-2", 0, AT, [OLD], "meant for guard 'gw-1'"),
        ("gw-1", BODY.version + 1, AT, [OLD], "older than the held"),
        ("gw-1", 0, BODY.expires_at, [OLD], "expired at 2026-11-30T12:15:00.000Z"),
        ("gw-1", 0, AT, [NEW], "no signature"),
        ("gw-1", 0, AT, [SigningKey("k1", b"2" * 32)], "no signature"),
    ],
)
def test_a_guard_refuses(guard: str, held: int, now: datetime, keys: list[SigningKey], says: str) -> None:
    with pytest.raises(Refused, match=says):
        verify(sign(BODY.canonical(), [OLD]), keys, guard, held, now)


def test_the_held_version_itself_is_taken_again() -> None:
    assert verify(sign(BODY.canonical(), [OLD]), [OLD], "gw-1", BODY.version, AT).version == BODY.version


@pytest.mark.parametrize("signatures", [None, [], "x", [None], [{"key_id": "k1"}], [{"key_id": "k1", "hmac_sha256": "é"}]])
def test_broken_signatures_are_refused_not_crashed_on(signatures: object) -> None:
    with pytest.raises(Refused):
        verify({"body": BODY.canonical(), "signatures": signatures}, [OLD], "gw-1", 0, AT)


@given(st.integers(0, 10**6))
def test_any_changed_character_breaks_the_signature(position: int) -> None:
    document = sign(BODY.canonical(), [OLD])
    text = document["body"]
    at = position % len(text)
    document["body"] = text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :]
    with pytest.raises(Refused, match="no signature"):
        verify(document, [OLD], "gw-1", 0, AT)


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"version": "x"}', BODY.canonical().replace("reject", "explode")])
def test_a_signed_body_of_the_wrong_shape_is_named(body: str) -> None:
    with pytest.raises(BadInput):
        verify(sign(body, [OLD]), [OLD], "gw-1", 0, AT)


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=1))
def test_versions_grow_whatever_the_clock_does(clock: list[datetime]) -> None:
    last: int | None = None
    for at in clock:
        version = next_version(last, at)
        assert last is None or version > last
        last = version


def test_equal_instructions_have_equal_digests() -> None:
    assert digest([REJECT, LIMIT]) == digest([replace(REJECT), LIMIT]) != digest([LIMIT, REJECT])


def test_canonical_json_refuses_floats_with_their_place() -> None:
    with pytest.raises(BadInput, match=r"\$\.a\[1\]"):
        canonical_json({"a": [1, 0.5]})


def test_an_unknown_limit_or_scope_never_reaches_a_guard() -> None:
    with pytest.raises(BadInput, match=r"limits\.max_fun"):
        replace(LIMIT, limits={"max_fun": 1})
    with pytest.raises(BadInput, match="scope"):
        replace(LIMIT, scope="team:red")


def test_short_keys_are_refused_and_never_shown() -> None:
    with pytest.raises(BadInput, match="16 bytes"):
        SigningKey("k", b"short")
    assert "0000" not in repr(OLD)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(BadInput, match="no zone"):
        rfc3339(datetime(2026, 1, 1))  # noqa: DTZ001

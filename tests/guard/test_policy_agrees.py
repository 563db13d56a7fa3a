"""The guard's verifier and the centre's signer are two programs: what one signs the other takes, and both refuse the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadInput, Refused
from core.policy import PolicyBody, PolicyEntry, SigningKey, sign, verify
from tokenfuse_guard.entries import RequestFacts
from tokenfuse_guard.policy import PolicyError
from tokenfuse_guard.policy import verify as guard_verify

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OLD, NEW = SigningKey("k1", b"0" * 32), SigningKey("k2", b"1" * 32)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters='/"\\', exclude_categories=["C", "Z"]), min_size=1, max_size=12)
ENTRIES = st.lists(
    st.builds(
        PolicyEntry,
        id=NAMES,
        scope=st.one_of(
            st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: "tenant:" + "/".join(parts)),
            st.tuples(NAMES, NAMES, NAMES).map(lambda parts: "deployment:" + "/".join(parts)),
            st.sampled_from(["platform", "service_tier:P2"]),
        ),
        tier=st.integers(0, 3),
        action=st.sampled_from(["reject", "truncate", "reroute", "delay", "limit"]),
        reason=st.text(max_size=20).filter(lambda text: text.isprintable()),
        priority=st.integers(0, 400),
        limits=st.dictionaries(st.sampled_from(["max_prompt_tokens", "max_output_tokens"]), st.integers(0, 10**6)),
        allowed_models=st.lists(NAMES, max_size=2).map(tuple),
        retry_after_s=st.integers(0, 3600),
        shadow=st.booleans(),
        mode=st.sampled_from(["enforce", "warn"]),
        breaker=st.integers(0, 99),
        epoch=st.integers(0, 99),
    ),
    max_size=8,
)


def body(entries: tuple[PolicyEntry, ...] = (), version: int = 7, guard: str = "edge") -> PolicyBody:
    return PolicyBody(version, AT, AT + timedelta(minutes=15), guard, "closed", entries)


def keys(*given: SigningKey) -> tuple[tuple[str, bytes], ...]:
    return tuple((key.key_id, key.secret) for key in given)


@given(ENTRIES)
def test_the_guard_reads_every_field_the_centre_writes(entries: list[PolicyEntry]) -> None:
    document = sign(body(tuple(entries)).canonical(), [OLD, NEW])
    policy = guard_verify(document, keys(NEW), "edge", 7, AT.timestamp())
    assert (policy.version, policy.on_expiry, policy.guard) == (7, "closed", "edge")
    assert policy.expires_at_s == (AT + timedelta(minutes=15)).timestamp()
    held = [entry for found in policy.by_scope.values() for entry in found]
    assert len(held) == len(entries)
    for written in entries:
        read = next(e for e in held if e.id == written.id and e.scope == written.scope and e.epoch == written.epoch)
        match = [e for e in held if (e.id, e.scope) == (written.id, written.scope)]
        assert any(
            (e.action, e.tier, e.limits, e.allowed_models, e.retry_after_s, e.reason, e.breaker, e.epoch, e.priority)
            == (
                written.action, written.tier, dict(written.limits), frozenset(written.allowed_models), written.retry_after_s,
                written.reason, written.breaker, written.epoch, written.priority,
            )
            and e.acts is (not written.shadow and written.mode == "enforce")
            for e in match
        ), read.id  # fmt: skip


@pytest.mark.parametrize(
    ("signers", "known", "guard", "held", "at"),
    [
        ([OLD], [NEW], "edge", 0, AT),
        ([OLD], [OLD], "other", 0, AT),
        ([OLD], [OLD], "edge", 8, AT),
        ([OLD], [OLD], "edge", 0, AT + timedelta(minutes=15)),
        ([OLD], [SigningKey("k1", b"2" * 32)], "edge", 0, AT),
    ],
    ids=["unknown key", "another guard's", "older than held", "expired", "same key id, other secret"],
)
def test_both_refuse_the_same(signers: list[SigningKey], known: list[SigningKey], guard: str, held: int, at: datetime) -> None:
    document = sign(body().canonical(), signers)
    with pytest.raises(Refused):
        verify(document, known, guard, held, at)
    with pytest.raises(PolicyError):
        guard_verify(document, keys(*known), guard, held, at.timestamp())


@pytest.mark.parametrize("signatures", [None, [], "x", [None], [{"key_id": "k1"}], [{"key_id": "k1", "hmac_sha256": "é"}]])
def test_broken_signatures_are_refused_by_both(signatures: object) -> None:
    document = {"body": body().canonical(), "signatures": signatures}
    with pytest.raises(Refused):
        verify(document, [OLD], "edge", 0, AT)
    with pytest.raises(PolicyError) as found:
        guard_verify(document, keys(OLD), "edge", 0, AT.timestamp())
    assert found.value.code == "signature"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": "x"}'])
def test_a_signed_body_of_the_wrong_shape_is_refused_by_both(text: str) -> None:
    document = sign(text, [OLD])
    with pytest.raises(BadInput):
        verify(document, [OLD], "edge", 0, AT)
    with pytest.raises(PolicyError) as found:
        guard_verify(document, keys(OLD), "edge", 0, AT.timestamp())
    assert found.value.code == "shape"


@given(st.lists(NAMES, min_size=1, max_size=4), st.integers(1, 4))
def test_a_tenant_scope_covers_what_the_centre_says_it_covers(path: list[str], depth: int) -> None:
    depth = min(depth, len(path))
    entry = PolicyEntry(id="x", scope="tenant:" + "/".join(path[:depth]), tier=3, action="reject", reason="r")
    policy = guard_verify(sign(body((entry,)).canonical(), [OLD]), keys(OLD), "edge", 0, AT.timestamp())
    inside = RequestFacts(tenant="/".join(path))
    beside = RequestFacts(tenant="/".join([*path[: depth - 1], path[depth - 1] + "x", *path[depth:]]))
    assert policy.decide(policy.match(inside), inside).refusal is not None
    assert policy.decide(policy.match(beside), beside).refusal is None

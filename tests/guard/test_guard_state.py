"""A guard over its life: what it obeys after a restart, on expiry, with the glass broken, and what it reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from guard_clock import Clock
from guard_servers import KEY, KEY_ID, limit, reject, signed, stamp

from api.schemas.policy import GuardReportIn
from tokenfuse_guard.entries import RequestFacts
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.policy import PolicyError
from tokenfuse_guard.settings import GuardSettings, SettingsError, from_env
from tokenfuse_guard.tenant_header import read_tenant, sign_tenant

FACTS = RequestFacts(model="tiny", deployment="eu/prod/tiny", tenant="acme/search")


def at(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock(), UTC)


def refused(guard: Guard, facts: RequestFacts = FACTS) -> bool:
    posture = guard.posture()
    if not posture.obey:
        guard.count_posture(posture)
        return posture.refusal is not None
    return guard.decide(guard.match(facts), facts)[0].refusal is not None


def test_a_restarted_guard_obeys_at_once_what_it_held(guard: Guard, settings: GuardSettings, clock: Clock) -> None:
    guard.take(signed([reject("tenant:acme")], version=5, now=at(clock)))
    assert refused(Guard(settings, clock))


def test_a_restart_does_not_open_the_door_to_an_older_policy(guard: Guard, settings: GuardSettings, clock: Clock) -> None:
    guard.take(signed([reject("tenant:acme")], version=5, now=at(clock)))
    with pytest.raises(PolicyError, match="older than the held 5"):
        Guard(settings, clock).take(signed([], version=4, now=at(clock)))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"body": "{}", "signatures": []}'])
def test_a_damaged_kept_policy_is_not_used_and_said(guard: Guard, settings: GuardSettings, clock: Clock, text: str) -> None:
    guard.take(signed([reject("tenant:acme")], now=at(clock)))
    (Path(settings.state_dir) / "policy.json").write_text(text)
    again = Guard(settings, clock)
    assert again.policy is None
    assert "kept policy not used" in again.fault


@pytest.mark.parametrize(
    ("document_says", "settings_say", "refuses"),
    [("open", None, False), ("closed", None, True), ("closed", "open", False), ("open", "closed", True)],
)
def test_an_expired_policy_fails_as_configured(
    settings: GuardSettings, clock: Clock, document_says: str, settings_say: str | None, refuses: bool
) -> None:
    guard = Guard(settings._replace(on_expiry=settings_say), clock)
    guard.take(signed([], on_expiry=document_says, lives_s=900, now=at(clock)))
    clock.at_s += 899
    assert not refused(guard)
    clock.at_s += 1
    assert refused(guard) is refuses
    report = guard.report()
    assert report["expired"] is True
    assert "policy_expired" in report["note"]


@pytest.mark.parametrize(("mode", "refuses"), [(None, False), ("open", False), ("closed", True)])
def test_before_the_first_policy_it_is_open_unless_told_otherwise(
    settings: GuardSettings, clock: Clock, mode: str | None, refuses: bool
) -> None:
    assert refused(Guard(settings._replace(on_expiry=mode), clock)) is refuses


def break_glass(settings: GuardSettings, until: datetime, **more: str) -> None:
    Path(settings.state_dir).mkdir(exist_ok=True)
    (Path(settings.state_dir) / "break-glass.json").write_text(json.dumps({"until": stamp(until), "reason": "outage", **more}))


def test_break_glass_passes_everything_until_its_end_and_is_reported(guard: Guard, settings: GuardSettings, clock: Clock) -> None:
    guard.take(signed([reject("platform")], lives_s=900, now=at(clock)))
    assert refused(guard)
    break_glass(settings, datetime.fromtimestamp(clock() + 60, UTC))
    clock.at_s += 2
    assert not refused(guard)
    assert guard.report()["break_glass"]["reason"] == "outage"
    clock.at_s += 60
    assert refused(guard)
    assert guard.report()["break_glass"] is None


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"until": "2026-12-01T00:00:00Z"}', '{"until": "2026-12-01T00:00:00", "reason": "naive"}']
)
def test_a_break_glass_file_without_end_or_reason_breaks_nothing(
    guard: Guard, settings: GuardSettings, clock: Clock, text: str
) -> None:
    guard.take(signed([reject("platform")], now=at(clock)))
    (Path(settings.state_dir) / "break-glass.json").write_text(text)
    assert refused(guard)
    assert "break-glass" in guard.fault


def test_the_report_counts_by_entry_breaker_and_epoch(guard: Guard, clock: Clock) -> None:
    entries = [reject("tenant:acme", breaker=7, epoch=3), reject("platform", shadow=True)]
    guard.take(signed(entries, version=9, now=at(clock)))
    refused(guard)
    clock.at_s += 5
    refused(guard)
    refused(guard, FACTS._replace(tenant="other"))
    report = guard.report()
    rows = {(row["entry"], row["what"]): row for row in report["entries"]}
    assert (report["policy_version"], report["passed"], report["refused"], report["shadow_refused"]) == (9, 1, 2, 1)
    acme = rows["open:tenant:acme", "refused"]
    assert (acme["breaker"], acme["epoch"], acme["requests"]) == (7, 3, 2)
    assert acme["last_at"] > acme["first_at"]
    assert rows["open:platform", "would_refuse"]["requests"] == 3


def test_the_centre_takes_the_report_as_it_is(guard: Guard, settings: GuardSettings, clock: Clock) -> None:
    guard.trouble("a line\nbreak and a very long story: " + "x" * 300)
    assert GuardReportIn.model_validate(guard.report()).policy_version is None
    guard.take(signed([reject("tenant:acme", breaker=7)], version=9, now=at(clock)))
    refused(guard)
    break_glass(settings, at(clock).replace(year=2099))
    clock.at_s += 2
    refused(guard)
    taken = GuardReportIn.model_validate(guard.report())
    assert (taken.policy_version, taken.refused, taken.passed, taken.expired) == (9, 1, 1, False)
    assert taken.break_glass is not None


def test_a_report_that_did_not_arrive_is_counted_into_the_next(guard: Guard, clock: Clock) -> None:
    guard.take(signed([reject("tenant:acme")], now=at(clock)))
    refused(guard)
    lost = guard.report()
    guard.counts.restore(lost)
    clock.at_s += 5
    refused(guard)
    report = guard.report()
    assert (report["refused"], report["entries"][0]["requests"], report["since"]) == (2, 2, lost["since"])
    assert guard.report()["refused"] == 0


def test_a_policy_that_cannot_be_kept_is_obeyed_all_the_same(settings: GuardSettings, clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    guard = Guard(settings._replace(state_dir=str(tmp_path / "file")), clock)
    guard.take(signed([reject("platform")], now=at(clock)))
    assert "not kept on disk" in guard.fault
    assert refused(guard)


@pytest.mark.parametrize(
    ("change", "passes_s", "reads"),
    [
        (lambda value: value, 0, True),
        (lambda value: value, 300, True),
        (lambda value: value, 301, False),
        (lambda value: value.replace("path=acme", "path=rich"), 0, False),
        (lambda value: value.replace("tier=P1", "tier=P0"), 0, False),
        (lambda value: value[:-1], 0, False),
        (lambda _: "v1;t=1;path=acme", 0, False),
        (lambda _: "", 0, False),
    ],
    ids=["as signed", "five minutes", "stale", "other tenant", "other tier", "cut", "unsigned", "empty"],
)
def test_a_tenant_header_counts_only_as_the_gateway_signed_it(change: Any, passes_s: int, reads: bool) -> None:
    value = change(sign_tenant("acme/söarch", "P1", KEY, 1000.0))
    found = read_tenant(value, ((KEY_ID, KEY),), 1000.0 + passes_s)
    assert (found is not None) is reads
    if found is not None:
        assert found == ("acme/söarch", "P1")


GOOD = {"TOKENFUSE_GUARD_URL": "http://centre/", "TOKENFUSE_GUARD_TOKEN": "tf_x_y", "TOKENFUSE_GUARD_NAME": "edge"}
KEYS = {"TOKENFUSE_GUARD_KEYS": f"k1:{'a' * 32}, k2:{'b' * 32}"}


def test_settings_are_read_from_the_environment_and_keep_their_secrets_to_themselves() -> None:
    found = from_env({**GOOD, **KEYS, "TOKENFUSE_GUARD_DEPLOYMENTS": '{"tiny": "eu/prod/deepseek/tiny"}', "OTHER": "x"})
    assert found.url == "http://centre"
    assert found.keys == (("k1", b"a" * 32), ("k2", b"b" * 32))
    assert found.deployment_of("tiny") == "eu/prod/deepseek/tiny"
    assert found.deployment_of("large") == "default/default/large"
    assert "aaaa" not in repr(found)
    assert "tf_x_y" not in repr(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("URL", "centre:8080"),
        ("KEYS", "short:abc"),
        ("KEYS", "nokey"),
        ("KEYS", ",".join(f"k{i}:{'a' * 32}" for i in range(3))),
        ("ON_EXPIRY", "maybe"),
        ("SERVICE_TIER", "P9"),
        ("DEPLOYMENT", "tiny"),
        ("DEPLOYMENTS", "[]"),
        ("TEMPLATE_ALLOWANCE", "-1"),
        ("WAIT_S", "2.5"),
        ("TRUST_TAGS", "perhaps"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"TOKENFUSE_GUARD_{name}"):
        from_env({**GOOD, **KEYS, f"TOKENFUSE_GUARD_{name}": value})


def test_a_standing_limit_in_warn_mode_never_refuses(guard: Guard, clock: Clock) -> None:
    guard.take(signed([limit("platform", {"max_prompt_tokens": 1}, mode="warn")], now=at(clock)))
    assert not refused(guard, FACTS._replace(prompt_tokens_at_most=10_000))
    assert guard.report()["shadow_refused"] == 1

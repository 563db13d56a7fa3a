"""From published rules to a refusal: the policy a guard gets holds the rules, and a tenant that only they make is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from control.identity_preview import publish_rules
from control.policy_publish import GuardRules, publish
from core.errors import Refused
from core.identity_codec import decode_rules
from core.identity_state import Alias
from core.policy import SigningKey, sign
from models.guard_repo import guard_seen
from models.identity_repo import put_aliases, rule_versions
from models.policy_repo import PublishedPolicy, latest_policy
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.settings import GuardSettings

pytestmark = pytest.mark.db
NOW = datetime(2026, 11, 30, 12, 0, 20, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY = SigningKey("k1", b"0" * 32)


def rules(team: str, rules_number: int = 1, width: int = 1) -> Any:
    made = [
        {
            "name": f"r{n}",
            "when": [{"field": "key_alias", "op": "prefix", "value": f"rag-{n}" + "x" * width}],
            "set": {"team": team},
        }
        for n in range(rules_number)
    ]
    return decode_rules({"rules": made})


def put(connection: Connection, team: str, now: datetime = NOW) -> None:
    publish_rules(connection, rules(team), "ann", "because", now)


def told(connection: Connection, now: datetime, keeper: GuardRules | None = None) -> PublishedPolicy | None:
    return publish(connection, now, rules=keeper)


def test_rules_and_their_ends_are_published_to_guards_at_once(db: Engine) -> None:
    with db.begin() as connection:
        keeper = GuardRules()
        first = told(connection, NOW, keeper)
        assert first is not None
        assert first.identity is None
        is_null = connection.execute(text("SELECT identity IS NULL FROM policy_version")).scalar()
        assert is_null is True
        assert told(connection, NOW, keeper) is None
        put(connection, "one")
        second = told(connection, NOW, keeper)
        assert second is not None
        assert second.identity is not None
        assert latest_policy(connection) == second
        assert told(connection, NOW + MINUTE, keeper) is None, "a version that comes into force was told before"
        put(connection, "two", NOW + 2 * MINUTE)
        third = told(connection, NOW + 2 * MINUTE, keeper)
        assert third is not None
        assert third.identity is not None
        assert [v["version"] for v in third.identity["versions"]] == [1, 2]
        fourth = told(connection, NOW + 20 * MINUTE)
        assert fourth is not None
        assert fourth.identity is not None
        assert [v["version"] for v in fourth.identity["versions"]] == [2]


def test_the_published_document_makes_a_guard_charge_the_rules_tenant(db: Engine) -> None:
    with db.begin() as connection:
        put(connection, "one")
        put_aliases(connection, "litellm", [Alias("key", "hash-1", "rag-0x"), Alias("key", "hash-2", "chat")], NOW)
        found = told(connection, NOW)
    assert found is not None
    at = NOW + 2 * MINUTE
    guard = Guard(GuardSettings(name="edge", keys=((KEY.key_id, KEY.secret),)), at.timestamp)
    guard.take(sign(found.body_for("edge", "open").canonical(), [KEY]))
    assert guard.rules is not None
    assert guard.rules.key_names == {"hash-1": "rag-0x"}
    version = guard.rules.at(at.timestamp())
    assert version is not None
    assert version.charge(("acme", "", "", ""), "P1", (("rag-0x",),)).path == ("acme", "one", "", "")
    assert guard.rules.at(NOW.timestamp()) is None


def test_a_renamed_key_is_told_to_guards(db: Engine) -> None:
    with db.begin() as connection:
        keeper = GuardRules()
        put(connection, "one")
        put_aliases(connection, "litellm", [Alias("key", "hash-1", "rag-0x")], NOW)
        told(connection, NOW, keeper)
        put_aliases(connection, "litellm", [Alias("key", "hash-1", "rag-0xy")], NOW + MINUTE)
        found = told(connection, NOW + MINUTE, keeper)
    assert found is not None
    assert found.identity is not None
    assert found.identity["names"] == {"hash-1": "rag-0xy"}


@pytest.mark.parametrize("guards", [0, 600])
def test_rules_too_large_for_the_guards_are_refused_when_they_are_published(db: Engine, guards: int) -> None:
    large = rules("one", 500, 180)
    with db.begin() as connection:
        for number in range(guards):
            guard_seen(connection, f"g{number}", None, NOW)
    if not guards:
        with db.begin() as connection:
            assert publish_rules(connection, large, "ann", "because", NOW)[1]
        return
    with db.begin() as connection, pytest.raises(Refused, match="for each of 600 guards"):
        publish_rules(connection, large, "ann", "because", NOW)
    with db.begin() as connection:
        assert rule_versions(connection) == []

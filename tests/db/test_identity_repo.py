"""Rule sets are published one after the other and never for the past; names keep their history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text

from control.identity_preview import LEAD, publish_rules
from core.errors import BadInput, Conflict, Refused
from core.identity import RuleSet, in_force
from core.identity_codec import decode_rules
from core.identity_state import Alias
from ingest.identity.litellm import read_tables
from models.audit_repo import list_audit
from models.identity_repo import AliasChanges, key_names, list_aliases, newer_state, put_aliases, rule_versions, with_key_alias

pytestmark = pytest.mark.db
NOW = datetime(2026, 11, 30, 12, 0, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def rules(team: str) -> RuleSet:
    return decode_rules({"rules": [{"name": "x", "when": [{"field": "org", "value": "acme"}], "set": {"team": team}}]})


def publish(connection: Connection, team: str, now: datetime = NOW, **rest: Any) -> tuple[int, datetime, bool]:
    made, changed = publish_rules(connection, rules(team), "ann", "because", now, **rest)
    return made.version, made.valid_from, changed


def test_a_set_is_in_force_from_the_next_minute_that_everybody_can_know(db: Engine) -> None:
    with db.begin() as connection:
        assert publish(connection, "one") == (1, datetime(2026, 11, 30, 12, 1, tzinfo=UTC), True)
        assert publish(connection, "two", NOW + timedelta(seconds=11)) == (2, datetime(2026, 11, 30, 12, 2, tzinfo=UTC), True)
        assert publish(connection, "two", NOW + HOUR) == (2, datetime(2026, 11, 30, 12, 2, tzinfo=UTC), False)
        versions = rule_versions(connection)
    assert [v.rules for v in versions] == [rules("one"), rules("two")]
    assert in_force(versions, NOW) is None
    assert [(v.author, v.reason, v.created_at) for v in versions] == [
        ("ann", "because", NOW),
        ("ann", "because", NOW + timedelta(seconds=11)),
    ]


@pytest.mark.parametrize("ago", [timedelta(0), HOUR, timedelta(days=400), timedelta(seconds=-29)])
@pytest.mark.parametrize("restate", [False, True])
def test_history_is_not_rewritten(db: Engine, ago: timedelta, restate: bool) -> None:
    says = "does not restate" if restate else "not rewritten silently"
    with db.begin() as connection, pytest.raises(Refused, match=says):
        publish(connection, "one", valid_from=NOW - ago, restate=restate)
    with db.begin() as connection:
        assert rule_versions(connection) == []
        assert publish(connection, "one", valid_from=NOW + LEAD)[2]


def test_a_change_made_on_an_older_version_is_a_conflict(db: Engine) -> None:
    with db.begin() as connection:
        publish(connection, "one", expected_version=0)
    with db.begin() as connection, pytest.raises(Conflict, match="version 1 was published meanwhile"):
        publish(connection, "two", expected_version=0)
    with db.begin() as connection:
        assert publish(connection, "two", expected_version=1)[0] == 2


@pytest.mark.parametrize(("reason", "valid_from", "field"), [
    ("", None, "reason"), (" ", None, "reason"), ("x" * 501, None, "reason"), ("ok", NOW + timedelta(days=400), "valid_from"),
])  # fmt: skip
def test_a_publication_says_why_and_when(db: Engine, reason: str, valid_from: datetime | None, field: str) -> None:
    with db.begin() as connection, pytest.raises(BadInput) as caught:
        publish_rules(connection, rules("one"), "ann", reason, NOW, valid_from=valid_from)
    assert caught.value.field == field


def test_a_publication_stands_in_the_audit_trail(db: Engine) -> None:
    with db.begin() as connection:
        publish(connection, "one")
        (record,) = list_audit(connection)
    assert (record.actor, record.action, record.subject) == ("ann", "identity.publish", "identity-rules:1")
    assert record.detail["reason"] == "because"
    assert record.detail["valid_from"] == "2026-11-30T12:01:00+00:00"


def test_names_keep_their_history(db: Engine) -> None:
    key, team = Alias("key", "h1", "old", "t1"), Alias("team", "t1", "search")
    with db.begin() as connection:
        assert put_aliases(connection, "litellm", [key, team], NOW) == AliasChanges(2, 0, 0)
        assert put_aliases(connection, "litellm", [key, team], NOW + HOUR) == AliasChanges(0, 0, 2)
        renamed = Alias("key", "h1", "new", "t1")
        assert put_aliases(connection, "litellm", [renamed], NOW + 2 * HOUR) == AliasChanges(0, 1, 0)
        moved = Alias("key", "h1", "new", "t2")
        assert put_aliases(connection, "litellm", [moved, team], NOW + 3 * HOUR) == AliasChanges(0, 1, 1)
    with db.begin() as connection:
        assert [(s.alias.alias, s.alias.team_id) for s in list_aliases(connection) if s.alias.kind == "key"] == [("new", "t2")]
        history = [s for s in list_aliases(connection, with_history=True) if s.alias.kind == "key"]
        assert [(s.valid_from, s.valid_to) for s in history] == [
            (NOW, NOW + 2 * HOUR),
            (NOW + 2 * HOUR, NOW + 3 * HOUR),
            (NOW + 3 * HOUR, None),
        ]
        assert key_names(connection) == {"h1": ((NOW, "old"), (NOW + 2 * HOUR, "new"))}
        assert len(list_aliases(connection)) == 2


def test_the_state_is_read_again_only_when_something_of_it_changed(db: Engine) -> None:
    with db.begin() as connection:
        first = newer_state(connection, "")
        assert first is not None
        assert newer_state(connection, first.revision) is None
        publish(connection, "one")
        second = newer_state(connection, first.revision)
        assert second is not None
        assert len(second.versions) == 1
        put_aliases(connection, "litellm", [Alias("key", "h1", "a")], NOW)
        third = newer_state(connection, second.revision)
        assert third is not None
        assert third.key_names == {"h1": ((NOW, "a"),)}
        put_aliases(connection, "litellm", [Alias("key", "h1", "b")], NOW + HOUR)
        assert newer_state(connection, third.revision) is not None


TABLES = (
    'CREATE TABLE "LiteLLM_VerificationToken" (token text PRIMARY KEY, key_name text, key_alias text, user_id text, '
    "team_id text)",
    'CREATE TABLE "LiteLLM_TeamTable" (team_id text PRIMARY KEY, team_alias text, organization_id text)',
    'CREATE TABLE "LiteLLM_OrganizationTable" (organization_id text PRIMARY KEY, organization_alias text)',
    """INSERT INTO "LiteLLM_VerificationToken" VALUES ('h1', 'sk-..1', 'rag', 'ann', 't1'), ('h2', 'sk-..2', NULL, NULL, NULL)""",
    """INSERT INTO "LiteLLM_TeamTable" VALUES ('t1', NULL, 'o1')""",
    """INSERT INTO "LiteLLM_OrganizationTable" VALUES ('o1', 'Acme')""",
)


def test_litellms_tables_are_read_whatever_columns_they_have(db: Engine, db_url: str) -> None:
    with db.begin() as connection:
        for statement in TABLES:
            connection.execute(text(statement))
    assert read_tables(db_url) == [
        Alias("key", "h1", "rag", "t1", "ann"),
        Alias("key", "h2", "sk-..2"),
        Alias("team", "t1", "t1", "", "", "o1"),
        Alias("org", "o1", "Acme"),
    ]


def test_a_database_without_litellm_says_so(db_url: str) -> None:
    with pytest.raises(BadInput, match="litellm_db_url"):
        read_tables(db_url)


def test_rows_with_a_key_say_what_it_is_called_now_or_was_last(db: Engine) -> None:
    with db.begin() as connection:
        put_aliases(connection, "litellm", [Alias("key", "h1", "old")], NOW)
        put_aliases(connection, "litellm", [Alias("key", "h1", "new"), Alias("user", "h2", "ann")], NOW + HOUR)
        rows = with_key_alias(connection, [{"team": "t", "key_id": key, "requests": 1} for key in ("h1", "h2", "")])
        assert [(list(row), row["key_alias"]) for row in rows] == [
            (["team", "key_id", "key_alias", "requests"], alias) for alias in ("new", "", "")
        ]
        assert with_key_alias(connection, [{"team": "t"}]) == [{"team": "t"}]

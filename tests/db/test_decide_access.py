"""API tokens: made once, verified by hash, expiring, revocable; nothing about a secret is ever kept or told."""

from __future__ import annotations

from datetime import timedelta

import pytest
from decide_world import NOW
from sqlalchemy import Engine, text

from core.errors import BadInput, Conflict
from models.access_repo import create_token, first_admin_token, list_tokens, revoke_token, verify_token

pytestmark = pytest.mark.db


def test_a_token_speaks_for_its_name_scopes_and_tenant(db: Engine) -> None:
    with db.begin() as connection:
        token_id, token = create_token(connection, "gateway", ["ingest", "policy"], "acme/red", NOW)
        found = verify_token(connection, token, NOW)
    assert found is not None
    assert (found.token_id, found.name, found.scopes, found.tenant_scope) == (
        token_id, "gateway", frozenset({"ingest", "policy"}), "acme/red",
    )  # fmt: skip
    assert (found.may("ingest"), found.may("read")) == (True, False)


def test_only_a_hash_is_kept(db: Engine) -> None:
    with db.begin() as connection:
        _, token = create_token(connection, "gateway", ["ingest"], "", NOW)
        kept = connection.execute(text("SELECT row_to_json(api_token)::text FROM api_token")).scalar_one()
    assert token.split("_")[2] not in kept


def test_wrong_foreign_and_malformed_tokens_are_nobody(db: Engine) -> None:
    with db.begin() as connection:
        token_id, token = create_token(connection, "a", ["read"], "", NOW)
        other = create_token(connection, "b", ["read"], "", NOW)[1].split("_")[2]
        wrong = ["", "tf", "tf__", f"tf_{token_id}_", f"tf_{token_id}_{other}", f"xx_{token_id}_{other}", token + "_x",
                 token + "é", token.upper(), f"tf_unknown_{other}", token[:-1]]  # fmt: skip
        assert [verify_token(connection, text, NOW) for text in wrong] == [None] * len(wrong)
        assert verify_token(connection, token, NOW) is not None


def test_a_token_ends_when_it_expires_or_is_revoked(db: Engine) -> None:
    until = NOW + timedelta(hours=1)
    with db.begin() as connection:
        _, short = create_token(connection, "short", ["read"], "", NOW, until)
        gone_id, gone = create_token(connection, "gone", ["read"], "", NOW)
        assert verify_token(connection, short, until - timedelta(seconds=1)) is not None
        assert verify_token(connection, short, until) is None
        assert [revoke_token(connection, gone_id, NOW), revoke_token(connection, gone_id, NOW)] == [True, False]
        assert verify_token(connection, gone, NOW) is None
        assert {t.name: t.revoked_at for t in list_tokens(connection)} == {"gone": NOW, "short": None}


@pytest.mark.parametrize(
    ("name", "scopes", "tenant", "expires_in", "field"),
    [
        ("", ["read"], "", 1, "name"), ("a\n", ["read"], "", 1, "name"), ("x" * 81, ["read"], "", 1, "name"),
        ("a", [], "", 1, "scopes"), ("a", ["read", "root"], "", 1, "scopes"), ("a", ["read"], "a//b", 1, "tenant_scope"),
        ("a", ["read"], "", 0, "expires_at"),
    ],
)  # fmt: skip
def test_bad_requests_name_their_field(
    db: Engine, name: str, scopes: list[str], tenant: str, expires_in: int, field: str
) -> None:
    with db.begin() as connection, pytest.raises(BadInput) as error:
        create_token(connection, name, scopes, tenant, NOW, NOW + timedelta(hours=expires_in))
    assert error.value.field == field


def test_names_are_taken_for_good(db: Engine) -> None:
    with db.begin() as connection:
        token_id, _ = create_token(connection, "a", ["read"], "", NOW)
        revoke_token(connection, token_id, NOW)
        with pytest.raises(Conflict, match="exists"):
            create_token(connection, "a", ["read"], "", NOW)


def test_the_admin_token_is_shown_once(db: Engine) -> None:
    with db.begin() as connection:
        token = first_admin_token(connection, NOW)
        assert first_admin_token(connection, NOW) is None
        assert token is not None
        admin = verify_token(connection, token, NOW)
    assert admin is not None
    assert admin.may("operate")

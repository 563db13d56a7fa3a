"""The audit trail on a real database: no forks under concurrency, no gaps after a rollback, tampering by a superuser is found."""

from __future__ import annotations

import threading

import pytest
from decide_world import MIN, NOW
from sqlalchemy import Engine, text

from models.audit_repo import append_audit, list_audit, verify_chain

pytestmark = pytest.mark.db


def fill(db: Engine, count: int) -> None:
    for n in range(count):
        with db.begin() as connection:
            append_audit(
                connection, NOW + n * MIN, "ann", "budget.set", "tenant:acme", {"amount": "1e-7", "n": n, "ü": ["ß", None, True]}
            )


def test_the_chain_reads_back_whole(db: Engine) -> None:
    fill(db, 3)
    with db.connect() as connection:
        verdict = verify_chain(connection)
        assert (verdict.intact, verdict.records) == (True, 3)
        assert [record.seq for record in list_audit(connection, limit=2)] == [3, 2]
        assert [record.seq for record in list_audit(connection, before_seq=2)] == [1]
        assert verify_chain(connection, anchor=verdict.last_hash).intact


def test_writers_at_once_make_one_chain(db: Engine) -> None:
    threads = [threading.Thread(target=fill, args=(db, 5)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with db.connect() as connection:
        assert verify_chain(connection).records == 20


def test_a_rolled_back_decision_leaves_no_gap(db: Engine) -> None:
    fill(db, 1)
    connection = db.connect()
    append_audit(connection, NOW, "ann", "budget.set", "tenant:acme", {})
    connection.rollback()
    connection.close()
    fill(db, 1)
    with db.connect() as connection:
        assert verify_chain(connection).records == 2


@pytest.mark.parametrize(
    ("tamper", "broken", "reason"),
    [
        ("UPDATE audit SET actor = 'eve' WHERE seq = 3", 3, "does not fit its hash"),
        ("UPDATE audit SET detail = '{}' WHERE seq = 2", 2, "does not fit its hash"),
        ("DELETE FROM audit WHERE seq = 1", 1, "missing"),
        ("DELETE FROM audit WHERE seq = 4", 4, "missing"),
    ],
)
def test_the_first_broken_record_is_named(db: Engine, tamper: str, broken: int, reason: str) -> None:
    fill(db, 5)
    with db.begin() as connection:
        connection.execute(text("ALTER TABLE audit DISABLE TRIGGER audit_append_only"))
        connection.execute(text(tamper))
    with db.connect() as connection:
        verdict = verify_chain(connection)
    assert (verdict.intact, verdict.broken_seq) == (False, broken)
    assert reason in verdict.reason

"""The schema the migrations build is the schema the tables declare."""

from datetime import UTC, datetime

import pytest
from alembic import command
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from models.database import alembic_config
from models.partitions import PARTITIONED, ensure_months

pytestmark = pytest.mark.db


def test_migrations_and_tables_agree(db_url: str) -> None:
    command.check(alembic_config(db_url))


def test_down_and_up_again(db_url: str) -> None:
    command.downgrade(alembic_config(db_url), "base")
    command.upgrade(alembic_config(db_url), "head")


def test_partitions_are_made_once(db: Engine) -> None:
    at = [datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)]
    with db.begin() as connection:
        assert len(ensure_months(connection, at)) == 2 * len(PARTITIONED)
        assert ensure_months(connection, at) == []


def test_nobody_edits_the_audit_trail(db: Engine) -> None:
    with db.connect() as connection, pytest.raises(DBAPIError, match="append-only"):
        connection.execute(text("DELETE FROM audit"))

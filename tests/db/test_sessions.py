"""What a session is told when it opens."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, text

from models.database import open_engine

pytestmark = pytest.mark.db


@pytest.mark.parametrize(("short_reads", "workers", "page_cost"), [(True, "0", "1.1"), (False, "2", "4")])
def test_pages_are_planned_without_workers_and_other_work_as_the_server_says(
    db: Engine, db_url: str, short_reads: bool, workers: str, page_cost: str
) -> None:
    engine = open_engine(db_url, short_reads=short_reads)
    with engine.connect() as connection:
        connection.rollback()  # settings of a session outlive its transactions
        told = [
            connection.execute(text(f"SHOW {name}")).scalar_one()
            for name in ("max_parallel_workers_per_gather", "random_page_cost", "timezone", "statement_timeout")
        ]
    engine.dispose()
    assert told == [workers, page_cost, "UTC", "30s"]

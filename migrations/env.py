"""Alembic environment: takes its URL from the caller, never from a file or the environment."""

from alembic import context

from models.database import open_engine
from models.partitions import PARTITIONED
from models.tables import metadata


def _include(obj: object, name: str | None, type_: str, reflected: bool, _compare: object) -> bool:
    """Leave the monthly partitions out of drift checks."""
    return not (type_ == "table" and reflected and name and any(name.startswith(f"{t}_2") for t in PARTITIONED))


def run() -> None:
    engine = open_engine(context.config.attributes["url"], statement_timeout_ms=0)
    with engine.begin() as connection:
        context.configure(connection=connection, target_metadata=metadata, include_object=_include, compare_server_default=False)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


run()

"""CSV into a table by COPY. It goes past SQLAlchemy: what the database refuses is named here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import psycopg
from sqlalchemy import Connection

from core.errors import TokenfuseError, Unavailable

NULL = "\\N"
CHUNK = 1 << 20


def copy_csv(connection: Connection, table: str, columns: Sequence[str], chunks: Iterable[bytes], what: str) -> None:
    """CSV of ``columns``, without a header, unknown written as ``\\N``; ``what`` names a row in messages."""
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN WITH (FORMAT csv, NULL '{NULL}')"
    try:
        with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for chunk in chunks:
                copy.write(chunk)
    except psycopg.OperationalError as error:
        raise Unavailable("the database was lost while a bill was written", hint="run `tokenfuse doctor`") from error
    except psycopg.Error as error:
        raise TokenfuseError(f"PostgreSQL refused a {what}: {str(error).splitlines()[0]}.") from error


def file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk

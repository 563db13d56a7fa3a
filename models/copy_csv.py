"""Rows into a table by COPY. It goes past SQLAlchemy: what the database refuses is named here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psycopg
from sqlalchemy import Connection

from core.errors import TokenfuseError, Unavailable

NULL = "\\N"
CHUNK = 1 << 20


@contextmanager
def copying(connection: Connection, statement: str, whole: str, row: str) -> Iterator[psycopg.Copy]:
    """COPY by the driver; ``whole`` and ``row`` name in messages what is written. Raises Unavailable or TokenfuseError."""
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    try:
        with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            yield copy
    except psycopg.OperationalError as error:
        raise Unavailable(f"the database was lost while {whole} was written", hint="run `tokenfuse doctor`") from error
    except psycopg.Error as error:
        raise TokenfuseError(f"PostgreSQL refused a {row}: {str(error).splitlines()[0]}.") from error


def copy_csv(connection: Connection, table: str, columns: Sequence[str], chunks: Iterable[bytes], what: str) -> None:
    """CSV of ``columns``, without a header, unknown written as ``\\N``; ``what`` names a row in messages."""
    statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN WITH (FORMAT csv, NULL '{NULL}')"
    with copying(connection, statement, "a bill", what) as copy:
        for chunk in chunks:
            copy.write(chunk)


def file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk

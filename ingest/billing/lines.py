"""A delivery's data files into lines: every column of every row kept as text, whatever type or order a file has.

``lines-NNNN.parquet``, one a data file, in the file's own row order; a line's place is (file, row). Memory is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet

from core.errors import BadInput, Unavailable
from ingest.billing.adapter import Columns
from ingest.billing.csv_lines import CUT_HINT, csv_columns, packing, write_csv
from ingest.billing.json_lines import looks_like_json, write_json
from ingest.billing.sql import MACROS, quoted, string

ROW_GROUP = 50_000
PARQUET_END = b"PAR1"


@dataclass(frozen=True, slots=True)
class Lines:
    """``files``: the Parquet files, in the order of ``names`` (what each was read from). ``rows``: all of them."""

    files: tuple[Path, ...]
    names: tuple[str, ...]
    columns: Columns
    rows: int

    def place(self, file_index: int, row: int) -> str:
        """How a line is named to a person: rows count from 1, the header apart."""
        return f"{self.names[file_index]} row {row}"


def open_session(scratch: Path, *, memory_mb: int = 256, threads: int = 2) -> Any:
    """A DuckDB session of its own with the billing macros; what does not fit into memory goes to ``scratch``."""
    session = duckdb.connect(config={"memory_limit": f"{memory_mb}MB", "threads": threads, "temp_directory": str(scratch)})
    session.execute("SET TimeZone = 'UTC'")
    session.execute("SET enable_progress_bar = false")  # it is drawn on standard output
    for macro in MACROS:
        session.execute(macro)
    return session


def read_lines(session: Any, files: Sequence[tuple[str, Path]], out: Path) -> Lines:
    """Write the lines of ``files`` (name, path) under ``out`` and name their columns.

    Raises BadInput naming the file when it is cut short, not CSV or Parquet, or a row does not fit its header.
    """
    names: dict[str, str] = {}
    written, rows = [], 0
    for number, (name, path) in enumerate(files):
        target = out / f"lines-{number:04d}.parquet"
        try:
            rows += _write(session, path, target, names)
        except duckdb.OutOfMemoryException as error:
            raise Unavailable(f"{name} needs more memory than it may have", hint="pass a larger --memory-mb") from error
        except duckdb.Error as error:
            raise _unreadable(name, error) from error
        except EOFError as error:
            raise BadInput("is cut short", where=name, hint=CUT_HINT) from error
        except (OSError, UnicodeDecodeError, pyarrow.ArrowInvalid) as error:
            raise BadInput(f"cannot be read: {error}", where=name, hint="is the file whole? deliver it again") from error
        except BadInput as error:
            error.where = error.where or name
            raise
        written.append(target)
    where = files[0][0] if files else ""
    return Lines(tuple(written), tuple(name for name, _ in files), Columns(list(names.items()), where), rows)


def _write(session: Any, path: Path, target: Path, names: dict[str, str]) -> int:
    if packing(path) != "zip" and not _is_parquet(path) and looks_like_json(path):
        path = write_json(path, target.with_name(f"{target.name}.read"))
    if not _is_parquet(path):
        headers, delimiter = csv_columns(path)
        return write_csv(path, target, [_name(names, header) for header in headers], delimiter, row_group=ROW_GROUP)
    source, cells_of = _parquet(session, path)
    cells = ", ".join(f"{cell} AS {quoted(_name(names, header))}" for header, cell in cells_of)
    copied = session.execute(
        f"COPY (SELECT {cells} FROM {source}) TO {string(str(target))} "
        f"(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE {ROW_GROUP})"
    ).fetchone()
    return int(copied[0])


def _name(names: dict[str, str], header: str) -> str:
    """A column's name in the lines. DuckDB knows no case: of headers that differ only in case the later are numbered."""
    if header not in names:
        taken = {name.casefold() for name in names.values()}
        name, number = header, 2
        while name.casefold() in taken:
            name, number = f"{header}~{number}", number + 1
        names[header] = name
    return names[header]


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == PARQUET_END


def _parquet(session: Any, path: Path) -> tuple[str, list[tuple[str, str]]]:
    source = f"read_parquet({string(str(path))}, hive_partitioning = false)"
    known = session.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    headers = pyarrow.parquet.read_schema(path).names
    return source, [(header, _as_text(row[0], row[1])) for header, row in zip(headers, known, strict=True)]


def _as_text(name: str, type_: str) -> str:
    """A cell as text without loss: numbers in their shortest exact form, nested values as JSON."""
    nested = type_.startswith(("MAP", "STRUCT")) or type_.endswith("]")
    return f"to_json({quoted(name)})::VARCHAR" if nested else f"{quoted(name)}::VARCHAR"


def _unreadable(name: str, error: duckdb.Error) -> BadInput:
    said = str(error)
    if "Unexpected end" in said or "truncated" in said.lower():
        return BadInput("is cut short", where=name, hint=CUT_HINT)
    first = said.split("\n", 1)[0].removeprefix("Invalid Input Error: ")
    return BadInput(f"cannot be read: {first}", where=name, hint="the delivery is refused, the former one stays")

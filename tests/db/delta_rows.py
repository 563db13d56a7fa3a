"""Delta files as Flink leaves them, row by row."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, text

from models.tables_usage import USAGE_MEASURES
from streaming.delta_columns import delta_folder, note_columns
from streaming.plan import DELTAS, Columns

NOW = datetime(2026, 11, 30, 19, 0, tzinfo=UTC)
MINUTE = 1_796_050_740_000  # 2026-11-30T14:59:00Z
KEYS = "c,ns,m,org,team,,u,k,P1,ok,exact,0"


def usage_row(
    minute_ms: int, *, requests: int = 1, output: int = 10, keys: str = KEYS, length_input: int = -1, length_output: int = -1
) -> str:
    measures = {name: 0 for name in USAGE_MEASURES} | {"requests": requests, "output": output}
    measures |= {"length_input": length_input, "length_output": length_output}
    return ",".join([str(minute_ms), keys, *map(str, measures.values())])


def put(deltas: Path, kind: str, name: str, *rows: str, columns: Columns | None = None) -> Path:
    """A finished file as a job of these columns (None: this version's) leaves it."""
    note_columns(deltas, {kind: columns or DELTAS[kind]})
    path = delta_folder(deltas, kind, columns or DELTAS[kind]) / f"part-{name}"
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


def file_name(kind: str, name: str) -> str:
    return delta_folder(Path(), kind, DELTAS[kind]).joinpath(f"part-{name}").as_posix()


def total(db: Engine, query: str) -> list[tuple[object, ...]]:
    with db.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


SUMS = "SELECT sum(requests)::int, sum(output)::int FROM {}"

"""Lines into charges by an adapter's plan, in DuckDB: exact amounts, every fault named by file, row, column and value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from core.errors import BadInput
from ingest.billing.adapter import OTHER_COLUMNS, TEXT_COLUMNS, ChargePlan, ChargeSelect
from ingest.billing.lines import ROW_GROUP, Lines
from ingest.billing.sql import bucket_sql, quoted, string

DIGITS = 38
MONEY_COLUMNS = ("billed", "effective", "list", "contracted", "memo")
QUANTITY_COLUMNS = ("quantity", "hours")
TOO_LONG = "amounts of this delivery need more than 38 digits"
COVERED = "('usage', 'purchase')"


@dataclass(frozen=True, slots=True)
class ChargeFile:
    """The charges of a delivery: one Parquet file with the columns of ``ingest.billing.adapter`` and ``bucket``,
    ``delivery_period``, ``line_file``, ``line_row``."""

    path: Path
    scale: int
    """Decimals of the money columns: as many as occur."""
    periods: tuple[date, ...]


def write_charges(session: Any, lines: Lines, plan: ChargePlan, out: Path, *, period: date | None) -> ChargeFile:
    """Write ``charges.parquet`` under ``out``. ``period``: the delivery's (manifest); None: each line's own billing period.

    Raises BadInput naming file, row, column and value: a cost that is no number, a charge without currency or period, and
    whatever the plan checks.
    """
    session.execute("SET preserve_insertion_order = false")  # a charge says which line it is of
    files = ", ".join(string(str(path)) for path in lines.files)
    session.execute(
        f"CREATE OR REPLACE TEMP VIEW lines AS SELECT * FROM read_parquet([{files}], union_by_name = true, "
        "file_row_number = true, filename = '_file', hive_partitioning = false)"
    )
    money = _amounts(session, lines, plan.money, plan.decimals)
    numbers = _amounts(session, lines, plan.numbers)
    typed = [f"{amount.sql} AS m_{alias}" for alias, amount in money.cells.items()]
    typed += [f"{amount.sql} AS n_{alias}" for alias, amount in numbers.cells.items()]
    typed += [f"({sql}) AS d_{alias}" for alias, sql in plan.derived.items()]
    session.execute(f"CREATE OR REPLACE TEMP VIEW prepared AS SELECT {', '.join(['*', *typed])} FROM lines")
    _check_rows(session, lines, plan)
    path = out / "charges.parquet"
    selects = " UNION ALL ".join(_select(select, lines, money.scale, numbers.scale) for select in plan.selects)
    fixed = f"DATE '{period.isoformat()}'" if period else "billing_period"
    try:
        session.execute(
            f"COPY (SELECT *, {bucket_sql()} AS bucket, {fixed} AS delivery_period FROM ({selects})) "
            f"TO {string(str(path))} (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE {ROW_GROUP})"
        )
    except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
        raise BadInput(TOO_LONG, where=lines.names[0], value=str(error).split("\n", 1)[0]) from error
    session.execute(f"CREATE OR REPLACE TEMP VIEW charges AS SELECT * FROM read_parquet({string(str(path))})")
    _check_charges(session, lines)
    periods = session.execute("SELECT DISTINCT delivery_period FROM charges ORDER BY 1").fetchall()
    return ChargeFile(path, money.scale, tuple(row[0] for row in periods))


@dataclass(frozen=True, slots=True)
class _Amount:
    sql: str


@dataclass(frozen=True, slots=True)
class _Amounts:
    cells: Mapping[str, _Amount]
    scale: int


def _amounts(session: Any, lines: Lines, columns: Mapping[str, str], decimals: Sequence[str] = ()) -> _Amounts:
    """How each column is read exactly, and the scale that holds all of them and amounts of ``decimals`` decimals."""
    texts = {alias: f"txt({quoted(name)})" for alias, name in columns.items()}
    if not texts:
        return _Amounts({}, 0)
    measured = _measure(session, texts, "TRY_CAST({x} AS DECIMAL(38, 6)) IS NULL OR contains({x}, '_')")
    dirty = [alias for alias, found in measured.items() if found[2]]
    if dirty:
        texts |= {alias: f"bare_amount({texts[alias]})" for alias in dirty}
        measured |= _measure(session, {alias: texts[alias] for alias in dirty}, "NOT is_amount({x})")
        for alias in dirty:
            if measured[alias][2]:
                raise _no_number(session, lines, columns[alias], texts[alias])
    scale = max(found[0] or 0 for found in measured.values())
    for counted in decimals:
        scale = max(scale, session.execute(f"SELECT max({counted}) FROM lines").fetchone()[0] or 0)
    largest = max((found[1] or Decimal(0) for found in measured.values()), default=Decimal(0))
    if scale + len(str(int(largest))) > DIGITS:
        raise BadInput(TOO_LONG, where=lines.names[0], value=f"{largest} with {scale} decimals")
    return _Amounts({alias: _Amount(f"CAST({text} AS DECIMAL({DIGITS}, {scale}))") for alias, text in texts.items()}, scale)


def _measure(session: Any, texts: Mapping[str, str], bad: str) -> dict[str, tuple[int | None, Decimal | None, int]]:
    """Per column: most decimals, largest size, cells that are no numbers."""
    parts = []
    for text in texts.values():
        wrong = bad.replace("{x}", text)
        parts += [
            f"max(decimals_of({text}))",
            f"max(abs(TRY_CAST({text} AS DECIMAL(38, 6))))",
            f"count(*) FILTER ({text} IS NOT NULL AND ({wrong}))",
        ]
    row = session.execute(f"SELECT {', '.join(parts)} FROM lines").fetchone()
    return {alias: (row[3 * n], row[3 * n + 1], row[3 * n + 2]) for n, alias in enumerate(texts)}


def _no_number(session: Any, lines: Lines, name: str, text: str) -> BadInput:
    where, value = _first(session, lines, "lines", f"{text} IS NOT NULL AND NOT is_amount({text})", quoted(name))
    hint = "the delivery is refused, the former one stays; a cost is written like 1234.56 or 5e-06"
    return BadInput("is no number", where=where, field=_header(lines, name), value=value, hint=hint)


def _header(lines: Lines, name: str) -> str:
    return next((header for header, own in lines.columns.pairs if own == name), name)


def _first(session: Any, lines: Lines, table: str, condition: str, value: str) -> tuple[str, Any]:
    row = session.execute(
        f"SELECT _file, file_row_number, {value} FROM {table} WHERE {condition} ORDER BY _file, file_row_number LIMIT 1"
    ).fetchone()
    index = next(n for n, path in enumerate(lines.files) if path == Path(row[0]))
    return lines.place(index, int(row[1]) + 1), row[2]


def _check_rows(session: Any, lines: Lines, plan: ChargePlan) -> None:
    if not plan.checks:
        return
    counts = ", ".join(f"count(*) FILTER ({check.bad})" for check in plan.checks)
    found = session.execute(f"SELECT {counts} FROM prepared").fetchone()
    for check, bad in zip(plan.checks, found, strict=True):
        if bad:
            where, value = _first(session, lines, "prepared", check.bad, check.value)
            raise BadInput(f"{check.message} ({bad:,} rows)", where=where, field=check.field, value=value, hint=check.hint)


def _select(select: ChargeSelect, lines: Lines, scale: int, number_scale: int) -> str:
    """One charge of each line, all canonical columns in order and type."""
    unknown = sorted(set(select.columns) - {*TEXT_COLUMNS, *OTHER_COLUMNS})
    if unknown:
        raise ValueError(f"a plan names columns no charge has: {unknown}")
    given = select.columns
    cells = [f"coalesce({given[name]}, '')::VARCHAR AS {name}" if name in given else f"'' AS {name}" for name in TEXT_COLUMNS]
    for name, type_ in OTHER_COLUMNS.items():
        cells.append(f"CAST({given.get(name, 'NULL')} AS {_type(name, type_, scale, number_scale)}) AS {name}")
    number = f"list_position([{', '.join(string(str(path)) for path in lines.files)}], _file) - 1"
    inner = f"SELECT ({number})::INTEGER AS line_file, file_row_number + 1 AS line_row, {', '.join(cells)} FROM prepared"
    inner += select.lateral + (f" WHERE {select.where}" if select.where else "")
    list_cost = f"CASE WHEN kind IN {COVERED} AND list = 0 AND effective <> 0 THEN NULL ELSE list END AS list"
    return (
        f"SELECT * REPLACE (coalesce(billed, 0) AS billed, coalesce(effective, 0) AS effective, coalesce(memo, 0) AS memo, "
        f"coalesce(tags, '{{}}') AS tags, {list_cost}) FROM ({inner})"
    )


def _type(name: str, type_: str, scale: int, number_scale: int) -> str:
    if name in MONEY_COLUMNS:
        return f"DECIMAL({DIGITS}, {scale})"
    return f"DECIMAL({DIGITS}, {number_scale})" if name in QUANTITY_COLUMNS else type_


def _check_charges(session: Any, lines: Lines) -> None:
    """What every charge must say, whatever its format."""
    hints = {
        "billing_period": "its billing period cannot be read",
        "currency": "pass --currency XXX when the whole file is in one currency",
        "provider": "pass --source NAME when the whole file is of one issuer",
    }
    conditions = {name: "billing_period IS NULL" if name == "billing_period" else f"{name} = ''" for name in hints}
    counts = ", ".join(f"count(*) FILTER ({condition})" for condition in conditions.values())
    found = session.execute(f"SELECT {counts} FROM charges").fetchone()
    for (name, condition), bad in zip(conditions.items(), found, strict=True):
        if bad:
            row = session.execute(
                f"SELECT line_file, line_row FROM charges WHERE {condition} ORDER BY line_file, line_row LIMIT 1"
            ).fetchone()
            where = lines.place(int(row[0]), int(row[1]))
            raise BadInput(f"a charge must have it ({bad:,} have not)", where=where, field=name, hint=hints[name])

"""Lines into charges by an adapter's plan, in DuckDB: exact amounts, every fault named by file, row, column and value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from core.billing import WITHOUT_LIST
from core.currencies import CURRENCIES
from core.errors import BadInput
from ingest.billing.adapter import OTHER_COLUMNS, TEXT_COLUMNS, ChargePlan, ChargeSelect, RowCheck
from ingest.billing.csv_lines import AGAIN
from ingest.billing.delivery import Accept
from ingest.billing.lines import ROW_GROUP, Lines
from ingest.billing.sql import bucket_sql, quoted, string, strings

DIGITS = 38
_AS_RULED = Accept()
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


def write_charges(
    session: Any, lines: Lines, plan: ChargePlan, out: Path, *, period: date | None, accept: Accept = _AS_RULED
) -> ChargeFile:
    """Write ``charges.parquet`` under ``out``. ``period``: the delivery's (manifest); None: each line's own billing period.
    ``accept``: what of the checks a person lets pass.

    Raises BadInput naming file, row, column and value: a cost that is no number, a charge without currency or period, and
    whatever the plan checks.
    """
    session.execute("SET preserve_insertion_order = false")  # a charge says which line it is of
    files = ", ".join(string(str(path)) for path in lines.files)
    session.execute(
        f"CREATE OR REPLACE TEMP VIEW lines AS SELECT * FROM read_parquet([{files}], union_by_name = true, "
        "file_row_number = true, filename = '_file', hive_partitioning = false)"
    )
    _refuse_twins(lines, plan.money)
    money = _amounts(session, lines, plan.money, plan.decimals)
    numbers = _amounts(session, lines, plan.numbers)
    typed = [f"{amount.sql} AS m_{alias}" for alias, amount in money.cells.items()]
    typed += [f"{amount.sql} AS n_{alias}" for alias, amount in numbers.cells.items()]
    typed += [f"({sql}) AS d_{alias}" for alias, sql in plan.derived.items()]
    session.execute(f"CREATE OR REPLACE TEMP VIEW prepared AS SELECT {', '.join(['*', *typed])} FROM lines")
    _check_rows(session, lines, [check for check in plan.checks if not (check.is_time and accept.times)])
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
    _check_charges(session, lines, [fault for fault in _FAULTS if not (accept.currency and fault is _NO_CURRENCY)])
    periods = session.execute("SELECT DISTINCT delivery_period FROM charges ORDER BY 1").fetchall()
    return ChargeFile(path, money.scale, tuple(row[0] for row in periods))


def _refuse_twins(lines: Lines, money: Mapping[str, str]) -> None:
    """A cost column that the header names twice: which of them is the cost nobody can tell."""
    twice = {header.split(AGAIN)[0].casefold() for header, _ in lines.columns.pairs if AGAIN in header}
    for name in money.values():
        header = _header(lines, name)
        if header.casefold() in twice:
            hint = "take one of them out; the delivery is refused, the former one stays"
            raise BadInput("the header names this cost column twice", where=lines.columns.where, field=header, hint=hint)


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


def _check_rows(session: Any, lines: Lines, checks: Sequence[RowCheck]) -> None:
    if not checks:
        return
    counts = ", ".join(f"count(*) FILTER ({check.bad})" for check in checks)
    found = session.execute(f"SELECT {counts} FROM prepared").fetchone()
    for check, bad in zip(checks, found, strict=True):
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
    priced = f"kind NOT IN {strings(sorted(WITHOUT_LIST))}"
    list_cost = f"CASE WHEN {priced} AND NOT (kind IN {COVERED} AND list = 0 AND effective <> 0) THEN list END AS list"
    contracted = f"CASE WHEN {priced} THEN contracted END AS contracted"
    return (
        "SELECT * REPLACE (upper(trim(currency)) AS currency, coalesce(billed, 0) AS billed, "
        "coalesce(effective, 0) AS effective, coalesce(memo, 0) AS memo, "
        f"coalesce(tags, '{{}}') AS tags, {list_cost}, {contracted}) FROM ({inner})"
    )


def _type(name: str, type_: str, scale: int, number_scale: int) -> str:
    if name in MONEY_COLUMNS:
        return f"DECIMAL({DIGITS}, {scale})"
    return f"DECIMAL({DIGITS}, {number_scale})" if name in QUANTITY_COLUMNS else type_


@dataclass(frozen=True, slots=True)
class _Fault:
    """A charge for which ``bad`` holds stops the delivery; ``value``: SQL of what is shown of it."""

    field: str
    bad: str
    message: str
    hint: str
    value: str = "NULL"


_NO_CURRENCY = _Fault(
    "currency",
    f"currency NOT IN {strings(sorted(CURRENCIES))}",
    "is not a currency of ISO 4217",
    "the billing currency is a code such as USD, EUR or CNY; --accept currency keeps a code of the issuer's own",
    "currency",
)
_FAULTS = (
    _Fault("billing_period", "billing_period IS NULL", "a charge must have it", "its billing period cannot be read"),
    _Fault("currency", "currency = ''", "a charge must have it", "pass --currency XXX when the whole file is in one currency"),
    _Fault("provider", "provider = ''", "a charge must have it", "pass --source NAME when the whole file is of one issuer"),
    _NO_CURRENCY,
    _Fault(
        "charge_end", "charge_end < charge_start", "a charge ends before it starts", "are the two columns exchanged?",
        "concat(charge_start, ' to ', charge_end)",
    ),
)  # fmt: skip
"""What every charge must say, whatever its format."""


def _check_charges(session: Any, lines: Lines, faults: Sequence[_Fault]) -> None:
    counts = ", ".join(f"count(*) FILTER ({fault.bad})" for fault in faults)
    found = session.execute(f"SELECT {counts} FROM charges").fetchone()
    for fault, bad in zip(faults, found, strict=True):
        if bad:
            row = session.execute(
                f"SELECT line_file, line_row, {fault.value} FROM charges WHERE {fault.bad} ORDER BY line_file, line_row LIMIT 1"
            ).fetchone()
            where = lines.place(int(row[0]), int(row[1]))
            raise BadInput(f"{fault.message} ({bad:,} rows)", where=where, field=fault.field, value=row[2], hint=fault.hint)

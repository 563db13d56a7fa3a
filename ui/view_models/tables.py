"""A table as a value: what the screen draws and what the download holds are the same cells."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from ui.view_models.figures import column_places, rounded

Cell = str | int | Decimal | None
FORMULA_STARTS = "=+-@＝＋－＠\t\r\n|"


@dataclass(frozen=True, slots=True)
class Column:
    """``unit`` stands behind the title; ``places`` are the decimals of a number column."""

    title: str
    kind: Literal["text", "number", "count", "share"] = "text"
    places: int = 0
    help: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows hold one cell per column title. None: not known or not defined, which the row's note explains."""

    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Cell], ...]


def numbers(title: str, values: Sequence[str | None], help_: str = "") -> tuple[Column, list[Decimal | None]]:
    """A column of exact decimals, rounded once for screen and file, with decimals that keep its smallest value visible."""
    exact = [None if value is None else Decimal(value) for value in values]
    places = column_places(exact)
    return Column(title, "number", places, help_), [None if value is None else rounded(value, places) for value in exact]


def table(columns: Iterable[tuple[Column, Sequence[Cell]]]) -> Table:
    """Put columns of equal length side by side."""
    pairs = list(columns)
    titles = [column.title for column, _ in pairs]
    cells = zip(*(values for _, values in pairs), strict=True)
    return Table(tuple(column for column, _ in pairs), tuple(dict(zip(titles, row, strict=True)) for row in cells))


def as_csv(shown: Table) -> bytes:
    """The rows and columns of the screen, UTF-8 with a mark that spreadsheets know; texts cannot run as formulas."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([column.title for column in shown.columns])
    for row in shown.rows:
        writer.writerow([_cell(row[column.title]) for column in shown.columns])
    return out.getvalue().encode("utf-8-sig")


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = str(value)
    starts = text.lstrip(" \u00a0\u3000")[:1]
    return f"'{text}" if isinstance(value, str) and starts and starts in FORMULA_STARTS else text

"""What a command prints: JSON alone on standard output under ``--json``, else a table; progress goes to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from core.money import plain

OPEN_ENDED = frozenset({"paused_until", "until", "valid_to", "expires_at", "revoked_at", "last_seen_at", "last_used_at", "cap"})
"""Columns in which nothing means "none": no end, no pause, no cap."""
_NUMBERS = (int, float, Decimal)
WIDE = 240
"""Columns of a table that goes to a file or a pipe; more where its words and numbers need more."""
_ANY_WIDTH = 100_000


def jsonable(value: Any) -> Any:
    """Decimals as plain strings, times as RFC 3339 Z; a float never stands for money."""
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    return value


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(jsonable(value), ensure_ascii=False, indent=2) + "\n")


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool, title: str = "", empty: str = "Nothing to show.") -> None:
    """Rows as JSON, or as a table with right-aligned numbers; an unknown value shows as "unknown", an absent end as "none"."""
    if as_json:
        print_json(list(rows))
        return
    console = _console(None if sys.stdout.isatty() else WIDE)
    if not rows:
        console.print(empty)
        return
    table = _table(rows, title)
    least = Measurement.get(console, console.options.update(width=_ANY_WIDTH), table).minimum
    if least <= console.width:
        console.print(table)
    elif sys.stdout.isatty():
        _print_one_by_one(console, rows, title)
    else:
        _console(least).print(table)


def _console(width: int | None) -> Console:
    """Names are shown as they are: a tenant called `[/red]` or `:bug:` is neither markup nor a picture."""
    return Console(width=width, markup=False, emoji=False)


def _table(rows: Sequence[Mapping[str, Any]], title: str) -> Table:
    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for name in rows[0]:
        header, numeric = name.replace("_", " "), any(isinstance(row.get(name), _NUMBERS) for row in rows)
        least = max(len(header), *(len(_shown(name, row.get(name))) for row in rows)) if numeric else None
        table.add_column(header, justify="right" if numeric else "left", no_wrap=numeric, min_width=least, overflow="fold")
    for row in rows:
        table.add_row(*(_shown(name, row.get(name)) for name in rows[0]))
    return table


def _print_one_by_one(console: Console, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """A line a value, for rows wider than the terminal: a table squeezed into it loses its keys and cuts its numbers."""
    if title:
        console.print(title)
    for row in rows:
        block = Table(box=None, show_header=False, padding=(0, 2))
        block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        for name in rows[0]:
            block.add_row(name.replace("_", " "), _shown(name, row.get(name)))
        console.print(block)
        console.print()


def _shown(name: str, value: Any) -> str:
    return "none" if name in OPEN_ENDED and value is None else _cell(value)


def _cell(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Decimal):
        return plain(value)
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(jsonable(value), ensure_ascii=False)
    return str(jsonable(value))


def say(message: str) -> None:
    """A line for people, on standard error so that it never mixes with data."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


class Progress:
    """One updating line on a terminal, a line every few seconds elsewhere; silent when ``quiet``."""

    def __init__(self, what: str, *, quiet: bool = False, every: int = 50_000) -> None:
        self._what, self._quiet, self._every = what, quiet, every
        self._shown = 0

    def __call__(self, done: int, total: int | None = None) -> None:
        if self._quiet or (done - self._shown < self._every and done != total):
            return
        self._shown = done
        share = f" of {total:,} ({100 * done // total} %)" if total else ""
        end = "\r" if sys.stderr.isatty() and done != total else "\n"
        sys.stderr.write(f"{self._what}: {done:,}{share}{end}")
        sys.stderr.flush()


def bullet_list(lines: Iterable[str]) -> str:
    return "\n".join(f"  - {line}" for line in lines)

"""Options every command takes, parsed once into a ``Run``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cli.data_folder import close_to_others
from cli.settings import Settings, load
from core.errors import BadInput
from core.windows import Window, require_utc


@dataclass(frozen=True, slots=True)
class Run:
    """One invocation: the settings with the command line's values in, and how to print."""

    settings: Settings
    as_json: bool


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--db``, ``--data-dir`` and ``--json``; the command gets a ``Run`` as its first argument."""

    @click.option("--db", "db_url", metavar="URL", help="postgresql:// URL (default: the embedded database in the data folder)")
    @click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="data folder (default: ./data)")
    @click.option("--json", "as_json", is_flag=True, help="print JSON, and nothing else, on standard output")
    @wraps(command)
    def wrapper(*args: Any, db_url: str | None, data_dir: Path | None, as_json: bool, **kwargs: Any) -> Any:
        settings = load(db_url=db_url, data_dir=data_dir)
        close_to_others(settings.data_dir)
        return command(Run(settings, as_json), *args, **kwargs)

    return wrapper


def window_options(default: timedelta | None = timedelta(days=1)) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--from`` and ``--to`` (half-open, RFC 3339 with zone or a date in UTC); the command gets ``window``."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--from", "from_", metavar="TIME", help="start, included: 2026-11-30T12:00:00Z or 2026-11-30")
        @click.option("--to", metavar="TIME", help="end, not included (default: now)")
        @wraps(command)
        def wrapper(*args: Any, from_: str | None, to: str | None, **kwargs: Any) -> Any:
            end = parse_time(to, "--to") if to else datetime.now(UTC)
            if from_ is None and default is None:
                start = datetime(2000, 1, 1, tzinfo=UTC)
            else:
                start = parse_time(from_, "--from") if from_ else end - (default or timedelta())
            if end <= start:
                option = "--to" if to else "--from"
                told = f"the window would be {start.isoformat()} to {end.isoformat()}"
                raise BadInput("the window must end after it starts", field=option, value=to or from_, hint=told)
            return command(*args, window=Window(start, end), **kwargs)

        return wrapper

    return decorate


def parse_time(text: str, option: str) -> datetime:
    """An aware instant; a bare date is its UTC midnight. Raises BadInput naming the option."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput("not a time", field=option, value=text, hint="write 2026-11-30T12:00:00Z or 2026-11-30") from error
    if at.tzinfo is None and len(text) <= len("2026-11-30"):
        at = at.replace(tzinfo=UTC)
    return require_utc(at, option)


def parse_ahead(text: str, option: str, now: datetime) -> datetime:
    """An instant in the future: a time, or a span from now such as 2h, 30m, 7d."""
    units = {"m": "minutes", "h": "hours", "d": "days"}
    if text[:-1].isdigit() and text[-1:] in units:
        return now + timedelta(**{units[text[-1]]: int(text[:-1])})
    at = parse_time(text, option)
    if at <= now:
        raise BadInput("is in the past", field=option, value=text, hint="give a later time or a span such as 2h")
    return at

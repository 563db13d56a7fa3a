"""Single values of telemetry to what a record holds: whole numbers, instants, names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b

from core.errors import BadRecord
from core.usage import MAX_NAME
from core.usage_codec import EARLIEST, LATEST
from ingest.otlp.conventions import Scalar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_ID = 160
MAX_EXACT_FLOAT = 2**53
EARLIEST_US, LATEST_US = ((at - EPOCH) // timedelta(microseconds=1) for at in (EARLIEST, LATEST))


def whole(value: Scalar | None, name: str, low: int, high: int) -> int | None:
    """A whole number, also as digits or as a float without a fraction; None for None. Raises BadRecord."""
    if value is None:
        return None
    if isinstance(value, str):
        number = int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    elif isinstance(value, float):
        number = int(value) if value.is_integer() and abs(value) <= MAX_EXACT_FLOAT else None
    else:
        number = None if isinstance(value, bool) else value
    if number is None:
        raise BadRecord("must be a whole number", field=name, value=None if isinstance(value, str) else value)
    if not low <= number <= high:
        raise BadRecord(f"must be {low} to {high}", field=name, value=number)
    return number


def instant(ns: int, name: str) -> datetime:
    """UTC of ns since the epoch, to the microsecond. Raises BadRecord for 0 and what lies outside 2000 to 2099."""
    us = ns // 1000
    if not EARLIEST_US <= us < LATEST_US:
        raise BadRecord("is absent or outside the years 2000 to 2099", field=name, value=ns)
    return EPOCH + timedelta(microseconds=us)


@lru_cache(maxsize=20_000)
def short(name: str) -> str:
    """An id as it is when it is short and plain, else its hash."""
    if len(name) <= LONGEST_ID and name.isprintable() and not set(name) & {'"', "\\"}:
        return name
    return f"h:{blake2b(name.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"


@lru_cache(maxsize=20_000, typed=True)
def label(value: Scalar | None, field: str) -> str:
    """A name of at most 120 printable characters, '' for None. Raises BadRecord."""
    text = "" if value is None else str(value)
    if len(text) > MAX_NAME or not text.isprintable():
        raise BadRecord(f"must be at most {MAX_NAME} printable characters", field=field, value=len(text))
    return text

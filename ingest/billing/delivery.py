"""What is imported as a unit: (source, export, billing period, delivery), whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol

from core.billing import period_name
from core.errors import BadInput
from ingest.billing.adapter import BillOptions

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    """One object of a store. ``tag`` changes when its content does (ETag, or size and time)."""

    key: str
    size: int
    tag: str
    modified: float = 0.0


class FileStore(Protocol):
    """Where bills lie: a folder or a bucket. Keys are relative to nothing but the store; names are shown to people."""

    def listed(self) -> Sequence[Stored]:
        """Every object at or under the source, by key. Raises BadInput, Refused or Unavailable."""
        ...

    def read(self, key: str) -> bytes: ...

    def fetch(self, key: str, folder: Path) -> Path:
        """The object as a local file, below ``folder`` unless it is one already."""
        ...

    def name(self, key: str) -> str: ...


@dataclass(frozen=True, slots=True)
class FoundDelivery:
    """A delivery before its files are read. ``period`` None: the lines say it. ``manifest``: (key, bytes) where there is one;
    ``missing``: files it names that are not there."""

    export: str
    delivery_id: str
    keys: tuple[str, ...]
    period: date | None = None
    manifest: tuple[str, bytes] | None = None
    missing: tuple[str, ...] = ()


def no_such_month(periods: Iterable[date], month: date, origin: str) -> BadInput:
    """The error of a place without a delivery of the month that was asked for."""
    there = ", ".join(period_name(period) for period in sorted(set(periods)))
    value = f"{month:%Y-%m}"
    return BadInput("holds nothing of this billing period", where=origin, field="month", value=value, hint=f"it holds {there}")


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery at hand: ``files`` are (name shown, path)."""

    export: str
    delivery_id: str
    origin: str
    files: tuple[tuple[str, Path], ...]
    period: date | None
    digest: str


@dataclass(frozen=True, slots=True)
class Accept:
    """What a person allows beyond the rule. ``instead_of``: an export whose current delivery of the period gives way."""

    shorter: bool = False
    older: bool = False
    overlap: bool = False
    future: bool = False
    currency: bool = False
    times: bool = False
    instead_of: str = ""


def digest_of(format: str, options: BillOptions, manifest: bytes, files: Sequence[Path]) -> str:
    """One value for the same content read the same way, from wherever it came."""
    whole = hashlib.sha256(repr((format, options.source, options.export, options.currency, options.net)).encode())
    if options.month is not None:
        whole.update(options.month.isoformat().encode())
    if options.mapping is not None:
        whole.update(options.mapping.read_bytes())
    whole.update(hashlib.sha256(manifest).digest())
    for path in files:
        one = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                one.update(chunk)
        whole.update(one.digest())
    return whole.hexdigest()

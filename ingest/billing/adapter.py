"""The port of bill formats: an adapter says which columns make a charge, as SQL expressions; it never loops over rows.

All columns of a file are text until an adapter names them: ids stay as written, money is read exactly (``ChargePlan.money``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Protocol

from core.errors import BadInput
from ingest.billing.sql import quoted, string

TEXT_COLUMNS = (
    "provider", "invoice_issuer", "billing_account", "account", "invoice_id", "service", "region", "zone", "resource_id",
    "parent_resource_id", "instance_type", "sku", "meter", "operation", "description", "commitment_id", "capacity_reservation_id",
    "charge_category", "charge_class", "kind", "family", "pricing_category", "currency", "unit",
)  # fmt: skip
"""Canonical text columns of a charge (``core.billing.Charge`` and FOCUS): absent means ''."""
OTHER_COLUMNS = {
    "billing_period": "DATE", "charge_start": "TIMESTAMP", "charge_end": "TIMESTAMP", "billed": "", "effective": "", "list": "",
    "contracted": "", "memo": "", "quantity": "", "hours": "", "tags": "VARCHAR",
}  # fmt: skip
"""The others and their type; '' is the file's exact decimal. ``tags`` is a JSON object as text. Times are UTC."""


@dataclass(frozen=True, slots=True)
class BillOptions:
    """What a person said beside the files. ``currency`` holds where lines name none."""

    source: str = ""
    export: str = ""
    currency: str = ""
    net: bool = False
    """AWS: costs with private discounts already in each price, where the file has the net columns."""
    mapping: Path | None = None
    month: date | None = None
    """Of a file whose lines say their billing period: only this one's (its first day)."""


TIME_HINT = "expected YYYY-MM-DD, YYYY-MM-DDTHH:MM:SSZ or MM/DD/YYYY; --accept times takes it as unknown"


class Columns:
    """A file's columns by any spelling: ``lineItem/UnblendedCost`` and ``line_item_unblended_cost`` are one.

    ``pairs``: the header as written, and the column's name in the lines (they differ where two headers differ only in case).
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], where: str = "") -> None:
        self.pairs = tuple(pairs)
        self.where = where
        self._exact = dict(reversed(self.pairs))
        self._squeezed = {squeeze(header): name for header, name in reversed(self.pairs)}

    def find(self, *spellings: str) -> str | None:
        """The column's name in the lines, None when the file has none of the spellings; an earlier spelling wins."""
        for spelling in spellings:
            found = self._exact.get(spelling) or self._squeezed.get(squeeze(spelling))
            if found is not None:
                return found
        return None

    def require(self, *spellings: str, hint: str = "") -> str:
        """Like ``find``. Raises BadInput naming the column and the file: a cost column that is missing is not zero."""
        found = self.find(*spellings)
        if found is None:
            raise BadInput("the file has no such column", where=self.where, field=spellings[0], hint=hint or self._near())
        return found

    def text(self, *spellings: str) -> str:
        """SQL of the column as text with null spellings gone; ``NULL`` where the file has no such column."""
        found = [name for name in (self.find(spelling) for spelling in spellings) if name is not None]
        parts = [f"txt({quoted(name)})" for name in dict.fromkeys(found)]
        if not parts:
            return "NULL::VARCHAR"
        return parts[0] if len(parts) == 1 else f"coalesce({', '.join(parts)})"

    def starting(self, *prefixes: str) -> list[tuple[str, str]]:
        """(rest of the header, name) of all columns whose header starts with one of ``prefixes``, as written."""
        return [(h[len(p) :], name) for h, name in self.pairs for p in prefixes if h.startswith(p) and len(h) > len(p)]

    def _near(self) -> str:
        shown = ", ".join(header for header, _ in self.pairs[:12])
        return f"its columns are {shown}{' …' if len(self.pairs) > 12 else ''}; see docs/bills.md for the formats"


def squeeze(header: str) -> str:
    """Letters and digits alone, lower case."""
    return "".join(sign for sign in header.casefold() if sign.isalnum())


@dataclass(frozen=True, slots=True)
class ChargeSelect:
    """One charge of each line for which ``where`` holds. ``columns``: canonical column to SQL; left out: '' or unknown.

    Expressions see the lines' columns, ``m_ALIAS`` (money), ``n_ALIAS`` (quantities), ``d_ALIAS`` and the macros of
    ``ingest.billing.sql``. ``bucket`` is not an adapter's to say: it follows from kind, charge_class and family.
    ``lateral`` is appended to FROM, for lines that hold lists (``, LATERAL (SELECT unnest(…) AS x)``)."""

    columns: Mapping[str, str]
    where: str = ""
    lateral: str = ""


@dataclass(frozen=True, slots=True)
class RowCheck:
    """A line for which ``bad`` holds stops the delivery, named by file and row."""

    bad: str
    field: str
    message: str
    hint: str = ""
    value: str = "NULL"
    is_time: bool = False
    """``--accept times`` lets it pass: the time is unknown then."""


@dataclass(frozen=True, slots=True)
class ChargePlan:
    """How the lines of one delivery become charges. ``money`` and ``numbers``: alias to the lines' column. A cell of either that
    is no number stops the delivery; their scales are the most decimals that occur, so nothing is rounded."""

    selects: tuple[ChargeSelect, ...]
    money: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, str] = field(default_factory=dict)
    derived: Mapping[str, str] = field(default_factory=dict)
    """Expressions that others use as ``d_ALIAS``, in order; they see the lines (also whole, as table ``lines``) and amounts."""
    checks: tuple[RowCheck, ...] = ()
    notes: tuple[str, ...] = ()
    decimals: tuple[str, ...] = ()
    """For amounts that stand inside a line's lists: SQL over the lines of how many decimals they have."""


class BillAdapter(Protocol):
    """One bill format."""

    source: str
    """The issuer where the format has one ('aws'), else '': the lines or a person name it."""

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        """Raises BadInput when a column without which there is no cost is missing."""
        ...


def time_checks(columns: Columns, *headers: str) -> tuple[RowCheck, ...]:
    """A time that is written and cannot be read stops the delivery; an empty one is unknown."""
    named = [(header, columns.text(header)) for header in headers if columns.find(header) is not None]
    return tuple(
        RowCheck(f"{text} IS NOT NULL AND at_utc({text}) IS NULL", header, "is no date that can be read", TIME_HINT, text, True)
        for header, text in named
    )


def currency_sql(named: str, options: BillOptions) -> str:
    """SQL of a line's currency: the one it names, else the one given for the file."""
    return f"coalesce({named}, {string(options.currency) if options.currency else 'NULL'})"


def json_text(expression: str) -> str:
    """SQL of a JSON object from a cell that should hold one; what is none is kept under the key ``_unread``."""
    return (
        f"CASE WHEN {expression} IS NULL THEN '{{}}' WHEN json_valid({expression}) AND json_type({expression}) = 'OBJECT' "
        f"THEN {expression} ELSE json_object('_unread', {expression})::VARCHAR END"
    )


def json_of(pairs: Sequence[tuple[str, str]]) -> str:
    """SQL of a JSON object from (key, column) pairs, cells without a value left out; '{}' of none."""
    if not pairs:
        return "'{}'"
    cells = ", ".join(
        f"CASE WHEN txt({quoted(name)}) IS NULL THEN NULL ELSE {string(_key(key))} || to_json({quoted(name)})::VARCHAR END"
        for key, name in pairs
    )
    return f"'{{' || concat_ws(',', {cells}) || '}}'"


def _key(key: str) -> str:
    return json.dumps(key, ensure_ascii=False) + ":"

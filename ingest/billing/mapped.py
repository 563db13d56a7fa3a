"""Any bill by a declared mapping: a YAML file says which column is what, and what must add up in every line.

``columns`` names a column for each canonical one (``billed`` and a time are needed), ``constants`` what every line has,
``values`` what the words of the ``kind`` and ``family`` columns mean, ``tags`` a column for each tag,
``utc_offset_hours`` how far the bill's local times are from UTC,
``sums`` which columns of a line must add up: ``- {equals: Net, of: [Gross, Discount]}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from core.billing import FAMILIES, KINDS
from core.errors import BadInput
from ingest.billing.adapter import TEXT_COLUMNS, BillOptions, ChargePlan, ChargeSelect, Columns, RowCheck, json_of
from ingest.billing.sql import quoted, string

KEYS = ("columns", "constants", "values", "tags", "utc_offset_hours", "sums")
COSTS = ("billed", "effective", "list", "contracted")
NUMBERS = ("quantity", "hours")
TIMES = ("billing_period", "charge_start", "charge_end")
FIELDS = (*COSTS, *NUMBERS, *TIMES, *TEXT_COLUMNS)
MEANT: Mapping[str, tuple[str, ...]] = {"kind": KINDS, "family": FAMILIES}
CATEGORIES = (("tax", "Tax"), ("credit", "Credit"), ("refund", "Credit"), ("adjustment", "Adjustment"), ("purchase", "Purchase"))
SEE = "see docs/bills.md"


class Mapped:
    source = ""

    def plan(self, columns: Columns, options: BillOptions) -> ChargePlan:
        if options.mapping is None:
            raise BadInput("is required for this format", field="--mapping", hint=f"pass a YAML file; {SEE}")
        mapping = read_bill_mapping(options.mapping)
        named: dict[str, str] = mapping["columns"]
        found = {name: columns.require(header) for name, header in named.items()}
        sums = [(row["equals"], list(row["of"])) for row in mapping.get("sums", ())]
        parts = dict.fromkeys(header for equals, of in sums for header in (equals, *of))
        aliases = {header: f"sum{number}" for number, header in enumerate(parts)}
        money = {name: found[name] for name in COSTS if name in found}
        money |= {alias: columns.require(header) for header, alias in aliases.items()}
        return ChargePlan(
            selects=(ChargeSelect(_charge(mapping, columns, found, options)),),
            money=money,
            numbers={name: found[name] for name in NUMBERS if name in found},
            checks=(*_cell_checks(named, found), *(_sum_check(equals, of, aliases, columns) for equals, of in sums)),
        )


def read_bill_mapping(path: Path) -> dict[str, Any]:
    """A mapping file, checked. Raises BadInput naming file, key and what to do."""
    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())[:120]
        raise BadInput(f"cannot be read as YAML: {said}", where=str(path), field="--mapping") from error
    where = path.name
    if not isinstance(body, dict) or not isinstance(body.get("columns"), dict):
        raise BadInput("must have `columns`", where=where, hint=SEE)
    _known(body, KEYS, where, "is not a key of a bill mapping")
    _known({**body["columns"], **(body.get("constants") or {})}, FIELDS, where, "is no column of a charge")
    for needed in (("billed",), ("billing_period", "charge_start")):
        if not any(name in body["columns"] for name in needed):
            raise BadInput("must be mapped", where=where, field=" or ".join(needed), hint=SEE)
    values = body.get("values") or {}
    _known(values, tuple(MEANT), where, "has no values to map")
    for name, meanings in values.items():
        for word, meaning in meanings.items():
            if meaning not in MEANT[name]:
                hint = f"use {', '.join(MEANT[name])}"
                raise BadInput(f"is no {name}", where=where, field=f"values.{name}.{word}", value=meaning, hint=hint)
    return {name: value for name, value in body.items() if value is not None}


def _known(given: Mapping[str, Any], known: tuple[str, ...], where: str, message: str) -> None:
    for name in given:
        if name not in known:
            raise BadInput(message, where=where, field=str(name), hint=f"use {', '.join(known)}")


def _charge(mapping: Mapping[str, Any], columns: Columns, found: Mapping[str, str], options: BillOptions) -> dict[str, str]:
    constants = {name: str(value) for name, value in mapping.get("constants", {}).items()}
    constants.setdefault("provider", options.source)
    constants.setdefault("currency", options.currency)
    charge = {name: string(value) for name, value in constants.items() if value}
    values = mapping.get("values", {})
    for name in TEXT_COLUMNS:
        if name in found:
            cell = f"txt({quoted(found[name])})"
            said = _meaning(cell, values[name]) if name in values else cell
            charge[name] = f"coalesce({said}, {charge[name]})" if name in charge else said
    charge.setdefault("kind", "'usage'")
    charge.setdefault("family", "'unknown'")
    charge |= {name: f"n_{name}" for name in NUMBERS if name in found}
    charge |= {name: f"m_{name}" for name in COSTS if name in found}
    charge.setdefault("effective", "m_billed")
    category = " ".join(f"WHEN {string(kind)} THEN {string(word)}" for kind, word in CATEGORIES)
    charge.setdefault("charge_category", f"CASE {charge['kind']} {category} ELSE 'Usage' END")
    charge["tags"] = json_of([(tag, columns.require(header)) for tag, header in mapping.get("tags", {}).items()])
    return charge | _times(found, float(mapping.get("utc_offset_hours", 0)))


def _meaning(cell: str, meanings: Mapping[str, str]) -> str:
    """A word that is not declared is ``unknown``, and is shown."""
    cases = " ".join(f"WHEN {cell} = {string(str(word))} THEN {string(meaning)}" for word, meaning in meanings.items())
    return f"CASE WHEN {cell} IS NULL THEN NULL {cases} ELSE 'unknown' END"


def _times(found: Mapping[str, str], offset_hours: float) -> dict[str, str]:
    """Instants in UTC; the billing period stays local, as the issuer means it."""
    back = f"- INTERVAL '{round(offset_hours * 60)} minutes'"
    times = {name: f"(at_utc(txt({quoted(found[name])})) {back})" for name in TIMES[1:] if name in found}
    period = _period(found["billing_period"] if "billing_period" in found else found["charge_start"])
    return {**times, "billing_period": f"date_trunc('month', {period})::DATE"}


def _period(column: str) -> str:
    cell = f"txt({quoted(column)})"
    return f"coalesce(try_strptime({cell}, '%Y-%m'), at_utc({cell}))"


def _cell_checks(named: Mapping[str, str], found: Mapping[str, str]) -> list[RowCheck]:
    checks = [RowCheck("m_billed IS NULL", named["billed"], "the cost is missing", "a charge without a cost is not zero")]
    for name in TIMES:
        if name in found:
            cell = f"txt({quoted(found[name])})"
            bad = f"{cell} IS NOT NULL AND {_period(found[name])} IS NULL"
            checks.append(RowCheck(bad, named[name], "is no date that can be read", "expected YYYY-MM-DD or MM/DD/YYYY", cell))
    return checks


def _sum_check(equals: str, of: list[str], aliases: Mapping[str, str], columns: Columns) -> RowCheck:
    total = " + ".join(f"coalesce(m_{aliases[header]}, 0)" for header in of)
    message = f"is not the sum of {' and '.join(of)}"
    bad = f"coalesce(m_{aliases[equals]}, 0) <> {total}"
    return RowCheck(bad, equals, message, "the mapping says it must be", quoted(columns.require(equals)))

"""FOCUS 1.2's own requirements model, evaluated on rows: every rule of the model passes, fails, or says why it is not checked.

A rule's condition picks the rows, its requirement must hold for each of them. Columns of the file are always judged, also where
the criterion that would demand them does not hold; a missing column is judged by the rule on its presence alone.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

MODEL = Path(__file__).parent / "data" / "focus_1_2_0_1_rules.json.gz"
Row = Mapping[str, Any]
Node = Mapping[str, Any]
MISWRITTEN: Mapping[str, str] = {
    "InvoiceId-C-004-C": "null, and its sibling not null, of every row; the words say when. The OR above them is judged",
    "InvoiceId-C-005-C": "not null, and its sibling null, of every row; the words say when. The OR above them is judged",
    "CommitmentDiscountStatus-C-004-C": "the machine form asks for a status without a commitment, the words with one",
    "CommitmentDiscountStatus-C-005-M": "the machine form's values are not those of the words (Used, Unused), and null is none",
}
"""Rules whose machine form contradicts another rule or their own words, by the model's own text."""


@dataclass(frozen=True, slots=True)
class Verdict:
    rule: str
    result: Literal["pass", "fail", "skipped"]
    reason: str = ""


@dataclass
class Checked:
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def count(self, result: str) -> int:
        return sum(one.result == result for one in self.verdicts.values())

    @property
    def failed(self) -> list[str]:
        return [f"{one.rule}: {one.reason}" for one in self.verdicts.values() if one.result == "fail"]

    @property
    def skipped(self) -> Counter[str]:
        return Counter(one.reason for one in self.verdicts.values() if one.result == "skipped")


def model() -> dict[str, Node]:
    rules: dict[str, Node] = json.loads(gzip.decompress(MODEL.read_bytes()))["rules"]
    return rules


class FocusChecker:
    def __init__(self, rows: Sequence[Row], columns: Iterable[str], criteria: Iterable[str]) -> None:
        self.rows, self.columns, self.criteria = rows, set(columns), set(criteria)
        self.rules = model()
        self.checked = Checked()

    def run(self) -> Checked:
        for name in self.rules:
            self._judge(name)
        return self.checked

    def _judge(self, name: str) -> Verdict:
        if name not in self.checked.verdicts:
            self.checked.verdicts[name] = self._verdict(name)
        return self.checked.verdicts[name]

    def _verdict(self, name: str) -> Verdict:
        rule = self.rules[name]
        skip = self._skip(name, rule)
        if skip:
            return Verdict(name, "skipped", skip)
        children = list(_children(rule["requirement"]))
        if children:
            return self._composite(name, rule["requirement"], children)
        if rule["requirement"]["CheckFunction"] == "CheckDistinctCount":
            return self._distinct(name, rule["requirement"])
        for number, row in enumerate(self.rows):
            if self._holds(rule["condition"], row) and not self._holds(rule["requirement"], row):
                return Verdict(name, "fail", f"row {number}: {rule['text']}")
        return Verdict(name, "pass")

    def _skip(self, name: str, rule: Node) -> str:
        if rule["keyword"] == "MAY":
            return "MAY: nothing to fail"
        if name in MISWRITTEN:
            return "the machine form contradicts the words"
        if not rule["requirement"]:
            return "words alone, no machine form"
        if rule["function"] == "Presence" and not set(rule["criteria"]) <= self.criteria:
            return "criterion does not hold"
        if rule["function"] not in ("Presence", "Composite") and rule["entity"] not in self.columns:
            return "column is not in the file"
        return ""

    def _composite(self, name: str, requirement: Node, children: list[str]) -> Verdict:
        found = [self._judge(child) for child in children]
        judged = [one for one in found if one.result != "skipped"]
        if requirement["CheckFunction"] == "OR":
            rules = [self.rules[child]["requirement"] for child in children]
            ok = all(any(self._holds(rule, row) for rule in rules) for row in self.rows)
            return Verdict(name, "pass" if ok else "fail", "" if ok else f"none of {', '.join(children)}")
        if not judged:
            return Verdict(name, "skipped", "no child was judged")
        bad = [one.rule for one in judged if one.result == "fail"]
        return Verdict(name, "fail" if bad else "pass", f"children failed: {', '.join(bad)}" if bad else "")

    def _distinct(self, name: str, check: Node) -> Verdict:
        seen: dict[Any, set[Any]] = defaultdict(set)
        for row in self.rows:
            if row.get(check["ColumnAName"]) is not None:
                seen[row[check["ColumnAName"]]].add(row.get(check["ColumnBName"]))
        bad = [key for key, values in seen.items() if len(values) != int(check["ExpectedCount"])]
        return Verdict(name, "fail" if bad else "pass", f"{bad[:3]}" if bad else "")

    def _holds(self, check: Node, row: Row) -> bool:
        if not check:
            return True
        function = check["CheckFunction"]
        if function in ("AND", "OR"):
            return (all if function == "AND" else any)(self._holds(item, row) for item in check["Items"])
        if function == "ColumnPresent":
            return check["ColumnName"] in self.columns
        if function in _PAIRS:
            return _PAIRS[function](row, check)
        return _SINGLE[function](row.get(check["ColumnName"]), check)


def _children(requirement: Node) -> Iterable[str]:
    if requirement.get("CheckFunction") in ("AND", "OR"):
        for item in requirement["Items"]:
            if item.get("CheckFunction") == "CheckModelRule":
                yield item["ModelRuleId"]
    elif requirement.get("CheckFunction") == "CheckModelRule":
        yield requirement["ModelRuleId"]


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(value, Decimal) and wanted is not None:
        return value == Decimal(str(wanted))
    return bool(value == wanted)


def _unit(value: Any, _: Node) -> bool:
    """UnitFormat: a unit, UNIT-TIME or UNIT/TIME, with a whole number before it where it is a block of several."""
    return value is None or re.fullmatch(r"(?:[1-9][0-9]* )?[A-Z][A-Za-z]*(?:[-/][A-Z][A-Za-z]*)?", value) is not None


def _key_value(value: Any, _: Node) -> bool:
    if value is None:
        return True
    try:
        pairs = json.loads(value, object_pairs_hook=list)
    except ValueError:
        return False
    keys = [key for key, _ in pairs]
    scalars = all(one is None or isinstance(one, (str, int, float, bool)) for _, one in pairs)
    return value.startswith("{") and len(set(keys)) == len(keys) and scalars


def _typed(kind: type) -> Callable[[Any, Node], bool]:
    return lambda value, _: value is None or isinstance(value, kind)


_SINGLE: Mapping[str, Callable[[Any, Node], bool]] = {
    "TypeString": _typed(str),
    "TypeDecimal": _typed(Decimal),
    "TypeDateTime": _typed(datetime),
    "FormatString": lambda value, _: value is None or (bool(value.strip()) and value.isprintable()),
    "FormatNumeric": lambda value, _: value is None or value.is_finite(),
    "CheckDecimalValue": lambda value, _: isinstance(value, Decimal) and value.is_finite(),
    "FormatDateTime": lambda value, _: value is None or value.utcoffset() == timedelta(0),
    "FormatUnit": _unit,
    "FormatCurrency": lambda value, _: value is None or re.fullmatch(r"[A-Z]{3}", value) is not None,
    "CheckNationalCurrency": lambda value, _: value is not None and re.fullmatch(r"[A-Z]{3}", value) is not None,
    "FormatKeyValue": _key_value,
    "CheckValue": lambda value, check: _same(value, check["Value"]),
    "CheckNotValue": lambda value, check: not _same(value, check["Value"]),
    "CheckGreaterOrEqualThanValue": lambda value, check: value is None or value >= Decimal(str(check["Value"])),
}
_PAIRS: Mapping[str, Callable[[Row, Node], bool]] = {
    "CheckSameValue": lambda row, c: row.get(c["ColumnAName"]) == row.get(c["ColumnBName"]),
    "CheckNotSameValue": lambda row, c: row.get(c["ColumnAName"]) != row.get(c["ColumnBName"]),
    "ColumnByColumnEqualsColumnValue": lambda row, c: row[c["ColumnAName"]] * row[c["ColumnBName"]] == row[c["ResultColumnName"]],
}

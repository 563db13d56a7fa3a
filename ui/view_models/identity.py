"""What the page of tenants and identity rules shows, and the rules as rows a person edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors import BadInput
from core.identity import PATH_PARTS, SETTABLE, UNASSIGNED
from core.identity_codec import conditions_text, decode_rules, digest_of, encode_rules, parse_conditions
from core.identity_guard import client_conditions
from core.identity_match import Matcher
from ui.view_models.figures import stamp
from ui.view_models.tables import Cell, Column, Table, numbers, table

PART_TITLES: Mapping[str, str] = {
    "org": "Organisation", "team": "Team", "project": "Project", "user": "User", "service_tier": "Tier",
}  # fmt: skip
TENANT_GROUPS: Mapping[str, tuple[str, ...]] = {
    "org": ("org",),
    "team": ("org", "team"),
    "project": ("org", "team", "project"),
    "user": ("org", "team", "project", "user"),
    "key_id": ("org", "team", "key_id"),
}
GROUP_WORDS: Mapping[str, str] = {
    "org": "Organisation", "team": "Team", "project": "Project", "user": "User", "key_id": "Key",
}  # fmt: skip
ORDER, RULE, WHEN, THEN = "Order", "Rule", "When", "Then"
COLUMNS = (ORDER, RULE, WHEN, *PART_TITLES.values(), THEN)
EMPTY = '""'
"""Typed into a cell: the rule empties this part; a blank cell leaves it alone."""
THENS: Mapping[str, str] = {"stop": "stop", "continue": "go on"}
NOBODY = "(nobody)"
Row = Mapping[str, Any]


def rule_rows(rules: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rules as editor rows, in order; a set without rules gives one blank row."""
    found = decode_rules(without_nulls(rules))
    rows = []
    for place, rule in enumerate(found.rules, 1):
        sets = dict(rule.sets)
        cells = {title: (sets[part] or EMPTY) if part in sets else "" for part, title in PART_TITLES.items()}
        then = THENS["stop" if rule.stops else "continue"]
        rows.append({ORDER: place, RULE: rule.name, WHEN: conditions_text(rule.when), **cells, THEN: then})
    return rows or [{ORDER: 1, RULE: "", WHEN: "", **dict.fromkeys(PART_TITLES.values(), ""), THEN: THENS["stop"]}]


def rules_of(rows: Sequence[Row], start: str, default: str, gateway_sets: str = "") -> dict[str, Any]:
    """The edited rows as the API takes them; ``gateway_sets`` are fields separated by commas. Blank rows are left out. Raises
    BadInput naming the row and its column."""
    filled = [row for row in rows if any(_text(row.get(title)) for title in (RULE, WHEN, *PART_TITLES.values()))]
    rules = [_rule(row, number) for number, row in enumerate(sorted(filled, key=_order), 1)]
    marks = [field for field in (part.strip() for part in gateway_sets.split(",")) if field]
    item = {"start": start, "default": {"org": default.strip()} if default.strip() else {}, "rules": rules, "gateway_sets": marks}
    checked = decode_rules(item)
    try:
        Matcher(checked)
    except BadInput as error:
        raise BadInput(error.message, where=_place(error.field), value=error.value, hint=error.hint) from error
    return encode_rules(checked)


def digest(rules: Mapping[str, Any]) -> str:
    """Equal for sets that say the same."""
    return digest_of(decode_rules(without_nulls(rules)))


def client_words(rules: Mapping[str, Any]) -> list[str]:
    """Conditions that guards leave out of account: what they look at is the client's word. Each as ``RULE: CONDITION``."""
    found = decode_rules(without_nulls(rules))
    return client_conditions(found.rules, found.gateway_sets)


def without_nulls(rules: Mapping[str, Any]) -> dict[str, Any]:
    """The API's answer without the parts that are not set."""
    found = {**rules, "default": _set_parts(rules.get("default") or {})}
    found["rules"] = [{**rule, "set": _set_parts(rule["set"])} for rule in rules.get("rules", [])]
    return found


def default_org(version: Mapping[str, Any]) -> str:
    """The organisation of the default; a first set is offered the usual one."""
    return str((version["rules"].get("default") or {}).get("org") or "") if version["version"] else UNASSIGNED


def _set_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value is not None}


def _rule(row: Row, number: int) -> dict[str, Any]:
    place = f"row {number}, {WHEN}"
    conditions = parse_conditions(_text(row.get(WHEN)), place)
    cells = {part: _text(row.get(title)) for part, title in PART_TITLES.items()}
    then = _text(row.get(THEN)) or THENS["stop"]
    return {
        "name": _text(row.get(RULE)) or f"rule {number}",
        "when": [{"field": c.field, "op": c.operator, "value": c.value} for c in conditions],
        "set": {part: "" if cells[part] == EMPTY else cells[part] for part in SETTABLE if cells[part]},
        "then": next(name for name, words in THENS.items() if words == then),
    }


def _order(row: Row) -> tuple[bool, float]:
    value = row.get(ORDER)
    known = isinstance(value, (int, float)) and value == value
    return (not known, float(value) if known and value is not None else 0.0)


def _text(value: Any) -> str:
    """A cell's text; an empty cell may be None or not-a-number."""
    return value.strip() if isinstance(value, str) else ""


def _place(field: str) -> str:
    """``rules[3].set.team`` as a person finds it: row 4, Team."""
    head, _, rest = field.partition("]")
    if not head.startswith("rules["):
        return field
    part = rest.rpartition(".")[2]
    title = PART_TITLES.get(part, RULE if part == "name" else WHEN)
    return f"row {int(head.removeprefix('rules[')) + 1}, {title}"


def tenants_table(rows: Sequence[Row], by: str) -> Table:
    """One row a tenant, the largest cost first; a currency a column."""
    currencies = sorted({currency for row in rows for currency in row["costs"]})
    keys = TENANT_GROUPS[by]
    ordered = sorted(rows, key=lambda row: (-sum(float(v) for v in row["costs"].values()), -row["requests"]))
    titles = {**PART_TITLES, "key_id": "Key"}
    columns: list[tuple[Column, Sequence[Cell]]] = [(Column(titles[key]), [row[key] or "" for row in ordered]) for key in keys]
    if any(row["name"] for row in ordered):
        columns.append((Column("Name", help="What the gateway calls the key, else the user"), [row["name"] for row in ordered]))
    columns.append((Column("Last seen, UTC"), [stamp(row["last_seen"]) for row in ordered]))
    columns.append((Column("Requests", "count"), [row["requests"] for row in ordered]))
    columns += [numbers(f"Cost, {c}", [row["costs"].get(c) for row in ordered]) for c in currencies]
    if any(row["cost_reason"] for row in ordered):
        columns.append((Column("Why a cost is empty"), [row["cost_reason"] for row in ordered]))
    return table(columns)


def moves_table(preview: Mapping[str, Any]) -> Table:
    """What would move, then the sums that it adds up to."""
    named = [(_path(m["source"]), _path(m["target"]), m["work"]) for m in preview["moves"]]
    sums = {"moved": "Moved in all", "kept": "Stays", "total": "All requests", "unmatched": "Of these no rule applies to"}
    named += [(words, "", preview[name]) for name, words in sums.items()]
    currencies = sorted({currency for _, _, work in named for currency in work["costs"]})
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("From"), [source for source, _, _ in named]),
        (Column("To"), [target for _, target, _ in named]),
        (Column("Requests", "count"), [work["requests"] for _, _, work in named]),
        (Column("Tokens", "count"), [sum(work["tokens"].values()) for _, _, work in named]),
    ]
    columns += [numbers(f"Cost, {c}", [work["costs"].get(c) for _, _, work in named]) for c in currencies]
    return table(columns)


def _path(parts: Mapping[str, str] | None) -> str:
    if parts is None:
        return "(more)"
    names = [parts[part] for part in PATH_PARTS]
    while names and not names[-1]:
        names.pop()
    return f"{' / '.join(name or '–' for name in names) or NOBODY} · {parts['service_tier']}"


def idle_rules(preview: Mapping[str, Any]) -> list[str]:
    """Rules that apply to no archived request of the window."""
    return [name for name, requests in preview["by_rule"].items() if not requests]


def versions_table(versions: Sequence[Row]) -> Table:
    """Newest first."""
    return table([
        (Column("Version", "count"), [v["version"] for v in versions]),
        (Column("In force from, UTC"), [stamp(v["valid_from"]) for v in versions]),
        (Column("State"), ["in force" if v["in_force"] else "" for v in versions]),
        (Column("Rules", "count"), [len(v["rules"]["rules"]) for v in versions]),
        (Column("Published by"), [v["author"] for v in versions]),
        (Column("Why"), [v["reason"] for v in versions]),
    ])  # fmt: skip


def state_words(rules: Mapping[str, Any]) -> str:
    """One line about the newest version."""
    if not rules["version"]:
        return "No rules were published: every source is taken at its word."
    verb = "in force since" if rules["in_force"] else "in force from"
    return f"Version {rules['version']}, {verb} {stamp(rules['valid_from'])} UTC, by {rules['author']}: {rules['reason']}"

"""Rules as YAML: what ships, what a person exports and gives back. Every fault is named by file, line, field and value."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from core.errors import BadInput
from core.rules import Rule, rule_as, rule_from
from ingest.small_file import read_small

MAX_BYTES = 1_000_000
PRESETS = "rule_presets.yaml"
HEAD = "# tokenfuse rules: change and give back with `tokenfuse rules set FILE.yaml`\n"


def shipped_rules() -> list[Rule]:
    """The rules a new database begins with."""
    return parse_rules((files("control") / PRESETS).read_bytes(), PRESETS)


def read_rules(path: Path) -> list[Rule]:
    """Rules of a file. Raises BadInput "FILE:LINE: field: …"."""
    return parse_rules(read_small(path, MAX_BYTES, hint="name a YAML file of rules"), path.name)


def parse_rules(body: bytes, name: str) -> list[Rule]:
    """``rules:`` is a list of rules (``core.rules.rule_from``); a name stands once."""
    try:
        text = body.decode("utf-8-sig")
        node, value = yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        raise BadInput(
            "is not YAML", where=where, value=str(error).splitlines()[0], hint="see `tokenfuse rules export`"
        ) from error
    listed = value.get("rules") if isinstance(value, dict) else None
    if not isinstance(listed, list) or not listed or set(value) != {"rules"}:
        raise BadInput("must hold one field `rules`, a list", where=name, hint="see `tokenfuse rules export`")
    rules: dict[str, Rule] = {}
    for line, given in zip(_lines(node), listed, strict=True):
        rule = rule_from(given, f"{name}:{line}")
        if rule.name in rules:
            raise BadInput("stands twice", where=f"{name}:{line}", field="name", value=rule.name)
        rules[rule.name] = rule
    return list(rules.values())


def _lines(node: Any) -> list[int]:
    """The line of each item of ``rules``."""
    listed = next(value for key, value in node.value if key.value == "rules")
    return [item.start_mark.line + 1 for item in listed.value]


def rules_text(rules: Iterable[Rule]) -> str:
    """YAML that ``parse_rules`` reads as the same rules."""
    body = {"rules": [rule_as(rule) for rule in rules]}
    return HEAD + yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=120)

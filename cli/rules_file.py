"""A file of identity rules (YAML or JSON) -> the rule set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from core.errors import BadInput
from core.identity import RuleSet
from core.identity_codec import decode_rules
from core.identity_match import Matcher

MAX_BYTES = 1_000_000


def read_rules_file(path: Path) -> RuleSet:
    """The set, checked whole. Raises BadInput "FILE[:LINE]: field: …"."""
    item = read_object(path)
    try:
        rules = decode_rules(item)
        Matcher(rules)
    except BadInput as error:
        raise BadInput(error.message, where=path.name, field=error.field, value=error.value, hint=error.hint) from error
    return rules


def read_object(path: Path) -> Any:
    """One YAML or JSON value of a file; a key twice in one object is refused."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror}", where=str(path), hint="give the path of a YAML or JSON file"
        ) from error
    if len(body) > MAX_BYTES:
        raise BadInput(f"is larger than {MAX_BYTES} bytes", where=path.name)
    try:
        return yaml.load(body, _UniqueKeys)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise BadInput(f"is neither YAML nor JSON: {error.problem}", where=f"{path.name}:{line}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("is neither YAML nor JSON", where=path.name, hint="see docs/identity.md for an example") from error


class _UniqueKeys(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key.value!r} stands twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)

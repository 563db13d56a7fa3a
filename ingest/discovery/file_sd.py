"""Targets in files of Prometheus' ``file_sd`` form: a list of ``{targets: [HOST:PORT, …], labels: {…}}`` in JSON or YAML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from core.errors import BadInput, Unavailable
from core.ports import FoundTarget
from ingest.discovery.labels import TargetDefaults, target_of


class FileTargets:
    """A TargetSource over files; ``patterns`` may hold ``*`` in the file's name. A file that is gone has no targets, a broken one
    is an error.

    Labels ``gpu``, ``count``, ``node``, ``cluster``, ``namespace`` and ``model_id`` say what is behind a target.
    """

    def __init__(self, patterns: Sequence[str], defaults: TargetDefaults) -> None:
        self._patterns, self._defaults = tuple(patterns), defaults

    def targets(self) -> Sequence[FoundTarget]:
        files = sorted({file for pattern in self._patterns for file in _matching(Path(pattern))})
        return [target for file in files for target in self._read(file)]

    def _read(self, file: Path) -> list[FoundTarget]:
        try:
            text = file.read_text("utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"{file} cannot be read: {error}", hint="check who may read it") from error
        found: list[FoundTarget] = []
        for number, group in enumerate(_groups(text, file), start=1):
            where = f"{file}: group {number}"
            addresses, labels = _parts(group, where)
            found += [target_of(address, labels, self._defaults, where) for address in addresses]
        return found


def _matching(pattern: Path) -> list[Path]:
    return list(pattern.parent.glob(pattern.name)) if "*" in pattern.name else [pattern]


def _groups(text: str, file: Path) -> list[Any]:
    try:
        body = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise BadInput(f"cannot be read: {error}", where=str(file), hint="write the file elsewhere and move it here") from error
    if not isinstance(body, list):
        raise BadInput("must hold a list of {targets, labels}", where=str(file), value=type(body).__name__)
    return body


def _parts(group: Any, where: str) -> tuple[list[str], dict[str, str]]:
    if not isinstance(group, dict):
        raise BadInput("must be {targets, labels}", where=where, value=group)
    addresses, labels = group.get("targets"), group.get("labels") or {}
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise BadInput("must be a list of HOST:PORT", where=where, field="targets", value=addresses)
    if not isinstance(labels, dict):
        raise BadInput("must map names to texts", where=where, field="labels", value=labels)
    return addresses, {str(name): str(value) for name, value in labels.items()}

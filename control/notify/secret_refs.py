"""Secrets of channels are references, read when they are used: env:NAME or file:PATH. Their values are in no table and no log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.errors import BadInput, Unavailable

HINT = "write env:NAME or file:/PATH; the secret itself is never stored"


def check_reference(name: str, reference: str) -> str:
    """The reference itself. Raises BadInput without repeating what was given: it may be the secret."""
    kind, _, rest = reference.partition(":")
    if kind not in ("env", "file") or not rest or (kind == "env" and not rest.replace("_", "a").isalnum()):
        raise BadInput("must be a reference to a secret", field=name, hint=HINT)
    return reference


def read_secret(name: str, reference: str, environ: Mapping[str, str]) -> str:
    """The secret, from the environment the process was given or a file. Raises Unavailable, naming the reference, where there is
    none: the delivery is tried again."""
    kind, _, rest = check_reference(name, reference).partition(":")
    try:
        value = environ.get(rest, "") if kind == "env" else Path(rest).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"the secret {name} cannot be read from {reference} ({type(error).__name__})") from error
    if not value:
        raise Unavailable(f"the secret {name} is empty", hint=f"{reference} holds nothing in this process")
    return value

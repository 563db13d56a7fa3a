"""A file that a person wrote and names: read whole, up to a size."""

from __future__ import annotations

from pathlib import Path

from core.errors import BadInput


def read_small(path: Path, most: int, *, what: str = "", hint: str) -> bytes:
    """Its bytes. Raises BadInput naming the file where it is larger than ``most`` bytes or cannot be read."""
    try:
        if path.stat().st_size > most:
            raise BadInput(f"{what} is larger than {most} bytes".lstrip(), where=str(path))
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error

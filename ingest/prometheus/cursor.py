"""How far one query was read: a file that is replaced whole, and only after the samples it speaks of are in the log."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from core.errors import BadInput

VERSION = 1


@dataclass(slots=True)
class Followed:
    """One target: the scrape of it that is followed (``job``, ``replica``), its schedule, and its newest scrape seen."""

    job: str
    replica: str
    interval_ms: int | None = None
    last_ms: int = 0
    gone: bool = False


@dataclass(slots=True)
class Cursor:
    """Unix milliseconds. ``origin_ms``: nothing before is read; ``read_to_ms``: samples before are in the log;
    ``read_at_ms``: the server's clock when they were asked for. ``jobs``: since when the server is known to watch each job.
    ``names``: job -> instance -> the target's name, which it keeps once it has it (another name would be another engine)."""

    origin_ms: int
    read_to_ms: int
    read_at_ms: int
    jobs: dict[str, int] = field(default_factory=dict)
    names: dict[str, dict[str, str]] = field(default_factory=dict)
    targets: dict[str, Followed] = field(default_factory=dict)

    def start_ms(self, late_ms: int) -> int:
        """Where to read on: from what may still have changed since it was read, ``late_ms`` after it should have been there."""
        return min(self.read_to_ms, max(self.origin_ms, self.read_at_ms - late_ms))


def load_cursor(file: Path) -> Cursor | None:
    """None when nothing was read yet. Raises BadInput for a damaged file."""
    try:
        body = json.loads(file.read_text("utf-8"))
        if body.pop("version") != VERSION:
            raise ValueError("another version")
        targets = {name: Followed(**row) for name, row in body.pop("targets").items()}
        return Cursor(**body, targets=targets)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        hint = "delete the file: what it spoke of is read again and counts once"
        raise BadInput(f"is no cursor: {error}", where=str(file), field="cursor", hint=hint) from error


def save_cursor(file: Path, cursor: Cursor) -> None:
    """Replace the file at once; it is on disk when this returns."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.new")
    with fresh.open("w", encoding="utf-8") as out:
        json.dump({"version": VERSION, **asdict(cursor)}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

"""Bills in a local file or folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core.errors import BadInput
from ingest.billing.delivery import Stored


class LocalFiles:
    """A file, or a folder with all below it. Keys are relative to the folder, with forward slashes."""

    def __init__(self, source: Path) -> None:
        if not source.exists():
            raise BadInput("does not exist", where=str(source), hint="name a file, a folder or s3://BUCKET/PREFIX")
        self._root = source if source.is_dir() else source.parent
        self._only = None if source.is_dir() else source
        self._source = source

    def listed(self) -> Sequence[Stored]:
        paths = [self._only] if self._only else sorted(path for path in self._root.rglob("*") if path.is_file())
        shown = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(self._root).parts)]
        return [self._stored(path) for path in (shown or paths)]

    def _stored(self, path: Path) -> Stored:
        state = path.stat()
        key = path.relative_to(self._root).as_posix()
        return Stored(key, state.st_size, f"{state.st_size}-{state.st_mtime_ns}", state.st_mtime)

    def read(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def fetch(self, key: str, folder: Path) -> Path:
        return self._root / key

    def name(self, key: str) -> str:
        return str(self._root / key) if key else str(self._source)

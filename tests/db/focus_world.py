"""A ledger of two generated months and an empty second database, for exports and their way back in."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from explain_world import BEFORE, JUNE
from sqlalchemy import Engine, text

from core.focus_rows import Issuer
from core.windows import Window
from models.database import open_engine, snapshot
from reports.focus_delivery import ExportSettings
from reports.focus_export import Exported, export_focus
from reports.places import Folder

NOW = datetime(2026, 7, 5, tzinfo=UTC)
BOTH = Window(BEFORE.start, JUNE.end)
ISSUER = Issuer("Self-hosted inference", "acme")


def export(db: Engine, folder: Path, window: Window = BOTH, **more: Any) -> Exported:
    settings = ExportSettings(**{"window": window, "issuer": ISSUER, "now": NOW, **more})
    with snapshot(db) as connection:
        return export_focus(connection, Folder(folder), settings)


def rows_of(file: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(gzip.decompress(Path(file).read_bytes()).decode())))


@contextmanager
def empty_database(template_url: str) -> Iterator[str]:
    """The URL of one more database with the whole schema and nothing in it."""
    name = f"t{uuid4().hex[:12]}"
    _run(template_url, f"CREATE DATABASE {name} TEMPLATE template_tf")
    yield template_url.replace("/postgres?", f"/{name}?")
    _run(template_url, f"DROP DATABASE {name} WITH (FORCE)")


def _run(url: str, sql: str) -> None:
    engine = open_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(sql))
    engine.dispose()

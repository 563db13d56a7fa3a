"""``tokenfuse show metrics``: what is read of engines', GPU exporters' and gateways' pages, and what is not."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from cli.options import Run, common, window_options
from cli.output import print_json, print_rows
from cli.wiring import database, utc_now
from core.errors import BadInput
from core.ports import Page
from core.windows import Window
from ingest.engine.families import MAX_PAGE_BYTES
from ingest.engine.page_table import page_table
from ingest.engine.parse import Origin
from models.database import transaction
from models.metric_names_repo import strange_names


@click.command()
@click.option(
    "--page", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="a saved metrics page: say what is read of it"
)
@click.option("--model-id", default="", help="with --page: the model of a page that names none")
@window_options(timedelta(days=30))
@common
def metrics(run: Run, page: Path | None, model_id: str, window: Window) -> None:
    """Names that no table knows or that vanished, by source; with --page, a saved page in canonical names."""
    if page is not None:
        _show_page(page, model_id, as_json=run.as_json)
        return
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = [asdict(row) for row in strange_names(connection, window)]
    print_rows(rows, as_json=run.as_json, empty="Every name on every page is known, and none has gone.")


def _show_page(path: Path, model_id: str, *, as_json: bool) -> None:
    found = page_table(Page(path.name, utc_now(), _read(path), ""), Origin(model_id=model_id or None))
    values: list[dict[str, Any]] = [asdict(value) for value in found.values]
    faults = [{"kind": fault.kind, "subject": fault.subject, "detail": dict(fault.detail)} for fault in found.faults]
    if as_json:
        print_json({"families": found.families, "values": values, "faults": faults, "unmapped": found.unmapped})
        return
    families = ", ".join(found.families) or "of no family that is known"
    print_rows(values, as_json=False, title=f"{path.name}: {families}", empty="Nothing on this page is read.")
    print_rows(faults, as_json=False, title="What is wrong with it", empty="No value on it is in doubt.")
    names = [{"name": name} for name in found.unmapped]
    print_rows(names, as_json=False, title="Names no table knows", empty="Every name of these families is known.")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as plain:
            if path.suffix != ".gz":
                return plain.read(MAX_PAGE_BYTES + 1)
            with gzip.open(plain) as packed:
                return packed.read(MAX_PAGE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"cannot be read: {error}", where=path.name) from error

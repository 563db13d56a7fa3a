"""``tokenfuse show gpus``: what the GPUs did and drew."""

from __future__ import annotations

from datetime import timedelta

import click

from cli.options import Run, common, window_options
from cli.output import print_rows
from cli.wiring import database
from core.windows import Window, floor_time
from models.database import transaction
from models.gpu_repo import gpu_rows

MINUTE = timedelta(minutes=1)


@click.command()
@click.option(
    "--by", default="node,gpu,gpu_model", show_default=True, metavar="COLS", help="also cluster, mig, pods, minute, hour, day"
)
@window_options(timedelta(days=1))
@common
def gpus(run: Run, by: str, window: Window) -> None:
    """Activity, memory and energy of GPUs, each physical one once; empty where the exporter does not tell."""
    keys = [key.strip() for key in by.split(",") if key.strip()]
    end = floor_time(window.end, MINUTE)
    whole = Window(floor_time(window.start, MINUTE), end if end == window.end else end + MINUTE)
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = gpu_rows(connection, keys, whole, zone_name=run.settings.zone)
    print_rows(
        rows, as_json=run.as_json, empty='No GPU was read in this time range: add a target of kind = "gpu" to the settings.'
    )

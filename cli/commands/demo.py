"""``tokenfuse demo``: everything up on sample data, in a data folder of its own."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from cli.commands.run import supervise
from cli.demo.bill import load_bill
from cli.demo.load import Demo, DemoReport, load_history, load_recording, mark_loaded, prepare
from cli.logs import configure
from cli.options import Run, common
from cli.output import say

DEMO_DIR = Path("data/demo")


@click.command()
@click.option("--days", type=click.IntRange(1, 60), default=30, show_default=True, help="length of the generated history")
@common
def demo(run: Run, days: int) -> int:
    """Start everything on a recording of a real vLLM behind LiteLLM and a generated month with its bills; Ctrl-C stops it all.

    Uses ./data/demo unless --data-dir is given. Starting it again goes on with what is there.
    """
    settings = run.settings
    if settings.data_dir == Path("data"):
        settings = settings.model_copy(update={"data_dir": DEMO_DIR})
    configure("demo", "warning")
    if not run.as_json:
        say("Tokenfuse demo: history and bills are generated from published figures, the newest 18 minutes are a recording.")
    placed: list[Demo | None] = []

    def load() -> None:
        (fresh,) = placed
        if fresh is None:
            say("The sample data is loaded already.")
            return
        _say(load_recording(settings, fresh))
        _say(load_history(settings, fresh))
        bill = load_bill(settings, fresh.history)
        say(f"Loaded the generated bills: {bill.deliveries:,} deliveries, {bill.rows:,} rows.")
        mark_loaded(settings, fresh)
        say("All sample data is in the log; the pages fill as the stream and the ledger catch up. Ctrl-C stops everything.")

    return supervise(
        settings,
        prepare=lambda: placed.append(prepare(settings, days)),
        on_ready=threading.Thread(target=load, name="demo-load", daemon=True).start,
    )


def _say(report: DemoReport) -> None:
    say(f"Loaded {report.what}: {report.requests:,} requests, {report.samples:,} engine samples.")

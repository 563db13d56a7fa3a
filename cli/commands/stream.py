"""``tokenfuse stream run`` and ``tokenfuse rebuild``."""

from __future__ import annotations

import signal
import threading

import click

from cli.logs import configure
from cli.options import Run, common, parse_time
from cli.output import print_json, say
from cli.wiring import database, database_url, ready_database, stream_settings, utc_now
from streaming import run as stream_run
from streaming.loader import rebuild as apply_again
from streaming.recompute import recompute


@click.group()
def stream() -> None:
    """The Flink job with its loader."""


@stream.command("run")
@click.option("--until-idle", is_flag=True, help="stop once every line in the log is counted in the database")
@click.option("--web-port", type=click.IntRange(0, 65535), help="port of Flink's web UI (default: flink_port; 0: any free one)")
@common
def run_command(run: Run, until_idle: bool, web_port: int | None) -> int:
    """Run the stream in the foreground. Restarting it at any moment loses nothing and counts nothing twice."""
    configure("stream", run.settings.log_level)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    url = database_url(run.settings)
    ready_database(run.settings, url).dispose()
    settings = stream_settings(run.settings, url, web_port=0 if until_idle and web_port is None else web_port)
    code = stream_run.main(settings, until_idle, now=utc_now, stop=stop)
    if run.as_json:
        print_json({"finished": code == 0, "until_idle": until_idle})
    return code


@click.command()
@click.option("--from", "from_", required=True, metavar="TIME", help="what was written since then")
@click.option("--recompute", "from_archive", is_flag=True, help="compute whole UTC days anew from the raw archive instead")
@common
def rebuild(run: Run, from_: str, from_archive: bool) -> None:
    """After a database restore: apply the kept delta files it does not know yet. Repeating it adds nothing."""
    since, data_dir = parse_time(from_, "--from"), run.settings.data_dir.resolve()
    with database(run.settings) as engine:
        if from_archive:
            done = recompute(engine, data_dir, since.date(), utc_now())
        else:
            done = apply_again(engine, data_dir, since, utc_now())
    if run.as_json:
        print_json({"since": since, "from_archive": from_archive, "done": done})
    elif from_archive:
        say(f"{done:,} days were computed anew from the archive, from {since:%Y-%m-%d} on.")
    else:
        say(f"{done:,} delta files were applied that the database did not know.")

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
@click.option("--from", "from_", required=True, metavar="TIME", help="apply again what was written since then")
@common
def rebuild(run: Run, from_: str) -> None:
    """After a database restore: apply the retained delta files it does not know yet."""
    from streaming.rebuild import rebuild as rebuild_from

    since = parse_time(from_, "--from")
    with database(run.settings) as engine:
        report = rebuild_from(engine, run.settings.data_dir.resolve(), since, utc_now())
    if run.as_json:
        print_json(report)
    else:
        say(str(report))

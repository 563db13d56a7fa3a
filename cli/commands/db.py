"""``tokenfuse db``: the schema and the address of the database."""

from __future__ import annotations

import click

from cli.options import Run, common
from cli.output import print_rows
from cli.wiring import database, database_url


@click.group()
def db() -> None:
    """The database: bring its schema up to date, print its URL."""


@db.command("upgrade")
@common
def upgrade_command(run: Run) -> None:
    """Bring the schema to the newest revision. Safe to repeat."""
    with database(run.settings):
        print_rows([{"database": "schema is up to date"}], as_json=run.as_json)


@db.command("url")
@common
def url_command(run: Run) -> None:
    """Print the URL, for psql and other tools (starts the embedded server if it is down)."""
    url = database_url(run.settings)
    if run.as_json:
        print_rows([{"url": url}], as_json=True)
    else:
        click.echo(url)

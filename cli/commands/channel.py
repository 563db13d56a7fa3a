"""``tokenfuse channel``: who is told of incidents, how, and whether it works."""

from __future__ import annotations

import os
from typing import Any, cast

import click

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common
from cli.output import print_rows, say
from cli.wiring import database, utc_now
from control.channels import add_channel, remove_channel, send_test
from control.notify.kinds import KINDS
from core.errors import BadInput
from core.message import LANGUAGES, Language
from core.routing import Route, route_of
from models.channel_repo import Channel, list_channels
from models.database import transaction

NAME = click.argument("name")


@click.group()
def channel() -> None:
    """Channels: where incidents are told, and which."""


@channel.command("add")
@NAME
@click.option("--kind", required=True, type=click.Choice(sorted(KINDS)))
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="repeat; docs/alerts.md lists them by kind")
@click.option("--secret", "secrets", multiple=True, metavar="NAME=REF", help="env:NAME or file:PATH; never the secret itself")
@click.option("--route", "routes", multiple=True, metavar="SCOPE[,SEVERITY[,OWNER]]", help="repeat; default: platform (all)")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", show_default=True)
@ACTOR
@common
def add_command(
    run: Run, name: str, kind: str, configs: tuple[str, ...], secrets: tuple[str, ...], routes: tuple[str, ...],
    language: str, actor: str | None,
) -> None:  # fmt: skip
    """Add NAME, or put it in place of the one of that name."""
    config: dict[str, Any] = _pairs(configs, "--config")
    if "allow_private" in config:
        config["allow_private"] = config["allow_private"] == "true"
    made = Channel(
        name, kind, config, _pairs(secrets, "--secret"), cast(Language, language), tuple(map(_route, routes or ("platform",)))
    )
    with database(run.settings) as engine, transaction(engine) as connection:
        add_channel(connection, made, actor_of(actor), utc_now())
    if not run.as_json:
        say(f"Channel {name} is set. Try it: `tokenfuse channel test {name}`")
    print_rows([_row(made)], as_json=run.as_json)


@channel.command("list")
@common
def list_command(run: Run) -> None:
    """Every channel; secrets are shown as references."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = list_channels(connection)
    print_rows([_row(one) for one in found], as_json=run.as_json, empty="No channel: `tokenfuse channel add`.")


@channel.command("remove")
@NAME
@ACTOR
@common
def remove_command(run: Run, name: str, actor: str | None) -> None:
    """Tell nothing to NAME any more."""
    with database(run.settings) as engine, transaction(engine) as connection:
        remove_channel(connection, name, actor_of(actor), utc_now())
    say(f"Channel {name} is removed.")


@channel.command("test")
@NAME
@ACTOR
@common
def test_command(run: Run, name: str, actor: str | None) -> int:
    """Send a test incident, opened and over, to NAME now; exit 1 when it does not arrive."""
    with database(run.settings) as engine:
        incident, delivery = send_test(engine, name, actor_of(actor), utc_now, os.environ)
    row = {"channel": name, "incident": incident.id, "outcome": delivery.outcome, "detail": delivery.detail}
    print_rows([row], as_json=run.as_json)
    return 0 if delivery.outcome == "delivered" else 1


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise BadInput("must be NAME=VALUE", field=option)
        found[name] = value
    return found


def _route(text: str) -> Route:
    parts = [*text.split(","), "", ""]
    return route_of(parts[0], parts[1] or "notice", parts[2])


def _row(found: Channel) -> dict[str, Any]:
    return {
        "name": found.name,
        "kind": found.kind,
        "language": found.language,
        "config": ", ".join(f"{name}={value}" for name, value in found.config.items()),
        "secrets": ", ".join(f"{name} in {reference}" for name, reference in found.secrets.items()),
        "routes": "; ".join(f"{r.scope} from {r.severity}{f' of {r.owner}' if r.owner else ''}" for r in found.routes),
    }

"""``tokenfuse classes``: kinds of requests, found in the archive, scored as requests come in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common, parse_time, window_options
from cli.output import print_json, print_rows, say
from cli.wiring import database, utc_now
from control.workload_versions import activate, latest, names_of, rename, train_version
from core.errors import NotFound
from core.windows import Window
from core.workload import FEATURES, FINE
from models.database import transaction
from models.workload_repo import StoredModel, class_names, stored_models


@click.group()
def classes() -> None:
    """Workload classes: kinds of requests by length, cached share and tool calls."""


@classes.command()
@click.option("--dry-run", is_flag=True, help="only show the classes it would make")
@click.option("--activate-at", metavar="TIME", help="let it hold for requests that finish from then on, at least 30 s from now")
@ACTOR
@window_options(timedelta(days=7))
@common
def train(run: Run, window: Window, dry_run: bool, activate_at: str | None, actor: str | None) -> None:
    """Find classes in the archived requests that finished in a time (default: the last 7 days)."""
    at, now, by = parse_time(activate_at, "--activate-at") if activate_at else None, utc_now(), actor_of(actor)
    with database(run.settings) as engine:
        made = train_version(engine, run.settings.data_dir, window, by, now, keep=not dry_run)
        if at is not None and not dry_run:
            with transaction(engine) as connection:
                activate(connection, made.stored.version, at, by, utc_now())
    if run.as_json:
        print_json({**_version_row(made.stored), "better": made.better, "classes": _class_rows(made.stored, {})})
        return
    print_rows(_class_rows(made.stored, {}), as_json=False, title=f"{made.stored.trained['requests']} requests")
    say(f"Against the classes in force: {made.stored.reason}.")
    if dry_run:
        say("Nothing was stored.")
    elif at is None:
        say(f"Stored as version {made.stored.version}. Let it hold: tokenfuse classes activate {made.stored.version}")


@classes.command("list")
@common
def list_command(run: Run) -> None:
    """Every version, oldest first."""
    with database(run.settings) as engine, transaction(engine) as connection:
        stored = stored_models(connection)
    empty = "No classes yet: requests stay in class 0 (not scored). Find some: tokenfuse classes train"
    print_rows([_version_row(one) for one in stored], as_json=run.as_json, empty=empty)


@classes.command()
@click.argument("version", type=int, required=False)
@common
def show(run: Run, version: int | None) -> None:
    """The classes of a VERSION (default: the one activated last)."""
    with database(run.settings) as engine, transaction(engine) as connection:
        stored, said = stored_models(connection), class_names(connection)
    one = latest(stored) if version is None else next((found for found in stored if found.version == version), None)
    if one is None:
        what = "no version is activated" if version is None else f"there is no version {version} of the workload classes"
        raise NotFound(what, hint="see tokenfuse classes list")
    print_rows(_class_rows(one, names_of(stored, said)), as_json=run.as_json, title=f"Version {one.version}: {one.reason}")


@classes.command("activate")
@click.argument("version", type=int)
@click.option("--at", metavar="TIME", help="requests that finish from then on (default: in one minute)")
@ACTOR
@common
def activate_command(run: Run, version: int, at: str | None, actor: str | None) -> None:
    """Let a VERSION hold from an instant to come."""
    now = utc_now()
    since = parse_time(at, "--at") if at else now + timedelta(minutes=1)
    with database(run.settings) as engine, transaction(engine) as connection:
        activate(connection, version, since, actor_of(actor), now)
    if run.as_json:
        print_json({"version": version, "valid_from": since.isoformat()})
    else:
        say(f"Version {version} holds for requests that finish from {since.isoformat(timespec='seconds')} on.")


@classes.command("rename")
@click.argument("number", type=int)
@click.argument("name")
@ACTOR
@common
def rename_command(run: Run, number: int, name: str, actor: str | None) -> None:
    """Give class NUMBER a NAME; it keeps it in later versions."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rename(connection, number, name, actor_of(actor), utc_now())
    if run.as_json:
        print_json({"number": number, "name": name})
    else:
        say(f"Class {number} is called {name}.")


def _version_row(one: StoredModel) -> dict[str, Any]:
    return {
        "version": one.version, "kind": one.kind, "valid_from": one.valid_from.isoformat() if one.valid_from else None,
        "created_at": one.created_at.isoformat(), "author": one.author, "class_count": len(one.classes),
        "requests": one.trained.get("requests"), "reason": one.reason,
    }  # fmt: skip


def _class_rows(one: StoredModel, names: dict[int, str]) -> list[dict[str, Any]]:
    """Centres as people read them: tokens, per cent of the input from the cache, per cent of answers with tools."""
    return [_class_row(found.number, names.get(found.number, found.name), found.centre, found.requests) for found in one.classes]


def _class_row(number: int, name: str, centre: tuple[int, ...], requests: int) -> dict[str, Any]:
    at = {feature: value / FINE for feature, value in zip(FEATURES, centre, strict=True)}
    return {
        "class": number, "name": name, "input_tokens": round(2 ** (at["input"] / 4)),
        "output_tokens": round(2 ** (at["output"] / 4)), "cached_percent": round(at["cached"]),
        "tool_percent": round(at["tools"]), "requests": requests,
    }  # fmt: skip

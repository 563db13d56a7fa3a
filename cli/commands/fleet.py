"""``tokenfuse fleet``: what of the fleet a breaker may work, which actuators may act, and what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common
from cli.output import print_json, print_rows, say
from cli.wiring import database, fleet_settings, utc_now
from control.fleet import people
from control.fleet.actions import Registry, settle
from control.fleet.addresses import FORMS, MOVES
from control.fleet.registry import registry
from core.errors import BadInput, TokenfuseError
from core.fleet import FleetAction, FleetTarget
from models.database import transaction
from models.fleet_action_repo import list_actions, list_switches, list_targets, lock_action

REASON = click.option("--reason", required=True, help="why; it stands in the audit trail")
ACTUATOR = click.argument("actuator", type=click.Choice(sorted(FORMS)))


@click.group()
def fleet() -> None:
    """Actuators: name their switches, try them (`plan`), let them act (`enable`), see and undo what they did."""


@fleet.group()
def targets() -> None:
    """The switches a breaker may work, by scope."""


@targets.command("list")
@common
def list_command(run: Run) -> None:
    """Every switch, its actuator and whether that may act."""
    reachable = registry(fleet_settings(run.settings))
    with database(run.settings) as engine, transaction(engine) as connection:
        found, switches = list_targets(connection), list_switches(connection)
    rows = [asdict(one) | {"acts": _acts(one.actuator, switches, reachable)} for one in found]
    print_rows(rows, as_json=run.as_json, empty="No target: name one with `tokenfuse fleet targets add`.")


def _acts(actuator: str, switches: Mapping[str, Mapping[str, Any]], reachable: Registry) -> str:
    if actuator not in reachable:
        return "not configured"
    return "yes" if switches.get(actuator, {}).get("enabled") else "dry run"


@targets.command()
@click.option("--scope", required=True, metavar="SCOPE", help="deployment:CLUSTER/NAMESPACE/MODEL or tenant:ORG[/TEAM…]")
@click.option("--actuator", required=True, type=click.Choice(sorted(FORMS)))
@click.option("--address", required=True, help="; ".join(f"{name}: {told}" for name, (_, told) in sorted(FORMS.items())))
@click.option(
    "--limit", "limits", multiple=True, metavar="NAME=VALUE", help="LiteLLM, when degraded: rpm_limit, tpm_limit, max_budget"
)
@ACTOR
@common
def add(run: Run, scope: str, actuator: str, address: str, limits: Sequence[str], actor: str | None) -> None:
    """Name a switch. A breaker of this scope, or of one around it, works it."""
    options = dict(_pair(text) for text in limits)
    with database(run.settings) as engine, transaction(engine) as connection:
        made = people.declare_target(connection, scope, actuator, address, options, actor_of(actor), utc_now())
    print_rows([asdict(made)], as_json=run.as_json)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput("must be NAME=VALUE", field="--limit", value=text)
    return name, value


@targets.command()
@click.argument("target_id", metavar="ID", type=click.IntRange(1))
@REASON
@ACTOR
@common
def remove(run: Run, target_id: int, reason: str, actor: str | None) -> None:
    """Act on it no more."""
    with database(run.settings) as engine, transaction(engine) as connection:
        gone = people.remove_target(connection, target_id, actor_of(actor), reason, utc_now())
    print_rows([asdict(gone)], as_json=run.as_json)


@fleet.command()
@common
def plan(run: Run) -> int:
    """What each move would set on each switch now, and how a person puts it back. Reads, and changes nothing."""
    reachable = registry(fleet_settings(run.settings))
    with database(run.settings) as engine, transaction(engine) as connection:
        found = list_targets(connection)
    rows = [_planned(reachable, target, move) for target in found for move in MOVES[target.actuator]]
    print_rows(rows, as_json=run.as_json, empty="No target: name one with `tokenfuse fleet targets add`.")
    return 1 if any(row["fault"] for row in rows) else 0


def _planned(reachable: Registry, target: FleetTarget, move: str) -> dict[str, Any]:
    row: dict[str, Any] = {"target": target.id, "address": f"{target.actuator} {target.address}", "move": move}
    if target.actuator not in reachable:
        return row | {"before": {}, "wanted": {}, "revert": [], "fault": "not configured here (docs/actuators.md)"}
    if move == "limit" and not target.options:
        return row | {"before": {}, "wanted": {}, "revert": [], "fault": ""}
    actuator = reachable[target.actuator].actuator
    try:
        reading = actuator.read(target.address)
        wanted = dict(actuator.wanted(move, target.options, reading))
    except TokenfuseError as error:
        return row | {"before": {}, "wanted": {}, "revert": [], "fault": str(error)}
    before = {name: reading.value.get(name) for name in wanted}
    return row | {"before": before, "wanted": wanted, "revert": list(actuator.commands(target.address, before)), "fault": ""}


@fleet.command()
@click.option("--standing", is_flag=True, help="only those that are not over")
@common
def actions(run: Run, standing: bool) -> None:
    """What was planned and done, newest first, with what stood there before and how a person puts it back."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = list_actions(connection, standing=standing, limit=100)
    _show(run, found, "Nothing stands." if standing else "Nothing was done to the fleet.")


def _show(run: Run, found: Sequence[FleetAction], empty: str) -> None:
    if run.as_json:
        print_json([asdict(action) for action in found])
        return
    rows = [
        {
            "id": a.id, "breaker": f"{a.breaker_id}/{a.epoch}", "on": f"{a.target.actuator} {a.target.address}", "move": a.move,
            "state": a.state, "before": a.before, "wanted": a.wanted, "until": a.expires_at, "detail": a.detail or "-",
        }
        for a in found
    ]  # fmt: skip
    print_rows(rows, as_json=False, empty=empty)
    for action in found:
        if action.stands or action.state in ("drifted", "failed"):
            for line in action.commands:
                say(f"By hand, {action.id}: {line}")


@fleet.command()
@click.argument("action_id", metavar="ID", type=click.IntRange(1))
@REASON
@ACTOR
@common
def revert(run: Run, action_id: int, reason: str, actor: str | None) -> int:
    """End an action now; its breaker's episode does not repeat it."""
    with database(run.settings) as engine:
        with transaction(engine) as connection:
            people.ask_end(connection, action_id, actor_of(actor), reason, utc_now())
        settle(engine, registry(fleet_settings(run.settings)), utc_now())
        with transaction(engine) as connection:
            after = lock_action(connection, action_id)
    _show(run, [] if after is None else [after], "")
    return 0 if after is not None and after.state == "reverted" else 1


@fleet.command()
@ACTUATOR
@REASON
@ACTOR
@common
def enable(run: Run, actuator: str, reason: str, actor: str | None) -> None:
    """Let an actuator act; until then it plans only."""
    _switch(run, actuator, True, reason, actor)


@fleet.command()
@ACTUATOR
@REASON
@ACTOR
@common
def disable(run: Run, actuator: str, reason: str, actor: str | None) -> None:
    """Back to dry run; what it did is put back."""
    _switch(run, actuator, False, reason, actor)


def _switch(run: Run, actuator: str, enabled: bool, reason: str, actor: str | None) -> None:
    with database(run.settings) as engine:
        with transaction(engine) as connection:
            people.switch(connection, actuator, enabled, actor_of(actor), reason, utc_now())
        reachable = registry(fleet_settings(run.settings))
        if not enabled:
            settle(engine, reachable, utc_now())
        with transaction(engine) as connection:
            switches = list_switches(connection)
    print_rows([{"actuator": actuator, "acts": _acts(actuator, switches, reachable)}], as_json=run.as_json)

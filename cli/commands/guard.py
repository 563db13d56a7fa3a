"""``tokenfuse guard``: register the pieces that refuse requests, and see whether they are alive."""

from __future__ import annotations

from dataclasses import asdict

import click

from cli.guards import add_guard, read_keys, rotate_key
from cli.options import Run, common
from cli.output import print_rows, say
from cli.wiring import database, guard_keys_file, utc_now
from models.access_repo import create_token
from models.audit_repo import append_audit
from models.database import transaction
from models.guard_repo import list_guards


@click.group()
def guard() -> None:
    """Guards: register, rotate a key, list."""


@guard.command()
@click.argument("name")
@common
def add(run: Run, name: str) -> None:
    """Register guard NAME: prints the environment it needs, once."""
    now = utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        _, token = create_token(connection, name, ("policy", "ingest"), "", now)
        key = add_guard(guard_keys_file(run.settings), name)
        append_audit(connection, now, "command line", "guard.add", f"guard:{name}", {"key_id": key["key_id"]})
    say("Set these where the guard runs. They cannot be shown again.")
    environment = {
        "TOKENFUSE_GUARD_URL": run.settings.api_url,
        "TOKENFUSE_GUARD_NAME": name,
        "TOKENFUSE_GUARD_TOKEN": token,
        "TOKENFUSE_GUARD_KEYS": f"{key['key_id']}:{key['secret']}",
        "TOKENFUSE_GUARD_ORG": run.settings.organisation,
        "TOKENFUSE_GUARD_CLUSTER": run.settings.default_cluster,
        "TOKENFUSE_GUARD_NAMESPACE": run.settings.default_namespace,
        "TOKENFUSE_GUARD_STATE_DIR": "/var/lib/tokenfuse-guard",
    }
    if run.as_json:
        print_rows([environment], as_json=True)
    else:
        click.echo("\n".join(f"export {variable}={value}" for variable, value in environment.items()))


@guard.command()
@click.argument("name")
@common
def rotate(run: Run, name: str) -> None:
    """Give guard NAME a new signing key; its present one stays valid until the next rotation."""
    now = utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        key = rotate_key(guard_keys_file(run.settings), name)
        append_audit(connection, now, "command line", "guard.rotate", f"guard:{name}", {"key_id": key["key_id"]})
    print_rows([{"TOKENFUSE_GUARD_KEYS": f"{key['key_id']}:{key['secret']}"}], as_json=run.as_json)


@guard.command("list")
@common
def list_command(run: Run) -> None:
    """Registered guards, when each last asked, and the policy version it held."""
    registered = read_keys(guard_keys_file(run.settings))
    with database(run.settings) as engine, transaction(engine) as connection:
        seen = {g.name: asdict(g) for g in list_guards(connection)}
    rows = [
        seen.get(name, {"name": name, "kind": "", "last_seen_at": None, "last_version": None})
        for name in sorted({*registered, *seen})
    ]
    print_rows(rows, as_json=run.as_json, empty="No guard yet: tokenfuse guard add NAME")

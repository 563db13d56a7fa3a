"""``tokenfuse token``: API tokens. A token's text is shown once; only a hash is kept."""

from __future__ import annotations

from dataclasses import asdict

import click

from cli.options import Run, common, parse_ahead
from cli.output import print_rows, say
from cli.wiring import database, utc_now
from core.errors import NotFound
from models.access_repo import create_token, list_tokens, revoke_token
from models.audit_repo import append_audit
from models.database import transaction


@click.group()
def token() -> None:
    """API tokens: create, list, revoke."""


@token.command()
@click.option("--name", required=True, help="who or what uses it; must be new")
@click.option("--scope", "scopes", multiple=True, required=True, help="ingest, read, operate, admin or policy; may be repeated")
@click.option("--tenant", default="", metavar="ORG[/TEAM]", help="see only this part of the tenants")
@click.option("--expires", metavar="TIME", help="end of its life: a time or a span such as 90d (default: never)")
@common
def create(run: Run, name: str, scopes: tuple[str, ...], tenant: str, expires: str | None) -> None:
    """Make a token and print it once."""
    now = utc_now()
    until = parse_ahead(expires, "--expires", now) if expires else None
    with database(run.settings) as engine, transaction(engine) as connection:
        token_id, text = create_token(connection, name, scopes, tenant, now, until)
        append_audit(connection, now, "command line", "token.create", f"token:{token_id}", {"name": name, "scopes": list(scopes)})
    say("Keep this token: it cannot be shown again.")
    print_rows([{"id": token_id, "name": name, "token": text}], as_json=run.as_json)


@token.command("list")
@common
def list_command(run: Run) -> None:
    """Every token ever made, without its secret."""
    with database(run.settings) as engine, transaction(engine) as connection:
        print_rows([asdict(info) for info in list_tokens(connection)], as_json=run.as_json, empty="No token yet.")


@token.command()
@click.argument("token_id")
@common
def revoke(run: Run, token_id: str) -> None:
    """End a token now (the API forgets it within 5 s)."""
    now = utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        if not revoke_token(connection, token_id, now):
            raise NotFound(f"no live token {token_id}", hint="see `tokenfuse token list`")
        append_audit(connection, now, "command line", "token.revoke", f"token:{token_id}", {})
    print_rows([{"id": token_id, "revoked_at": now}], as_json=run.as_json)

"""The ``tokenfuse`` command. Exit codes: 0 ok, 1 failed, 2 bad input."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from cli.logs import mask
from core.errors import BadInput, TokenfuseError

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("cli.commands.init", "ask for the essentials and write tokenfuse.toml"),
    "up": ("cli.commands.run", "start everything under one supervisor"),
    "down": ("cli.commands.run", "stop everything"),
    "demo": ("cli.commands.demo", "start everything on sample data and print the URLs"),
    "doctor": ("cli.commands.doctor", "check the installation and say what to do"),
    "process": ("cli.commands.run", "run one process (used by the supervisor)"),
    "db": ("cli.commands.db", "database: upgrade, url"),
    "token": ("cli.commands.token", "API tokens: create, list, revoke"),
    "guard": ("cli.commands.guard", "guards: register, list"),
    "ingest": ("cli.commands.ingest", "read usage files and engine scrapes"),
    "backfill": ("cli.commands.backfill", "read history from LiteLLM's spend log"),
    "stream": ("cli.commands.stream", "run the Flink job and the loader"),
    "rebuild": ("cli.commands.stream", "apply retained deltas again after a restore"),
    "show": ("cli.commands.show", "usage, unit-cost, coverage, budgets, quality"),
    "rates": ("cli.commands.rates", "dated prices: import, list"),
    "costbook": ("cli.commands.costbook", "own racks: issue a month of their cost as a bill"),
    "node": ("cli.commands.node", "capacity: declare, end, identify, list the GPUs in service"),
    "match": ("cli.commands.match", "which machine a charge is of: list, run, confirm, ignore, undo"),
    "ledger": ("cli.commands.ledger", "close quarter hours and months, their lines and statements"),
    "shared": ("cli.commands.shared", "shared cost rules: add, list, preview, end"),
    "compare": ("cli.commands.compare", "your own engines beside vendors' list prices, GPU types beside each other"),
    "explain": ("cli.commands.explain", "why one period cost more or less than another"),
    "export": ("cli.commands.export", "the ledger as FOCUS 1.2 files, to a folder or a bucket"),
    "reconcile": ("cli.commands.reconcile", "from the invoice's total to the tenants, every difference named"),
    "budget": ("cli.commands.budget", "budgets: set, increase, list"),
    "exempt": ("cli.commands.budget", "exemptions: add, list"),
    "limit": ("cli.commands.budget", "standing limits: set, list"),
    "breaker": ("cli.commands.breaker", "breakers: list, enforce, shadow, reset, approve, pause"),
    "incidents": ("cli.commands.incidents", "incidents: list, show, ack, assign, comment"),
    "channel": ("cli.commands.channel", "channels that incidents are told by: add, list, test, remove"),
    "outbox": ("cli.commands.outbox", "messages and actions: list, resend what was given up"),
    "fleet": ("cli.commands.fleet", "act on the fleet: targets, plan, actions, revert, enable, disable"),
    "rules": ("cli.commands.rules", "what is watched and what fired: list, set, test, backtest, alerts"),
    "tags": ("cli.commands.tags", "cost-allocation tags on AWS: plan, apply, activate, status"),
    "tenants": ("cli.commands.tenants", "tenants, identity rules and their preview, names from LiteLLM"),
    "classes": ("cli.commands.classes", "workload classes: train, list, show, activate, rename"),
    "audit": ("cli.commands.breaker", "the audit trail: list, verify"),
}


class _Lazy(click.Group):
    """Loads a command's module only when it is used: `tokenfuse --help` must not import Flink."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items() if name != "process"])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tokenfuse")
def cli() -> None:
    """What a self-hosted LLM token really cost, who spent it, and a circuit breaker for the budget."""


def main(arguments: list[str] | None = None) -> Any:
    """Entry point: every expected error becomes one readable line and its exit code. Files are the caller's alone to read."""
    os.umask(0o077)
    try:
        result = cli.main(args=arguments, prog_name="tokenfuse", standalone_mode=False)
        sys.exit(result if isinstance(result, int) else 0)
    except click.exceptions.Abort:
        _fail("stopped", 1)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except BadInput as error:
        _fail(str(error), 2)
    except TokenfuseError as error:
        _fail(str(error), 1)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}: see that the disk has space and the folder may be written", 1)
    except KeyboardInterrupt:
        _fail("stopped", 1)


def _fail(message: str, code: int) -> None:
    click.echo(mask(f"tokenfuse: {message}"), err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()

"""``tokenfuse budget``, ``exempt`` and ``limit``: plans, hard limits and who is let through."""

from __future__ import annotations

import getpass
import time
from dataclasses import asdict, is_dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import click
from sqlalchemy import Connection

from api.budget_view import Standings, budget_row, forecast_rows, tree_rows
from cli.options import Run, common, parse_ahead
from cli.output import print_json, print_rows, say
from cli.wiring import database, utc_now
from control import budgets as control
from core.currencies import require_currency
from core.errors import BadInput, NotFound
from core.scopes import parse_scope
from core.windows import PERIODS
from models.database import transaction
from models.decide_repo import find_budget, list_budgets, list_exemptions, list_limits

SCOPE = click.option(
    "--scope", required=True, metavar="SCOPE", help="tenant:ORG[/TEAM[/PROJECT[/USER]]] or deployment:CLUSTER/NAMESPACE/MODEL"
)
PERIOD = click.option("--period", type=click.Choice(PERIODS), default="month", show_default=True)
TREE_COLUMNS = ("period", "currency", "amount", "spend", "children_amount", "unassigned", "unbudgeted_spend", "unbudgeted_reason")
FORECAST_COLUMNS = (
    "scope", "period", "currency", "amount", "total", "low", "high", "exhausted_at", "earliest", "method", "as_of", "reason",
)  # fmt: skip
ACTOR = click.option("--by", "actor", help="your name, for the audit trail (default: the login name)")


def amount_of(text: str, option: str) -> Decimal:
    """An exact positive amount. Raises BadInput naming the option."""
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise BadInput("not a decimal number", field=option, value=text, hint="write 500 or 499.95") from error
    if not value.is_finite() or value <= 0:
        raise BadInput("must be more than 0", field=option, value=text)
    return value


def budget_rows(connection: Connection) -> list[dict[str, Any]]:
    """Budgets in force as the API shows them, measured now."""
    now = utc_now()
    standings = Standings(0, time.monotonic).of(connection, list_budgets(connection), now, live=True)
    return [budget_row(standing) for standing in standings]


def actor_of(given: str | None) -> str:
    return given or getpass.getuser()


def _report(run: Run, stored: control.Stored[Any], what: str) -> None:
    if run.as_json:
        value = asdict(stored.value) if is_dataclass(stored.value) and not isinstance(stored.value, type) else stored.value
        print_json({"value": value, "warnings": list(stored.warnings)})
        return
    say(what)
    for warning in stored.warnings:
        say(f"look: {warning}")


@click.group()
def budget() -> None:
    """Budgets: an amount to plan by and, if you type one, a cap to stop at."""


@budget.command("set")
@SCOPE
@PERIOD
@click.option("--amount", required=True, help="the plan: pace and alerts go by it")
@click.option("--cap", help="hard limit: at 95 % of it tier 3 opens, once the breaker is enforced")
@click.option("--currency", help="default: the reporting currency")
@click.option("--basis", type=click.Choice(["allocation", "usage"]), help="default: by the kind of scope")
@click.option("--zone", help="time zone of its periods (default: the reporting zone)")
@click.option("--owner", default="", help="who answers for it")
@click.option("--fiscal-start", type=click.IntRange(1, 12), default=1, help="month in which years begin (quarters, years)")
@click.option("--rollover", is_flag=True, help="add what the period before left of its amount, once")
@ACTOR
@common
def set_command(
    run: Run, scope: str, period: str, amount: str, cap: str | None, currency: str | None, basis: str | None, zone: str | None,
    owner: str, fiscal_start: int, rollover: bool, actor: str | None,
) -> None:  # fmt: skip
    """Set the budget of a scope and period; setting it again makes a new version."""
    if currency:
        require_currency(currency, "--currency")
    with database(run.settings) as engine, transaction(engine) as connection:
        stored = control.set_budget(
            connection, scope, period, amount_of(amount, "--amount"), currency or run.settings.currency,
            zone or run.settings.zone, actor_of(actor), utc_now(), cap=amount_of(cap, "--cap") if cap else None,
            cost_basis=basis, owner=owner, fiscal_start=fiscal_start, rollover=rollover,
        )  # fmt: skip
    note = " Its breaker is in shadow: `tokenfuse breaker enforce` arms it." if cap else ""
    _report(run, stored, f"Budget of {scope} per {period} is {amount} {currency or run.settings.currency}.{note}")


@budget.command()
@SCOPE
@PERIOD
@click.option("--extra", required=True, help="how much more")
@click.option("--until", required=True, metavar="TIME", help="end of the raise: a time or a span such as 24h")
@click.option("--approver", required=True, help="who allowed it")
@click.option("--reason", required=True)
@common
def increase(run: Run, scope: str, period: str, extra: str, until: str, approver: str, reason: str) -> None:
    """Raise a cap for a while."""
    now = utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        found = find_budget(connection, parse_scope(scope), period)
        if found is None:
            raise NotFound(f"no {period} budget of {scope}", hint="see `tokenfuse budget list`")
        stored = control.increase_cap(
            connection, scope, period, amount_of(extra, "--extra"), found.budget.amount.currency,
            parse_ahead(until, "--until", now), approver, reason, now,
        )  # fmt: skip
    _report(
        run, stored, f"Cap of {scope} per {period} is {extra} higher until {stored.value.increase.expires_at:%Y-%m-%d %H:%MZ}."
    )


@budget.command("list")
@common
def list_command(run: Run) -> None:
    """Budgets in force with their spend (also `show budgets`)."""
    with database(run.settings) as engine, transaction(engine) as connection:
        print_rows(budget_rows(connection), as_json=run.as_json, empty="No budget yet.")


def _tree_cells(row: dict[str, Any]) -> dict[str, Any]:
    """A budget without children has nothing to compare: a dash, for "unknown" would be wrong."""
    whole = ("children_amount", "unassigned", "unbudgeted_spend")
    return {name: "–" if name in whole and not row["children"] else row[name] for name in TREE_COLUMNS}


@budget.command("tree")
@common
def tree_command(run: Run) -> None:
    """Budgets under those above them: what is not assigned, and what nobody's budget below holds."""
    now = utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = tree_rows(Standings(0, time.monotonic).of(connection, list_budgets(connection), now, live=True))
    if not run.as_json:
        rows = [{"budget": "  " * r["depth"] + r["scope"], **_tree_cells(r)} for r in rows]
    print_rows(rows, as_json=run.as_json, empty="No budget yet: `tokenfuse budget set --scope tenant:ORG --amount 500`.")


@budget.command("forecast")
@common
def forecast_command(run: Run) -> None:
    """What each running period is forecast to cost, with an 80 % interval, and when its amount runs out."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = forecast_rows(connection, list_budgets(connection), utc_now())
    if not run.as_json:
        rows = [{name: (row[name] if row[name] is not None else "–") for name in FORECAST_COLUMNS} for row in rows]
    print_rows(rows, as_json=run.as_json, empty="No budget yet: `tokenfuse budget set --scope tenant:ORG --amount 500`.")


@budget.command()
@SCOPE
@PERIOD
@ACTOR
@common
def remove(run: Run, scope: str, period: str, actor: str | None) -> None:
    """Retire a budget. Its history stays; an open breaker stays open until a person acts."""
    with database(run.settings) as engine, transaction(engine) as connection:
        control.remove_budget(connection, scope, period, actor_of(actor), utc_now())
    print_rows([{"scope": scope, "period": period, "state": "retired"}], as_json=run.as_json)


@click.group()
def exempt() -> None:
    """Exemptions: a scope no breaker refuses, until it expires."""


@exempt.command()
@SCOPE
@click.option("--owner", required=True, help="who answers for it")
@click.option("--until", required=True, metavar="TIME", help="a time or a span such as 7d")
@click.option("--reason", required=True)
@ACTOR
@common
def add(run: Run, scope: str, owner: str, until: str, reason: str, actor: str | None) -> None:
    """Let a scope through until a time."""
    now = utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        stored = control.add_exemption(connection, scope, owner, reason, parse_ahead(until, "--until", now), actor_of(actor), now)
    _report(run, stored, f"{scope} is exempt until {stored.value.expires_at:%Y-%m-%d %H:%MZ}.")


@exempt.command("list")
@common
def exempt_list(run: Run) -> None:
    """Exemptions in force."""
    with database(run.settings) as engine, transaction(engine) as connection:
        print_rows(
            [asdict(e) for e in list_exemptions(connection, utc_now())], as_json=run.as_json, empty="No exemption in force."
        )


@exempt.command()
@click.argument("exemption_id", type=int)
@ACTOR
@common
def end(run: Run, exemption_id: int, actor: str | None) -> None:
    """End an exemption now."""
    with database(run.settings) as engine, transaction(engine) as connection:
        ended = control.end_exemption(connection, exemption_id, actor_of(actor), utc_now())
    print_rows([asdict(ended)], as_json=run.as_json)


@click.group()
def limit() -> None:
    """Standing limits: they need no trip."""


@limit.command("set")
@click.option("--scope", required=True, metavar="SCOPE", help="tenant:…, deployment:…, service_tier:P2 or platform")
@click.option(
    "--name",
    required=True,
    type=click.Choice(["max_prompt_tokens", "max_output_tokens", "max_concurrent_long", "tokens_per_min"]),
)
@click.option("--value", required=True, type=click.IntRange(min=1))
@click.option("--mode", type=click.Choice(["warn", "enforce"]), default="warn", show_default=True)
@ACTOR
@common
def limit_set(run: Run, scope: str, name: str, value: int, mode: str, actor: str | None) -> None:
    """Set one limit; guards have it within a second."""
    with database(run.settings) as engine, transaction(engine) as connection:
        stored = control.set_limit(connection, scope, name, value, mode, actor_of(actor), utc_now())
    _report(run, stored, f"{name} of {scope} is {value:,} ({mode}).")


@limit.command("list")
@common
def limit_list(run: Run) -> None:
    """Every standing limit."""
    with database(run.settings) as engine, transaction(engine) as connection:
        print_rows([asdict(found) for found in list_limits(connection)], as_json=run.as_json, empty="No standing limit.")


@limit.command("remove")
@click.option("--scope", required=True)
@click.option("--name", required=True)
@ACTOR
@common
def limit_remove(run: Run, scope: str, name: str, actor: str | None) -> None:
    """Take a limit away."""
    with database(run.settings) as engine, transaction(engine) as connection:
        control.remove_limit(connection, scope, name, actor_of(actor), utc_now())
    print_rows([{"scope": scope, "name": name, "state": "removed"}], as_json=run.as_json)

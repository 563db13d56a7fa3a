"""``tokenfuse shared``: rules that share platform cost over deployments or tenants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, cast

import click

from cli.commands.budget import actor_of
from cli.commands.period import parse_month
from cli.options import Run, common
from cli.output import print_json, print_rows, say
from cli.wiring import database, utc_now
from control.shared_costs import add_shared_rule, end_shared_rule, preview
from control.statement import month_window
from core.errors import BadInput
from core.money import plain
from core.period_line import PeriodLine
from core.shared_cost import METHODS, TARGETS, Method, Selector, SharedRule, Target, parse_shares
from core.statement import deployment_of, tenant_of
from models.database import transaction
from models.shared_repo import read_rules


@click.group()
def shared() -> None:
    """Shared cost (gateway, platform, storage, network): who bears the charges that are no machine's."""


@shared.command()
@click.argument("name")
@click.option(
    "--bucket", "buckets", multiple=True, help="takes charges of this bucket (see show charges --by bucket); may repeat"
)
@click.option("--service", default="", help="takes charges of this service, as the bill writes it")
@click.option("--resource", default="", help="takes charges of this resource id")
@click.option("--tag", metavar="KEY=VALUE", help="takes charges with this tag")
@click.option(
    "--method", type=click.Choice(METHODS), required=True, help="weight: by the month's own cost; even; fixed: by --share"
)
@click.option("--over", type=click.Choice(TARGETS), default="deployment", show_default=True, help="who bears it")
@click.option("--share", "shares", multiple=True, metavar="HOLDER=PART", help="method fixed: acme/search=0.25; they sum to one")
@click.option("--from", "from_", required=True, metavar="DAY", help="takes charges of this day and later")
@click.option(
    "--position", default=100, show_default=True, help="lower is asked first; the first rule that takes a charge has it"
)
@click.option("--owner", required=True, help="who answers for the rule")
@click.option("--by", "actor", metavar="NAME", help="who adds it (default: you)")
@click.option("--dry-run", metavar="MONTH", help="only show what it would make of this month, 2026-07")
@common
def add(
    run: Run, name: str, buckets: tuple[str, ...], service: str, resource: str, tag: str | None, method: str, over: str,
    shares: tuple[str, ...], from_: str, position: int, owner: str, actor: str | None, dry_run: str | None,
) -> None:  # fmt: skip
    """Add a rule. It is never edited: end it and add another."""
    rule = SharedRule(
        name, position, Selector(frozenset(buckets), service, resource, _tag(tag)), cast(Method, method), cast(Target, over),
        _day(from_, "--from"), owner, None, parse_shares(shares),
    )  # fmt: skip
    if dry_run:
        _preview(run, dry_run, rule, "")
        return
    with database(run.settings) as engine, transaction(engine) as connection:
        add_shared_rule(connection, rule, actor_of(actor), utc_now())
    if run.as_json:
        print_json(_row(rule))
    else:
        say(f"{name} takes charges from {rule.valid_from} on. See what it makes of a month: tokenfuse shared preview 2026-07")


@shared.command("list")
@common
def list_command(run: Run) -> None:
    """Every rule, as they are asked."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = [_row(rule) for rule in read_rules(connection)]
    print_rows(rows, as_json=run.as_json, empty="No shared cost rule: charges that are no machine's are not shared.")


@shared.command("preview")
@click.argument("month", metavar="MONTH")
@click.option("--without", default="", metavar="NAME", help="as if this rule were not")
@common
def preview_command(run: Run, month: str, without: str) -> None:
    """What the rules make of a MONTH's charges, and what no rule takes."""
    _preview(run, month, None, without)


@shared.command()
@click.argument("name")
@click.option("--on", required=True, metavar="DAY", help="takes no charge of this day or later")
@click.option("--reason", required=True, help="why it ends")
@click.option("--by", "actor", metavar="NAME", help="who ends it (default: you)")
@common
def end(run: Run, name: str, on: str, reason: str, actor: str | None) -> None:
    """End a rule."""
    with database(run.settings) as engine, transaction(engine) as connection:
        ended = end_shared_rule(connection, name, _day(on, "--on"), actor_of(actor), reason, utc_now())
    if run.as_json:
        print_json(_row(ended))
    else:
        say(f"{name} takes nothing from {ended.valid_to} on. Closed months stay; what changes is posted in the first open one.")


def _preview(run: Run, month: str, adding: SharedRule | None, without: str) -> None:
    first = parse_month(month)
    with database(run.settings) as engine, transaction(engine) as connection:
        found = preview(connection, first, month_window(connection, first, run.settings.zone), adding=adding, without=without)
    changes = adding is not None or bool(without)
    lines = _with_former(found.now, found.then) if changes else [_line(line) for line in found.then]
    print_rows(lines, as_json=run.as_json, title=f"Shared cost of {month}", empty=f"No charge in {month} that is no machine's.")


def _with_former(now: Sequence[PeriodLine], then: Sequence[PeriodLine]) -> list[dict[str, Any]]:
    former = {_key(line): line.amount for line in now}
    rows = [{**_line(line), "now": former.pop(_key(line), 0)} for line in then]
    gone = [{**_line(line), "amount": 0, "now": line.amount} for line in now if _key(line) in former]
    return rows + gone


def _key(line: PeriodLine) -> tuple[str, ...]:
    return (line.kind, line.name, line.currency, line.cluster, line.namespace, line.model_id, line.org, line.team)


def _line(line: PeriodLine) -> dict[str, Any]:
    bearer = tenant_of(line) or deployment_of(line) or "nobody"
    return {"kind": line.kind, "rule or charges": line.name, "bearer": bearer, "currency": line.currency, "amount": line.amount}


def _row(rule: SharedRule) -> dict[str, Any]:
    s = rule.selector
    asked = {"bucket": ", ".join(sorted(s.buckets)), "service": s.service, "resource": s.resource_id}
    asked["tag"] = "=".join(s.tag) if s.tag else ""
    return {
        "position": rule.position, "name": rule.name, "takes": "; ".join(f"{k} {v}" for k, v in asked.items() if v),
        "method": rule.method, "over": rule.target, "shares": ", ".join(f"{k}={plain(v)}" for k, v in rule.shares.items()),
        "valid_from": rule.valid_from, "valid_to": rule.valid_to, "owner": rule.owner,
    }  # fmt: skip


def _tag(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadInput("is no tag", field="--tag", value=text, hint="write KEY=VALUE")
    return key, value


def _day(text: str, option: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise BadInput("is no day", field=option, value=text, hint="write 2026-07-01") from error

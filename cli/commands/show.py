"""``tokenfuse show``: usage, unit cost, coverage, budgets, data quality."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import date, timedelta
from typing import Any

import click

from cli.commands.bills import bills, charges
from cli.commands.budget import budget_rows
from cli.commands.gpus import gpus
from cli.commands.match import nodes, unmatched_command
from cli.commands.metrics import metrics
from cli.commands.unpriced import bought, say_unpriced, unpriced
from cli.options import Run, common, parse_time, window_options
from cli.output import Progress, print_json, print_rows
from cli.show_words import (
    coverage_words,
    efficiency_words,
    feature_words,
    heat_map_grid,
    quality_words,
    standing_words,
    unit_cost_words,
)
from cli.wiring import database, utc_now
from control.data_quality import data_quality
from control.standing_check import check_day
from core.errors import BadInput
from core.windows import Window
from models.coverage_repo import coverage_rows
from models.database import transaction
from models.efficiency_repo import efficiency_rows
from models.feature_figures_repo import feature_rows, tool_edges
from models.heat_map_repo import heat_map
from models.identity_repo import with_key_alias
from models.ledger_repo import unit_cost_rows
from models.quality_repo import data_faults, quarantine_counts
from models.standing_repo import StandingCheck
from models.usage_repo import usage_rows


@click.group()
def show() -> None:
    """Figures on the terminal, or as JSON for other programs."""


show.add_command(bills)
show.add_command(charges)
show.add_command(gpus)
show.add_command(metrics)
show.add_command(unpriced)
show.add_command(bought)
show.add_command(nodes)
show.add_command(unmatched_command)


def _by(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--by", default=default, show_default=True, metavar="COLS", help="grouping keys, separated by commas")


def _keys(by: str) -> list[str]:
    return [key.strip() for key in by.split(",") if key.strip()]


def _filters(given: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for item in given:
        key, sign, value = item.partition("=")
        if not sign:
            raise BadInput("is not KEY=VALUE", field="--where", value=item, hint="for example --where team=search")
        pairs[key.strip()] = value
    return pairs


_where = click.option("--where", "given", multiple=True, metavar="KEY=VALUE", help="only rows with this value; may be repeated")


@show.command()
@_by("deployment")
@_where
@window_options(None)
@common
def usage(run: Run, by: str, given: tuple[str, ...], window: Window) -> None:
    """Requests and tokens, by any keys (also minute, hour, day)."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = usage_rows(connection, _keys(by), _minutes(window), _filters(given), zone_name=run.settings.zone)
        rows = with_key_alias(connection, found)
    print_rows(rows, as_json=run.as_json, empty="No usage in this time range.")


@show.command("unit-cost")
@_by("deployment")
@click.option("--basis", type=click.Choice(["allocation", "usage"]), default="allocation", show_default=True)
@_where
@window_options(timedelta(days=7))
@common
def unit_cost(run: Run, by: str, basis: Any, given: tuple[str, ...], window: Window) -> None:
    """Cost per million tokens and per request, from closed quarter hours; unknown where it is not defined, with the reason."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = unit_cost_rows(connection, _keys(by), window, basis, filters=_filters(given), zone_name=run.settings.zone)
        say_unpriced(run, connection, window)
        rows = with_key_alias(connection, found)
    told = rows if run.as_json else [unit_cost_words(row) for row in rows]
    print_rows(
        told,
        as_json=run.as_json,
        empty="No closed quarter hour in this time range: `tokenfuse ledger close` closes what is due.",
    )


@show.command()
@_by("deployment")
@_where
@window_options(None)
@common
def coverage(run: Run, by: str, given: tuple[str, ...], window: Window) -> None:
    """Engine view against gateway view, and the named reasons for the difference."""
    keys = _keys(by)
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = coverage_rows(connection, keys, _minutes(window), _filters(given), zone_name=run.settings.zone)
        say_unpriced(run, connection, window)
    shown = rows if run.as_json else [coverage_words(row, keys) for row in rows]
    print_rows(shown, as_json=run.as_json, empty="Neither engine nor gateway work in this time range.")


@show.command("heat-map")
@click.option("--kind", type=click.Choice(["input", "output"]), default="input", show_default=True)
@click.option("--axis", type=click.Choice(["hour_of_day", "hour", "day"]), default="hour_of_day", show_default=True)
@_where
@window_options(timedelta(days=7))
@common
def heat_map_command(run: Run, kind: str, axis: str, given: tuple[str, ...], window: Window) -> None:
    """Requests by hour and length, and P90 / P50 of their lengths (from 4 on they are better served apart)."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = heat_map(connection, kind, axis, window, _filters(given), zone_name=run.settings.zone)
    if run.as_json:
        print_json(asdict(found))
        return
    print_rows(heat_map_grid(found), as_json=False, title=f"Requests by {kind} length", empty="No request in this time range.")
    print_rows(found.lengths, as_json=False, title="Lengths in tokens", empty="")


@show.command("efficiency")
@click.option("--step", type=click.Choice(["minute", "hour", "day", "none"]), default="day", show_default=True)
@_where
@window_options(timedelta(days=7))
@common
def efficiency_command(run: Run, step: str, given: tuple[str, ...], window: Window) -> None:
    """How well each deployment's engines are used: KV cache, batching, prefill, decode, memory, power."""
    chosen = None if step == "none" else step
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = efficiency_rows(connection, chosen, _minutes(window), _filters(given), zone_name=run.settings.zone)
    shown = rows if run.as_json else [efficiency_words(row, chosen) for row in rows]
    print_rows(shown, as_json=run.as_json, empty="No engine was watched in this time range.")


@show.command("features")
@_by("deployment")
@_where
@click.option("--tools", is_flag=True, help="which tool was called after which within sessions")
@window_options(timedelta(days=7))
@common
def features_command(run: Run, by: str, given: tuple[str, ...], tools: bool, window: Window) -> None:
    """What requests are like: lengths, cached share, repetition, sessions, tools, like prompts (also by hour_of_week)."""
    keys = _keys(by)
    with database(run.settings) as engine, transaction(engine) as connection:
        if tools:
            rows = tool_edges(connection, window, _filters(given))
        else:
            rows = feature_rows(connection, keys, window, _filters(given), zone_name=run.settings.zone)
    shown = rows if run.as_json or tools else [feature_words(row, keys) for row in rows]
    empty = "No session called a tool" if tools else "No hour with requests was computed"
    print_rows(
        shown, as_json=run.as_json, empty=f"{empty} in this time range; the stream computes features of archived requests."
    )


@show.command()
@common
def budgets(run: Run) -> None:
    """Budgets with spend, pace and time to exhaustion."""
    with database(run.settings) as engine, transaction(engine) as connection:
        rows = budget_rows(connection)
    if run.as_json:
        print_json(rows)
        return
    columns = ("scope", "period", "amount", "cap", "currency", "cost_basis", "spent_share", "pace", "exhausted_at")
    print_rows([{**{name: row[name] for name in columns}, "spend": row["spend"]["amount"]} for row in rows], as_json=False)


@show.command()
@click.option(
    "--check", nargs=2, metavar="FROM TO", help="compare rollups with the raw archive now, these days (UTC, TO included)"
)
@window_options(timedelta(days=7))
@common
def quality(run: Run, check: tuple[str, str] | None, window: Window) -> int:
    """Kinds of fault with their money and remedy, records not taken; --check: rollups against the archive (exit 1: differ)."""
    if check is not None:
        return _check(run, parse_time(check[0], "--check").date(), parse_time(check[1], "--check").date())
    with database(run.settings) as engine, transaction(engine) as connection:
        whole = data_quality(connection, window, utc_now())
        quarantined = [asdict(row) for row in quarantine_counts(connection, window)]
        found, total = data_faults(connection, window, 200)
    faults = [asdict(row) for row in found]
    if run.as_json:
        print_json({**whole, "quarantined": quarantined, "faults": faults, "faults_total": total})
        return 0
    print_rows(quality_words(whole), as_json=False, title="What makes numbers less true", empty="No fault was found.")
    print_rows(whole["money"], as_json=False, title="Money that rests on it, each cent once", empty="No money rests on faults.")
    print_rows(quarantined, as_json=False, title="Quarantined records", empty="No record was quarantined.")
    print_rows(faults, as_json=False, title="Faults", empty="No source reported a fault.")
    print_rows(standing_words(whole["standing"]), as_json=False, title="Rollups against the raw archive")
    return 0


def _check(run: Run, first: date, last: date) -> int:
    if last < first:
        raise BadInput("must not be before FROM", field="--check", value=last.isoformat())
    progress = Progress("Days compared", quiet=run.as_json, every=1)
    checks: list[StandingCheck] = []
    with database(run.settings) as engine:
        days = (last - first).days + 1
        for n in range(days):
            checks += check_day(engine, run.settings.data_dir, first + timedelta(days=n), utc_now())
            progress(n + 1, days)
    rows = [{**asdict(one), "deployment": str(one.deployment)} for one in checks]
    print_rows(rows, as_json=run.as_json, empty="Neither the archive nor the rollups hold anything of these days.")
    return int(any(one.status != "ok" for one in checks))


def _minutes(window: Window) -> Window:
    """Whole minutes: the start rounded down, the end up."""
    minute = timedelta(minutes=1)
    start = window.start.replace(second=0, microsecond=0)
    end = window.end.replace(second=0, microsecond=0)
    return Window(start, end if end == window.end else end + minute)

"""``tokenfuse rules``: what is watched, by which detector, what it would have done, and what fired."""

from __future__ import annotations

import csv
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common, parse_time, window_options
from cli.output import print_json, print_rows, say
from cli.wiring import database, utc_now
from control import rules as control
from control.rule_backtest import BacktestReport, backtest
from control.rule_files import read_rules, rules_text
from control.rule_watch import REFIT_AFTER
from core.errors import BadInput
from core.rule_backtest import replay
from core.rules import Rule, rule_as, span_text
from core.series import Point
from core.windows import Window, floor_time
from models.database import transaction
from models.rule_repo import list_alerts, list_rules, read_states

DAY = timedelta(days=1)


@click.group()
def rules() -> None:
    """Rules: list, show, set, export, enable, disable, shadow, tell, remove, test, backtest, alerts, ack, ignore."""


@rules.command("list")
@common
def list_command(run: Run) -> None:
    """Rules in force, and how many scopes are in which state."""
    with database(run.settings) as engine, transaction(engine) as connection:
        control.seed_rules(connection, utc_now())
        stored, states = list_rules(connection), read_states(connection)
    shown: dict[str, dict[str, int]] = {}
    for state in states:
        counts = shown.setdefault(state.rule, {})
        counts[state.shown] = counts.get(state.shown, 0) + 1
    found = [{**_row(one.rule), "scopes": shown.get(one.rule.name, {})} for one in stored]
    if not run.as_json:
        found = [{**row, "scopes": _counts(row["scopes"])} for row in found]
    print_rows(found, as_json=run.as_json, empty="No rule.")


def _row(rule: Rule) -> dict[str, Any]:
    detector = rule_as(rule)["detector"]["kind"]
    return {
        "name": rule.name, "metric": rule.metric, "scope": rule.scope, "detector": detector, "window": span_text(rule.window),
        "for": span_text(rule.timing.hold), "tier": rule.tier, "severity": rule.severity, "enabled": rule.enabled,
        "shadow": rule.shadow,
    }  # fmt: skip


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none seen yet"


@rules.command()
@click.argument("name")
@common
def show(run: Run, name: str) -> None:
    """One rule whole: its source, its remedy and how each scope stands."""
    with database(run.settings) as engine, transaction(engine) as connection:
        control.seed_rules(connection, utc_now())
        stored, states = control.find_rule(connection, name), read_states(connection, name)
    scopes = [
        {"scope": s.scope, "state": s.shown or "NO_DATA", "since": s.state.since, "judged_to": s.state.window_end,
         "value": s.verdict.value, "threshold": s.verdict.threshold, "usual": s.verdict.usual, "reason": s.verdict.reason}
        for s in states
    ]  # fmt: skip
    if run.as_json:
        print_json({**rule_as(stored.rule), "version": stored.version, "made_by": stored.made_by, "scopes": scopes})
        return
    click.echo(rules_text([stored.rule]).split("\n", 1)[1], nl=False)
    say(f"Version {stored.version} by {stored.made_by}. Metric: {stored.rule.facts.title} ({stored.rule.facts.unit}).")
    told = [{**row, **{key: _short(row[key]) for key in ("value", "threshold", "usual")}} for row in scopes]
    print_rows(told, as_json=False, title="Scopes", empty="Not evaluated yet: `tokenfuse up` runs the control loop.")


def _short(value: Any) -> str:
    return "unknown" if value is None else f"{value:.6g}"


@rules.command("set")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="read and compare; keep nothing")
@ACTOR
@common
def set_command(run: Run, file: Path, dry_run: bool, actor: str | None) -> None:
    """Store the rules of a YAML file that are new or changed; others stay as they are."""
    given = read_rules(file)
    with database(run.settings) as engine, transaction(engine) as connection:
        control.seed_rules(connection, utc_now())
        held = {stored.rule.name: stored.rule for stored in list_rules(connection)}
        changed = [rule.name for rule in given if held.get(rule.name) != rule]
        if not dry_run:
            control.set_rules(connection, given, actor_of(actor), utc_now())
    rows = [{"rule": rule.name, "change": _change(rule, held, changed)} for rule in given]
    print_rows(rows, as_json=run.as_json, title="Nothing is kept (dry run)" if dry_run else "")


def _change(rule: Rule, held: dict[str, Rule], changed: list[str]) -> str:
    return "none" if rule.name not in changed else "changed" if rule.name in held else "new"


@rules.command()
@click.argument("names", nargs=-1)
@common
def export(run: Run, names: tuple[str, ...]) -> None:
    """Print rules (default: all) as YAML for `rules set`."""
    with database(run.settings) as engine, transaction(engine) as connection:
        control.seed_rules(connection, utc_now())
        found = [control.find_rule(connection, name).rule for name in names] or [s.rule for s in list_rules(connection)]
    if run.as_json:
        print_json({"rules": [rule_as(rule) for rule in found]})
    else:
        click.echo(rules_text(found), nl=False)


def _switch(name: str, help_: str, enabled: bool | None = None, shadow: bool | None = None) -> None:
    @rules.command(name, help=help_)
    @click.argument("rule")
    @ACTOR
    @common
    def command(run: Run, rule: str, actor: str | None) -> None:
        who, now = actor_of(actor), utc_now()
        with database(run.settings) as engine, transaction(engine) as connection:
            control.seed_rules(connection, now)
            if enabled is not None:
                stored = control.switch_rule(connection, rule, enabled, who, now)
            else:
                stored = control.shadow_rule(connection, rule, bool(shadow), who, now)
        print_rows([_row(stored.rule)], as_json=run.as_json)


_switch("enable", "Evaluate a rule.", enabled=True)
_switch("disable", "Evaluate a rule no more; its alerts end.", enabled=False)
_switch("shadow", "Keep a rule's alerts and tell nobody.", shadow=True)
_switch("tell", "Take a rule out of shadow: its alerts are sent. Back-test it first.", shadow=False)


@rules.command()
@click.argument("rule")
@ACTOR
@common
def remove(run: Run, rule: str, actor: str | None) -> None:
    """Retire a rule; its history stays. A shipped rule does not come back by itself."""
    with database(run.settings) as engine, transaction(engine) as connection:
        control.remove_rule(connection, rule, actor_of(actor), utc_now())
    print_rows([{"rule": rule, "state": "removed"}], as_json=run.as_json)


@rules.command()
@click.argument("rule")
@click.option("--series", required=True, type=click.Path(path_type=Path), help="CSV with columns time, value and perhaps tokens")
@click.option("--from", "from_", metavar="TIME", help="judge from here on; what is before is history (default: the first row)")
@common
def test(run: Run, rule: str, series: Path, from_: str | None) -> None:
    """Try a rule on a series of a file, without touching anything."""
    with database(run.settings) as engine, transaction(engine) as connection:
        control.seed_rules(connection, utc_now())
        found = control.find_rule(connection, rule).rule
    points = read_series(series)
    start = parse_time(from_, "--from") if from_ else points[0].at
    window = Window(floor_time(start, found.window), points[-1].at + found.window)
    result = replay(found, points, window, REFIT_AFTER)
    rows = [
        {"started_at": f.started_at, "fired_at": f.fired_at, "ended_at": f.ended_at, "recovered": f.recovered,
         "value": _short(f.verdict.value), "threshold": _short(f.verdict.threshold), "reason": f.verdict.reason}
        for f in result.firings
    ]  # fmt: skip
    if run.as_json:
        print_json({"rule": rule, "windows": result.windows, "no_data": result.no_data, "firings": rows})
        return
    print_rows(rows, as_json=False, empty="It would not have fired.")
    say(f"{result.windows} windows judged, {result.no_data} of them not known.")


def read_series(path: Path) -> list[Point]:
    """Rows of time (RFC 3339 with zone), value ('' is unknown), tokens?; in order of time. Raises BadInput by file and line."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput("cannot be read", where=str(path), value=str(error), hint="name a CSV file") from error
    if not rows or not {"time", "value"} <= rows[0].keys():
        raise BadInput("needs columns time and value, and rows", where=path.name, hint="first line: time,value,tokens")
    return sorted((_point(row, f"{path.name}:{n}") for n, row in enumerate(rows, 2)), key=lambda point: point.at)


def _point(row: dict[str, str | None], where: str) -> Point:
    at = parse_time(row["time"] or "", f"{where}: time")
    try:
        value = float(row["value"]) if row["value"] else None
        tokens = int(row["tokens"] or 0) if row.get("tokens") else None
    except ValueError as error:
        raise BadInput("is not a number", where=where, field="value", value=f"{row['value']}, {row.get('tokens')}") from error
    return Point(at, value, tokens)


@rules.command("backtest")
@click.argument("rule")
@click.option("--incident", multiple=True, metavar="FROM/TO", help="a time that was a real incident; may be repeated")
@window_options(timedelta(days=14))
@common
def backtest_command(run: Run, rule: str, window: Window, incident: tuple[str, ...]) -> None:
    """Replay a rule over history in the database: firings, false trips a week, whom a breaker would have refused."""
    known = [_incident(text) for text in incident]
    now = utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        control.seed_rules(connection, now)
        report = backtest(connection, control.find_rule(connection, rule).rule, window, now, known)
    if run.as_json:
        print_json(asdict(report))
        return
    print_rows([_firing(asdict(one)) for one in report.firings], as_json=False, empty="It would not have fired.")
    for line in _summary(report):
        say(line)


def _incident(text: str) -> Window:
    start, _, end = text.partition("/")
    return Window(parse_time(start, "--incident"), parse_time(end, "--incident"))


def _firing(row: dict[str, Any]) -> dict[str, Any]:
    words = {"tenants": ", ".join(row["tenants"]) or "-", "currency": row["currency"] or "-"}
    return {**row, "value": _short(row["value"]), "threshold": _short(row["threshold"]), **words}


def _summary(report: BacktestReport) -> list[str]:
    lines = [
        f"{report.windows} windows of {report.scopes} scopes, {report.no_data} not known, "
        f"{report.window_start:%Y-%m-%d %H:%M}Z to {report.window_end:%Y-%m-%d %H:%M}Z.",
        f"{len(report.firings)} firings; on the worst scope {report.false_trips_per_week} false trips a week.",
        f"A breaker would have refused {report.requests_refused} requests of {', '.join(report.tenants) or 'nobody'}.",
    ]
    return [*lines, "May be offered for enforcement." if report.offerable else f"Not to be enforced: {report.reason}."]


@rules.command()
@click.option("--rule", help="of this rule alone")
@click.option("--open", "open_only", is_flag=True, help="those that still fire")
@window_options(7 * DAY)
@common
def alerts(run: Run, window: Window, rule: str | None, open_only: bool) -> None:
    """What fired, the newest first."""
    with database(run.settings) as engine, transaction(engine) as connection:
        found = [asdict(alert) for alert in list_alerts(connection, window, rule, open_only=open_only)]
    if not run.as_json:
        names = ("id", "rule", "scope", "severity", "shadow", "fired_at", "at_risk", "currency", "reason")
        found = [{**{name: row[name] for name in names}, "recovered": row["recovered_at"] or "still firing",
                  "person": f"{row['person_said']} by {row['person']}" if row["person"] else "-"} for row in found]  # fmt: skip
    print_rows(found, as_json=run.as_json, empty="Nothing fired in this time.")


def _answer(name: str, help_: str) -> None:
    @rules.command(name, help=help_)
    @click.argument("alert", type=int)
    @click.option("--reason", required=True)
    @ACTOR
    @common
    def command(run: Run, alert: int, reason: str, actor: str | None) -> None:
        with database(run.settings) as engine, transaction(engine) as connection:
            found = control.answer_alert(connection, alert, name, actor_of(actor), reason, utc_now())
        print_rows(
            [{"alert": found.id, "rule": found.rule, "scope": found.scope, "said": found.person_said}], as_json=run.as_json
        )


_answer("ack", "Say that an alert is a real incident and somebody is at it.")
_answer("ignore", "Say that an alert is usual: its time belongs to the baseline.")

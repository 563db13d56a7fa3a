"""``tokenfuse tenants``: who is charged, by which rules, and what gateways call their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from cli.commands.budget import ACTOR, actor_of
from cli.options import Run, common, parse_time, window_options
from cli.output import print_json, print_rows, say
from cli.rules_file import read_object, read_rules_file
from cli.wiring import database, utc_now
from control.identity_preview import Preview, explain, preview, publish_rules, shown_path
from control.identity_tenants import tenant_rows
from core.errors import BadInput
from core.identity import Resolved, RuleSet, RuleVersion, in_force
from core.identity_codec import conditions_text, encode_rules
from core.identity_guard import client_conditions
from core.identity_moves import TOKEN_KINDS, Sum
from core.windows import Window
from ingest.identity.litellm import SOURCE, read_api, read_tables
from models.audit_repo import append_audit
from models.database import transaction
from models.identity_repo import put_aliases, rule_versions

FILE = click.Path(path_type=Path, dir_okay=False)
BASIS = click.option("--basis", type=click.Choice(["allocation", "usage"]), default="allocation", show_default=True)


@click.group()
def tenants() -> None:
    """Tenants, the ordered rules that say whom a request is charged to, and what gateways call their keys."""


@tenants.command("list")
@click.option("--by", default="org,team,project", show_default=True, help="of org,team,project,user,key_id,service_tier")
@BASIS
@window_options(timedelta(days=30))
@common
def list_command(run: Run, window: Window, by: str, basis: Any) -> None:
    """Tenants with last use, requests and cost (UTC days; the default is 30)."""
    keys = [key.strip() for key in by.split(",") if key.strip()]
    with database(run.settings) as engine, transaction(engine) as connection:
        found = tenant_rows(connection, keys, window, basis)
    if run.as_json:
        print_json(found)
        return
    rows = [
        {**{key: row[key] for key in (*keys, "name", "requests", "last_seen")}, "cost": _costs(row["costs"])} for row in found
    ]
    print_rows(rows, as_json=False, empty="No tenant finished a request in these days.")


@tenants.group("import")
def import_group() -> None:
    """Read what a gateway calls its keys, teams and users."""


@import_group.command("litellm")
@click.option("--url", help="the LiteLLM proxy (default: litellm_url of the settings)")
@click.option("--from-db", "from_db", is_flag=True, help="read LiteLLM's tables (litellm_db_url, read-only) instead of its API")
@ACTOR
@common
def import_litellm(run: Run, url: str | None, from_db: bool, actor: str | None) -> None:
    """Take over LiteLLM's names of keys (by hash), teams and users; renames keep the old name with its dates."""
    found = _litellm_tables(run) if from_db else _litellm_api(run, url)
    now = utc_now()
    with database(run.settings) as engine, transaction(engine) as connection:
        changes = put_aliases(connection, SOURCE, found, now)
        if changes.new or changes.changed:
            detail = {"new": changes.new, "changed": changes.changed}
            append_audit(connection, now, actor_of(actor), "identity.import", f"names:{SOURCE}", detail)
    row = {"source": SOURCE, "read": len(found), "new": changes.new, "changed": changes.changed, "unchanged": changes.same}
    print_rows([row], as_json=run.as_json)


def _litellm_api(run: Run, url: str | None) -> list[Any]:
    settings = run.settings
    for name, value in (("litellm_url", url or settings.litellm_url), ("litellm_key", settings.litellm_key)):
        if not value:
            hint = "set it, pass --url, or read the tables with --from-db"
            raise BadInput("is not set", where="settings", field=name, hint=hint)
    assert settings.litellm_key is not None
    return read_api(url or settings.litellm_url, settings.litellm_key.get_secret_value())


def _litellm_tables(run: Run) -> list[Any]:
    if run.settings.litellm_db_url is None:
        hint = "give LiteLLM's own database, a read-only user is enough"
        raise BadInput("is not set", where="settings", field="litellm_db_url", hint=hint)
    return read_tables(run.settings.litellm_db_url.get_secret_value())


@tenants.group()
def rules() -> None:
    """The identity rules: show them, publish a new version."""


@rules.command()
@click.option("--version", type=click.IntRange(min=1), help="default: the newest")
@click.option("--history", is_flag=True, help="list the versions instead")
@common
def show(run: Run, version: int | None, history: bool) -> None:
    """The newest rule set, or another version of it."""
    with database(run.settings) as engine, transaction(engine) as connection:
        versions = rule_versions(connection)
    if history:
        current = in_force(versions, utc_now())
        rows = [_version_row(found, current) for found in reversed(versions)]
        print_rows(rows, as_json=run.as_json, empty="No rules were published: sources are taken at their word.")
        return
    chosen = [found for found in versions if version in (None, found.version)]
    if not chosen:
        if version is not None:
            raise BadInput(
                "there is no such version", field="--version", value=version, hint="see `tenants rules show --history`"
            )
        print_rows([], as_json=run.as_json, empty="No rules were published: sources are taken at their word.")
        return
    if run.as_json:
        print_json({**_version_row(chosen[-1], in_force(versions, utc_now())), "rules": encode_rules(chosen[-1].rules)})
        return
    _show_set(chosen[-1])


def _version_row(version: RuleVersion, current: RuleVersion | None) -> dict[str, Any]:
    return {
        "version": version.version, "valid_from": version.valid_from, "author": version.author, "reason": version.reason,
        "rule_count": len(version.rules.rules), "in_force": version == current,
    }  # fmt: skip


def _show_set(version: RuleVersion) -> None:
    found = version.rules
    rows = [
        {
            "order": place,
            "rule": rule.name,
            "when": conditions_text(rule.when),
            "set": ", ".join(f"{part} = {text}" for part, text in rule.sets),
            "then": "stop" if rule.stops else "continue",
        }
        for place, rule in enumerate(found.rules, 1)
    ]
    title = f"Version {version.version}, from {version.valid_from:%Y-%m-%d %H:%MZ} on: {version.reason} ({version.author})"
    print_rows(rows, as_json=False, title=title, empty=f"{title}\nNo rule.")
    start = "what the source said" if found.keeps_said else "nothing"
    default = ", ".join(f"{part} = {text}" for part, text in found.default) or "nothing"
    say(f"Starts from {start}; what is empty at the end: {default}.")
    if found.gateway_sets:
        say(f"Set by the gateway: {', '.join(found.gateway_sets)}.")
    for words in client_conditions(found.rules, found.gateway_sets):
        say(f"Guards judge this without what the client wrote: {words}")


@rules.command("set")
@click.argument("file", type=FILE)
@click.option("--reason", required=True, help="why, for the version history")
@click.option("--from", "from_", metavar="TIME", help="in force from (default: the next whole minute all processes can know)")
@click.option("--expect", type=click.IntRange(min=0), help="the version your change was made on; refused if there is a newer one")
@click.option("--restate", is_flag=True, help="ask for the past to be restated (refused in this version)")
@ACTOR
@common
def set_command(
    run: Run, file: Path, reason: str, from_: str | None, expect: int | None, restate: bool, actor: str | None
) -> None:
    """Publish the rules of a YAML or JSON file as the next version. Records that finished before stay as they are."""
    wanted = read_rules_file(file)
    with database(run.settings) as engine, transaction(engine) as connection:
        made, changed = publish_rules(
            connection, wanted, actor_of(actor), reason, utc_now(), valid_from=parse_time(from_, "--from") if from_ else None,
            expected_version=expect, restate=restate, data_dir=run.settings.data_dir,
        )  # fmt: skip
    row = {"version": made.version, "valid_from": made.valid_from, "rules": len(made.rules.rules), "changed": changed}
    print_rows([row], as_json=run.as_json)


@tenants.command("preview")
@click.option("--rules", "file", type=FILE, required=True, help="YAML or JSON, as for `rules set`")
@BASIS
@window_options(timedelta(days=7))
@common
def preview_command(run: Run, window: Window, file: Path, basis: Any) -> None:
    """What these rules would move in the archive: requests, tokens and cost from tenant to tenant. Nothing is changed."""
    wanted = read_rules_file(file)
    with database(run.settings) as engine, transaction(engine) as connection:
        found = preview(connection, run.settings.data_dir, wanted, window, basis)
    if run.as_json:
        print_json(_preview_json(found))
        return
    rows = [
        {
            "from": "(more)" if m.is_rest else shown_path(m.source),
            "to": "" if m.is_rest else shown_path(m.target),
            **_work(m.work),
        }
        for m in found.moves
    ]
    rows += [{"from": name, "to": "", **_work(getattr(found, name))} for name in ("moved", "kept", "total", "unmatched")]
    title = f"{found.window.start:%Y-%m-%d %H:%MZ} to {found.window.end:%Y-%m-%d %H:%MZ}, {found.basis} basis"
    print_rows(rows, as_json=False, title=title)
    for name, requests in found.by_rule.items():
        say(f"rule {name}: {requests:,} requests")
    if found.cost_reason:
        say(f"No cost is shown: {found.cost_reason}.")
    if found.uncounted_cost:
        say(f"Ledger cost whose requests are not in the archive: {_costs(found.uncounted_cost)}.")


def _preview_json(found: Preview) -> dict[str, Any]:
    moves = [{"from": list(m.source), "to": list(m.target), **_work_json(m.work)} for m in found.moves]
    return {
        "from": found.window.start, "to": found.window.end, "basis": found.basis,
        **{name: _work_json(getattr(found, name)) for name in ("total", "moved", "kept", "unmatched")},
        "moves": moves, "by_rule": dict(found.by_rule), "cost_reason": found.cost_reason,
        "uncounted_costs": dict(found.uncounted_cost),
    }  # fmt: skip


def _work(work: Sum) -> dict[str, Any]:
    return {"requests": work.requests, **{kind: work.tokens[kind] for kind in TOKEN_KINDS}, "cost": _costs(work.cost)}


def _work_json(work: Sum) -> dict[str, Any]:
    return {"requests": work.requests, **{kind: work.tokens[kind] for kind in TOKEN_KINDS}, "costs": dict(work.cost)}


def _costs(costs: Mapping[str, Any]) -> str:
    return ", ".join(f"{amount:.2f} {currency}" for currency, amount in sorted(costs.items())) or "unknown"


@tenants.command("test")
@click.option("--rules", "file", type=FILE, help="YAML or JSON (default: the rules in force now)")
@click.option("--record", type=FILE, required=True, help="one usage/1 record, or a JSON list of them")
@common
def test_command(run: Run, file: Path | None, record: Path) -> None:
    """Which rules apply to a record, and why the others do not."""
    wanted = read_rules_file(file) if file else None
    body = read_object(record)
    records: Sequence[Any] = body if isinstance(body, list) else [body]
    for place, one in enumerate(records):
        if not isinstance(one, dict):
            raise BadInput("is not a usage record", where=record.name, field=f"[{place}]", hint="give a JSON object")
    with database(run.settings) as engine, transaction(engine) as connection:
        if wanted is None:
            current = in_force(rule_versions(connection), utc_now())
            wanted = current.rules if current else RuleSet(default=())
        found = [explain(connection, wanted, one, utc_now()) for one in records]
    if run.as_json:
        print_json([_explained(one) for one in found])
        return
    for one in found:
        rows = [{"rule": step.rule, "outcome": step.outcome, "why": step.why} for step in one.steps]
        print_rows(rows, as_json=False, empty="No rule.")
        t = one.tenant
        by_default = f" (by default: {', '.join(one.by_default)})" if one.by_default else ""
        say(f"charged to {shown_path((t.org, t.team, t.project, t.user, one.service_tier))}{by_default}")


def _explained(found: Resolved) -> dict[str, Any]:
    t = found.tenant
    return {
        "org": t.org, "team": t.team, "project": t.project, "user": t.user, "key_id": t.key_id,
        "service_tier": found.service_tier, "matched": list(found.matched), "by_default": list(found.by_default),
        "steps": [{"rule": step.rule, "outcome": step.outcome, "why": step.why} for step in found.steps],
    }  # fmt: skip

"""Identity rules: try a set on the archive, explain it on one record, publish it from a time on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from core.errors import BadInput, Conflict, Refused
from core.identity import PATH_PARTS, Resolved, RuleSet, RuleVersion
from core.identity_codec import digest_of, record_facts
from core.identity_guard import check_size, section
from core.identity_match import Matcher
from core.identity_moves import Charged, LineOf, Moves, Sum
from core.identity_state import IdentityState, Names, judge_of, named
from core.money import ZERO
from core.unit_cost import CostBasis
from core.usage import Deployment, TenantPath
from core.windows import QUARTER_HOUR, Window, epoch_ms, floor_time
from eventlog.archive_identity import identity_groups
from eventlog.archive_manifest import files_of
from eventlog.manifest import epochs, segments
from models.audit_repo import append_audit
from models.guard_repo import list_guards
from models.identity_repo import has_usage_since, key_names, lock_rules, put_rules, rule_versions
from models.ledger_repo import ledger_rows

LEAD = timedelta(seconds=30)
"""Every process that takes usage in reads the rules anew within this time (see ``ingest.usage.refreshed.REFRESH_S``)."""
MAX_REASON = 500
MAX_AHEAD = timedelta(days=366)
LONGEST_PREVIEW = timedelta(days=100)
MAX_MOVES = 1000
_LINE_KEYS = (
    "cluster",
    "namespace",
    "model_id",
    "org",
    "team",
    "project",
    "user",
    "key_id",
    "service_tier",
    "kind",
    "token_kind",
)


@dataclass(frozen=True, slots=True)
class Move:
    """Work that would go from one charge to another: (org, team, project, user, service tier) each. ``is_rest`` sums what the
    list has no room for."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    work: Sum
    is_rest: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """What ``rules`` would make of the archived requests of ``window``: total = moved + kept; ``moves`` add up to moved.

    ``unmatched`` is what no rule applies to (in moved or kept). ``cost_reason`` says why costs are missing; ``uncounted_cost`` is
    the cost of ledger lines whose requests are not in the archive, by currency. ``by_rule`` counts requests, a rule that applied
    to none too.
    """

    window: Window
    basis: CostBasis
    total: Sum
    moved: Sum
    kept: Sum
    unmatched: Sum
    moves: tuple[Move, ...]
    by_rule: Mapping[str, int]
    cost_reason: str = ""
    uncounted_cost: Mapping[str, Decimal] = field(default_factory=dict)


def preview(connection: Connection, data_dir: Path, rules: RuleSet, window: Window, basis: CostBasis = "allocation") -> Preview:
    """Try a set on the requests that finished in ``window`` (cut to whole quarter hours) and are in the archive.

    What the sources said is judged anew, whatever rules were in force then. Raises BadInput for a set not in order or a window
    that is too long.
    """
    window = Window(floor_time(window.start, QUARTER_HOUR), floor_time(window.end, QUARTER_HOUR))
    if window.duration > LONGEST_PREVIEW:
        raise BadInput(f"a preview spans at most {LONGEST_PREVIEW.days} days", field="from", value=window.start.isoformat())
    names = key_names(connection)
    moves = collect(data_dir, rules, names, window)
    lines = _lines(connection, window, basis)
    left = moves.price(lines)
    return _summed(moves, window, basis, left, rules, "" if lines else "no quarter hour of it is closed and priced")


def collect(data_dir: Path, rules: RuleSet, names: Mapping[str, Names], window: Window) -> Moves:
    """The archived work of ``window`` under its present charge and under that of ``rules``."""
    judge = judge_of(rules, names, window.start)
    moves = Moves()
    with_model = "requested_model" in judge.fields
    for group in identity_groups(data_dir, window, judge.starts, with_model=with_model):
        facts = record_facts(group.record)
        found = judge.resolve(facts, group.period)
        work = Sum(group.requests)
        work.tokens.update(input=group.input, input_cached=group.input_cached, output=group.output)
        old = Charged(TenantPath(**group.record["tenant"]), group.record["service_tier"])
        moves.add(facts.deployment, old, found or Resolved(facts.said, facts.service_tier), group.status, work)
    return moves


def _lines(connection: Connection, window: Window, basis: CostBasis) -> dict[LineOf, dict[str, Decimal]]:
    column = "allocated" if basis == "allocation" else "cost"
    found: dict[LineOf, dict[str, Decimal]] = defaultdict(dict)
    for row in ledger_rows(connection, _LINE_KEYS, window):
        if row["kind"] in ("served", "wasted"):
            tenant = TenantPath(row["org"], row["team"], row["project"], row["user"], row["key_id"])
            line = LineOf(
                Deployment(row["cluster"], row["namespace"], row["model_id"]),
                Charged(tenant, row["service_tier"]),
                row["kind"],
                row["token_kind"],
            )
            found[line][row["currency"]] = row[column]
    return found


def _summed(
    moves: Moves, window: Window, basis: CostBasis, left: Mapping[str, Decimal], rules: RuleSet, cost_reason: str
) -> Preview:
    total, moved, kept = Sum(), Sum(), Sum()
    listed: list[Move] = []
    for (source, target), work in moves.pairs().items():
        total.add(work)
        (kept if source == target else moved).add(work)
        if source != target:
            listed.append(Move(source, target, work))
    listed.sort(key=lambda move: (-sum(move.work.cost.values(), ZERO), -move.work.tokens.total(), move.source, move.target))
    if len(listed) > MAX_MOVES:
        rest = Sum()
        for move in listed[MAX_MOVES:]:
            rest.add(move.work)
        listed = [*listed[:MAX_MOVES], Move((), (), rest, is_rest=True)]
    by_rule = {rule.name: moves.by_rule[rule.name] for rule in rules.rules}
    return Preview(window, basis, total, moved, kept, moves.unmatched, tuple(listed), by_rule, cost_reason, left)


def explain(connection: Connection, rules: RuleSet, record: Mapping[str, Any], at: datetime) -> Resolved:
    """Which rules apply to one record (``usage/1`` as JSON values) and why the others do not. Raises BadInput for a wrong set."""
    facts = named(record_facts(record), key_names(connection), epoch_ms(at))
    return Matcher(rules).resolve(facts, explain=True)


def publish_rules(
    connection: Connection,
    rules: RuleSet,
    author: str,
    reason: str,
    now: datetime,
    *,
    valid_from: datetime | None = None,
    expected_version: int | None = None,
    restate: bool = False,
    data_dir: Path | None = None,
) -> tuple[RuleVersion, bool]:
    """Publish a set from ``valid_from`` on (left out: the next whole minute that all processes can know); returns the version and
    whether it is new: the newest set again changes nothing.

    A time that has passed is taken only where no usage since then was taken in yet (``data_dir`` is looked at): a new
    installation may have its rules before it reads its history. Raises BadInput for a set not in order, Conflict when
    ``expected_version`` is not the newest, Refused for a time that has passed otherwise (records would stand under other rules
    than those in force when they finished) and for rules too large for the guards' document.
    """
    Matcher(rules)
    if not reason.strip() or len(reason) > MAX_REASON or not reason.isprintable():
        raise BadInput(f"say why, in 1 to {MAX_REASON} printable characters", field="reason", value=reason[:80])
    newest = lock_rules(connection)
    if expected_version is not None and expected_version != newest:
        raise Conflict(f"version {newest} was published meanwhile", hint="read it, carry your change over and send again")
    versions = rule_versions(connection)
    if versions and versions[-1].digest == digest_of(rules) and valid_from is None:
        return versions[-1], False
    is_clean = valid_from is not None and data_dir is not None and _nothing_since(connection, data_dir, valid_from)
    since = _starts(valid_from, now, restate, is_clean=is_clean)
    coming = RuleVersion(newest + 1, since, author, reason, now, rules)
    told = section(IdentityState("", (*versions, coming), key_names(connection)), now)
    check_size(told, len(list_guards(connection)))
    made = put_rules(connection, newest + 1, rules, since, author, reason.strip(), now)
    detail = {"version": made.version, "valid_from": since.isoformat(), "reason": made.reason, "digest": made.digest}
    append_audit(connection, now, author, "identity.publish", f"identity-rules:{made.version}", detail)
    return made, True


def _nothing_since(connection: Connection, data_dir: Path, since: datetime) -> bool:
    """Whether no usage from ``since`` on is counted, in the archive, or still in the log."""
    log = data_dir / "log"
    waiting = any(segments(log, "usage", epoch) for epoch in epochs(log, "usage"))
    return not waiting and not files_of(data_dir, "usage", since.date()) and not has_usage_since(connection, since)


def _starts(valid_from: datetime | None, now: datetime, restate: bool, *, is_clean: bool) -> datetime:
    minute = timedelta(minutes=1)
    first = floor_time(now + LEAD + minute - timedelta(microseconds=1), minute)
    if valid_from is None:
        return first
    if valid_from > now + MAX_AHEAD:
        raise BadInput("is more than a year ahead", field="valid_from", value=valid_from.isoformat())
    if valid_from >= now + LEAD or is_clean:
        return valid_from
    if restate:
        raise Refused(
            "this version of Tokenfuse does not restate records already taken in",
            hint="the preview shows what would move; leave valid_from and restate out to publish from now on",
        )
    raise Refused(
        f"valid_from must be at least {LEAD.total_seconds():.0f} s ahead: history is not rewritten silently",
        hint=f"leave it out (then {first.isoformat()}), or look at the preview to see what the past would move",
    )


def shown_path(parts: tuple[str, ...]) -> str:
    """``acme/search/-/ann P1``: the parts of a charge with a dash for an empty one in between."""
    *path, tier = parts
    while path and not path[-1]:
        path.pop()
    return f"{'/'.join(part or '-' for part in path) or '(nobody)'} {tier}"


PARTS = (*PATH_PARTS, "service_tier")

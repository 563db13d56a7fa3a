"""Burn-rate alerts: every budget's windows measured together, an incident opened, raised and ended, told once an episode.

The open incident is the state, so the loop may die at any point: what was told is written with it, in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from sqlalchemy import Connection, Engine

from control.budget_standing import in_currency, kept_standings
from control.incidents import note
from control.running_cost import SpendAsk, spend_many
from core.breaker_values import SYSTEM_ACTOR
from core.budget_forecast import over_plan
from core.burn import LEAST_EXCESS, RULES, BurnReading, BurnVerdict, burn_window, judge_burn, lengths, read_burn
from core.incident import SEVERITIES, Change, Incident, Severity
from core.policy import rfc3339
from core.ports import Effect
from models.budget_outlook_repo import read_outlooks
from models.burn_repo import CAUSE, open_burns
from models.database import transaction
from models.decide_repo import StoredBudget, list_budgets
from models.outbox_repo import enqueue
from models.quality_repo import usage_catching_up


def watch_burns(engine: Engine, now: datetime, least: Decimal = LEAST_EXCESS) -> list[Incident]:
    """Judge every budget in force; returns the incidents that changed. An incident whose budget is gone ends.
    ``least``: a long window that little above its plan alerts nobody."""
    with transaction(engine) as connection:
        budgets = list_budgets(connection)
        opened, catching_up = open_burns(connection), usage_catching_up(connection, now)
        if not budgets and not opened:
            return []
        verdicts: dict[tuple[str, str], tuple[StoredBudget | None, BurnVerdict]] = {
            key: (None, BurnVerdict("clear", "the budget is no longer in force")) for key in opened
        }
        outlooks = read_outlooks(connection, [stored.id for stored in budgets])
        for stored, readings in zip(budgets, measure_burns(connection, budgets, now), strict=True):
            key = (str(stored.budget.scope), CAUSE + stored.budget.period)
            over = over_plan(outlooks[stored.id].forecast, stored.budget, least) if stored.id in outlooks else ""
            verdicts[key] = stored, judge_burn(readings, key in opened, catching_up, over, least)
        changes = [_change(key, *verdict, opened.get(key), now) for key, verdict in sorted(verdicts.items(), key=lambda v: v[0])]
        return [kept for change in changes if change is not None and (kept := _tell(connection, change)) is not None]


def measure_burns(connection: Connection, budgets: Sequence[StoredBudget], now: datetime) -> list[list[BurnReading]]:
    """Per budget a reading of every rule, by a number of statements that does not grow with the budgets."""
    spans = lengths()
    asks = [
        SpendAsk(s.budget.scope, burn_window(span, now), s.budget.cost_basis, s.budget.amount.currency)
        for s in budgets
        for span in spans
    ]
    spends = iter(spend_many(connection, asks, now))
    kept = kept_standings(connection, budgets, now)
    outlooks = read_outlooks(connection, [stored.id for stored in budgets])
    found = []
    for stored in budgets:
        spent = {}
        for span in spans:
            one = next(spends)
            amount = in_currency(one, stored.budget)
            spent[span] = amount if amount is None or one.trueup is None else one.decision
        profile = outlooks[stored.id].learned.profile if stored.id in outlooks else None
        plan = kept[stored.id].plan if stored.id in kept else stored.budget
        found.append([read_burn(plan, rule, spent[rule.long], spent[rule.short], now, profile) for rule in RULES])
    return found


def _change(
    key: tuple[str, str], stored: StoredBudget | None, verdict: BurnVerdict, before: Severity | None, now: datetime
) -> Change | None:
    """None: nothing that people were not told in this episode."""
    if verdict.level == "hold" or (verdict.level == "clear" and before is None):
        return None
    if verdict.level == "firing" and before is not None and SEVERITIES.index(verdict.severity) <= SEVERITIES.index(before):
        return None
    return Change(
        scope=key[0], cause=key[1], firing=verdict.level == "firing", severity=verdict.severity, phase=verdict.rule or "on plan",
        at=now, actor=SYSTEM_ACTOR, reason=verdict.reason, at_risk=verdict.at_risk,
        owner=stored.budget.owner if stored is not None else "",
    )  # fmt: skip


def _tell(connection: Connection, change: Change) -> Incident | None:
    incident = note(connection, change)
    if incident is not None:
        payload = {
            "kind": "budget_burn", "scope": change.scope, "cause": change.cause, "incident": incident.id, "firing": change.firing,
            "severity": change.severity, "phase": change.phase, "reason": change.reason, "at": rfc3339(change.at),
        }  # fmt: skip
        enqueue(connection, Effect(f"budget_burn:{incident.id}:{incident.seq}", "notify", payload), change.at)
    return incident

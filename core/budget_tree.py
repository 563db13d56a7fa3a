"""Budgets as a tree: which budget stands under which, and what of a parent's amount no child has been given.

A tenant's budget stands under the nearest budget above it on its path with the same calendar (period, zone, fiscal start) and
currency; a deployment's under the platform's. Tenants and deployments are two views of the same money, so no tenant stands under
the platform; service tiers stand alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.budgets import Budget
from core.money import ZERO, Money, total
from core.scopes import Scope

Calendar = tuple[str, str, int, str]
"""Period, zone, fiscal start, currency: only budgets of one calendar can be compared."""


@dataclass(frozen=True, slots=True)
class Node:
    """One budget of the list given: ``place`` in it, its parent's and children's places, ``depth`` 0 at a root.

    ``assigned`` is the sum of the children's amounts, ``unassigned`` the rest of the own amount: below zero, children were
    promised more than there is. ``mixed``: a child is on another basis, so that its money is not part of the parent's."""

    place: int
    parent: int | None
    depth: int
    children: tuple[int, ...]
    assigned: Money
    unassigned: Money
    mixed: bool


def budget_tree(budgets: Sequence[Budget]) -> list[Node]:
    """Every budget once, each parent before its children; brothers by scope and period."""
    places = {(_calendar(budget), budget.scope): n for n, budget in enumerate(budgets)}
    parents = [_parent(budget, places) for budget in budgets]
    below: dict[int | None, list[int]] = {}
    for place in sorted(range(len(budgets)), key=lambda n: (budgets[n].scope, budgets[n].period)):
        below.setdefault(parents[place], []).append(place)
    found: list[Node] = []

    def visit(place: int, depth: int) -> None:
        children = tuple(below.get(place, ()))
        found.append(_node(budgets, place, parents[place], depth, children))
        for child in children:
            visit(child, depth + 1)

    for place in below.get(None, ()):
        visit(place, 0)
    return found


def _node(budgets: Sequence[Budget], place: int, parent: int | None, depth: int, children: tuple[int, ...]) -> Node:
    own = budgets[place]
    assigned = Money(total(budgets[n].amount.amount for n in children), own.amount.currency)
    mixed = any(budgets[n].cost_basis != own.cost_basis for n in children)
    return Node(place, parent, depth, children, assigned, own.amount - assigned, mixed)


def _parent(budget: Budget, places: Mapping[tuple[Calendar, Scope], int]) -> int | None:
    scope, calendar = budget.scope, _calendar(budget)
    above = [Scope("platform")] if scope.kind == "deployment" else []
    if scope.kind == "tenant":
        above = [Scope("tenant", scope.parts[:depth]) for depth in range(len(scope.parts) - 1, 0, -1)]
    return next((places[calendar, one] for one in above if (calendar, one) in places), None)


def _calendar(budget: Budget) -> Calendar:
    return budget.period, budget.zone, budget.fiscal_start, budget.amount.currency


def unbudgeted_spend(node: Node, spends: Sequence[Money | None]) -> Money | None:
    """What a parent's scope spent outside its children's: nobody's budget below it holds that. None without children, on another
    basis, or where one of the spends (by place) is not known."""
    own, parts = spends[node.place], [spends[n] for n in node.children]
    if not parts or node.mixed or own is None or any(part is None for part in parts):
        return None
    return Money(own.amount - total(part.amount if part else ZERO for part in parts), own.currency)

"""Many scopes in one statement: those that name the same key columns become one relation to join a table with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.scopes import Scope, ScopeKind
from models.scope_usage import DEPLOYMENT_COLUMNS, TENANT_COLUMNS

KEY_COLUMNS: dict[ScopeKind, tuple[str, ...]] = {
    "tenant": TENANT_COLUMNS, "deployment": DEPLOYMENT_COLUMNS, "service_tier": ("service_tier",), "platform": ()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AskedScopes:
    """Scopes of one kind and depth. ``relation`` is SQL for the FROM clause, named ``a``, with those columns given beside them
    and their keys (``asked_org`` …, so that they never clash in a join); ``columns`` are the key columns to compare; ``values``
    are its parameters."""

    kind: ScopeKind
    relation: str
    columns: tuple[str, ...]
    values: Mapping[str, Sequence[Any]]

    def holds(self, alias: str) -> str:
        """The condition that a row of table ``alias`` belongs to the scope of ``a``."""
        return " AND ".join(f"{alias}.{column} = a.asked_{column}" for column in self.columns) or "TRUE"


def asked_scopes(
    scopes: Sequence[Scope], beside: Mapping[str, tuple[str, Sequence[Any]]], prefix: str = "a"
) -> list[AskedScopes]:
    """The scopes as one relation per kind and depth. ``beside``: further columns as (SQL type, one value a scope); ``prefix``
    keeps the parameters of two calls in one statement apart."""
    places: dict[tuple[ScopeKind, int], list[int]] = {}
    for place, scope in enumerate(scopes):
        places.setdefault((scope.kind, len(scope.parts)), []).append(place)
    found: list[AskedScopes] = []
    for (kind, depth), chosen in sorted(places.items()):
        columns = KEY_COLUMNS[kind][:depth]
        given = {name: (sql, [values[n] for n in chosen]) for name, (sql, values) in beside.items()}
        given |= {f"asked_{column}": ("text", [scopes[n].parts[part] for n in chosen]) for part, column in enumerate(columns)}
        marked = {name: f"{prefix}_{kind}{depth}_{name}" for name in given}
        arrays = ", ".join(f"CAST(:{marked[name]} AS {sql}[])" for name, (sql, _) in given.items())
        relation = f"unnest({arrays}) AS a({', '.join(given)})"
        found.append(AskedScopes(kind, relation, columns, {marked[name]: values for name, (_, values) in given.items()}))
    return found

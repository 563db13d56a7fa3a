"""Which rollup answers a question: the one with the fewest keys that has those it names, cut at its edges into finer ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from core.windows import Window
from models.tables_narrow import DEPLOYMENT_KEYS, TEAM_KEYS
from models.tables_usage import USAGE_KEYS
from models.usage_pieces import Level, Piece, pieces

LEVELS: tuple[Level, ...] = ("minute", "hour", "day", "month")


@dataclass(frozen=True, slots=True)
class Family:
    """Rollups ``<prefix>_<level>`` of one set of keys, for each of ``levels``."""

    prefix: str
    keys: frozenset[str]
    levels: tuple[Level, ...]


USAGE: tuple[Family, ...] = (
    Family("usage_deployment", frozenset(DEPLOYMENT_KEYS), ("hour", "day")),
    Family("usage_team", frozenset(TEAM_KEYS), ("hour", "day", "month")),
    Family("usage", frozenset(USAGE_KEYS), LEVELS),
)
"""Narrowest first; the last has every key and level."""
ENGINE: tuple[Family, ...] = (
    Family("engine", frozenset(("cluster", "namespace", "model_id", "target", "engine", "node")), ("minute", "hour", "day")),
)


def rollup_rows(
    families: Sequence[Family], window: Window, coarsest: Level, named: Collection[str], select: Callable[[Level], str],
    where: str, values: dict[str, Any], side: str = "",
) -> str:  # fmt: skip
    """SQL of the unsummed rows of ``window``, so that PostgreSQL may read many of them with several workers: ``select`` of each
    piece's level from the rollups that have the key columns ``named`` (none coarser than ``coarsest``), and ``where``. Adds the
    pieces' bounds to ``values``, told apart by ``side`` where a statement asks twice. Raises BadInput when an edge is no whole
    minute."""
    narrow = next(family for family in families if family.keys >= set(named))
    levels = [level for level in narrow.levels if LEVELS.index(level) <= LEVELS.index(coarsest)]
    cut = pieces(window, levels[-1] if levels else coarsest)
    return " UNION ALL ".join(
        _piece(f"{side}{n}", piece, _table(families, narrow, piece), select, where, values) for n, piece in enumerate(cut)
    )


def _table(families: Sequence[Family], narrow: Family, piece: Piece) -> str:
    return f"{(narrow if piece.level in narrow.levels else families[-1]).prefix}_{piece.level}"


def _piece(number: str, piece: Piece, table: str, select: Callable[[Level], str], where: str, values: dict[str, Any]) -> str:
    values |= {f"start{number}": piece.start, f"end{number}": piece.end}
    time = piece.level
    return f"SELECT {select(time)} FROM {table} WHERE {time} >= :start{number} AND {time} < :end{number}{where}"

"""What the Heat map page shows, computed from the API's answer alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from core.heat_map import doubling_label
from ui.view_models.figures import UNKNOWN, count, percent, rounded, stamp
from ui.view_models.overview import Card
from ui.view_models.tables import Cell, Column, Table, table

KINDS: Mapping[str, str] = {"input": "Input length", "output": "Output length"}
AXES: Mapping[str, str] = {"hour_of_day": "Hour of the day", "hour": "Hour by hour", "day": "Day by day"}
MEASURES: Mapping[str, str] = {"requests": "Requests", "tokens": "Tokens"}
SPREAD_MARK = Decimal(4)
"""The field's mark: from here on lengths are so unlike that short requests wait for long ones."""

Answer = Mapping[str, Any]


def heat_points(answer: Answer, measure: str) -> list[dict[str, Any]]:
    """One chart point per cell; ``share`` is of all the requests or tokens of the answer."""
    whole = Decimal(answer["whole"][measure] or 1)
    return [
        {
            "place": place_words(cell["at"]),
            "label": cell["label"],
            "low": cell["low_tokens"],
            "value": cell[measure],
            "requests": f"{cell['requests']:,}",
            "tokens": f"{cell['tokens']:,}",
            "share": percent(str(Decimal(cell[measure]) / whole)),
        }
        for cell in answer["cells"]
    ]


def place_words(at: int | str) -> str:
    """``09:00``, a day, or a UTC instant."""
    if isinstance(at, int):
        return f"{at:02d}:00"
    return at if len(at) == len("2026-11-30") else datetime.fromisoformat(at).strftime("%m-%d %H:00")


def ordered_labels(answer: Answer) -> list[str]:
    """Longest first, so that length grows upwards; every length between the shortest and the longest has a row, 0 below them."""
    lows = {cell["low_tokens"] for cell in answer["cells"]}
    lengths = [low.bit_length() - 1 for low in lows if low]
    numbers = list(range(max(lengths), min(lengths) - 1, -1)) if lengths else []
    return [doubling_label(number) for number in [*numbers, *([-1] if 0 in lows else [])]]


def ordered_places(answer: Answer, axis: str) -> list[str]:
    """Every hour of the day; else the places there are, in order."""
    return [place_words(at) for at in (range(24) if axis == "hour_of_day" else [row["at"] for row in answer["lengths"]])]


def heat_cards(answer: Answer, kind: str) -> list[Card]:
    whole, word = answer["whole"], kind
    return [
        Card("Requests", count(whole["requests"]), "with counts; those without have no length"),
        Card("Tokens", count(whole["tokens"]), f"{word} tokens of these requests"),
        Card("Median length", _tokens(whole["p50"]), "P50: half the requests are shorter"),
        Card("Long end", _tokens(whole["p90"]), "P90: one request in ten is longer"),
        Card("Spread", spread_words(whole["spread"]), _spread_note(whole), help=SPREAD_HELP),
    ]


SPREAD_HELP = "P90 / P50. From 4 : 1 on, long prompts hold up short ones in the same batch: a pool of their own pays."


def spread_words(spread: float | None) -> str:
    return UNKNOWN if spread is None else f"{rounded(Decimal(str(spread)), 1):,f} : 1"


def _spread_note(whole: Answer) -> str:
    if whole["spread"] is None:
        return "the median is 0" if whole["requests"] else "no request with counts"
    wide = Decimal(str(whole["spread"])) >= SPREAD_MARK
    return "P90 : P50, wide: consider a pool for long requests" if wide else "P90 : P50, below the field's mark of 4 : 1"


def _tokens(length: float | None) -> str:
    return UNKNOWN if length is None else count(round(length))


def length_table(rows: Sequence[Answer], axis: str) -> Table:
    """Spread per hour or day; the widest is what to look at."""
    cells: list[tuple[Column, Sequence[Cell]]] = [
        (
            Column(AXES[axis] if axis == "hour_of_day" else "From, UTC" if axis == "hour" else "Day"),
            [_at(row["at"]) for row in rows],
        ),
        (Column("Requests", "count"), [row["requests"] for row in rows]),
        (Column("Tokens", "count"), [row["tokens"] for row in rows]),
        (Column("P50, tokens", "count", help="Right to 19 %"), [_whole(row["p50"]) for row in rows]),
        (Column("P90, tokens", "count", help="Right to 19 %"), [_whole(row["p90"]) for row in rows]),
        (Column("P90 / P50", "number", 1), [_ratio(row["spread"]) for row in rows]),
    ]
    return table(cells)


def _at(at: int | str) -> str:
    return place_words(at) if isinstance(at, int) or len(at) == len("2026-11-30") else stamp(at)


def _whole(length: float | None) -> int | None:
    return None if length is None else round(length)


def _ratio(value: float | None) -> Decimal | None:
    return None if value is None else rounded(Decimal(str(value)), 1)

"""The fleet checks as a table: what fails first, then what is not known, then what is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.view_models.figures import stamp
from ui.view_models.tables import Column, Table, table

WORDS: Mapping[str, str] = {"fail": "Fail", "unknown": "Unknown", "pass": "Pass"}
"""In the order they are shown."""
Row = Mapping[str, Any]


def checks_line(answer: Row) -> str:
    """One sentence over the table."""
    if answer["checked_at"] is None:
        return "No engine or gateway was checked yet: the first round follows the start, then one every hour."
    counts = ", ".join(f"{answer['counts'][verdict]} {word.lower()}" for verdict, word in WORDS.items())
    return f"{counts}; checked {stamp(answer['checked_at'])} UTC. `tokenfuse doctor fleet` checks now."


def checks_table(rows: Sequence[Row]) -> Table:
    """Every check that is not passed, with its fix; passed ones last."""
    order = list(WORDS)
    chosen = sorted(rows, key=lambda row: order.index(row["verdict"]))
    return table(
        [
            (Column("Engine or gateway"), [row["subject"] for row in chosen]),
            (Column("Verdict"), [WORDS[row["verdict"]] for row in chosen]),
            (Column("Check"), [row["what"] or row["check"] for row in chosen]),
            (Column("Found"), [row["seen"] for row in chosen]),
            (Column("Reason"), [row["reason"] for row in chosen]),
            (Column("Why it costs money"), [row["why"] for row in chosen]),
            (Column("Fix"), [row["fix"] for row in chosen]),
            (Column("Read from"), [row["where"] for row in chosen]),
        ]
    )

"""What the Data quality page shows, computed from the API's answers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ui.view_models.figures import UNKNOWN, count, money, percent, stamp
from ui.view_models.overview import Card
from ui.view_models.tables import Cell, Column, Table, numbers, table

REASONS: Mapping[str, str] = {
    "parallel_answers": "Several answers asked for (n > 1)",
    "prefill_decode_split": "Prefill and decode on two engines",
    "timing_edge": "Requests across the range's ends",
    "unfinished": "Requests that did not finish",
    "engine_unseen": "Time without an engine page",
    "engine_reset": "Engine restarts",
    "estimated_stream": "Counts the gateway estimated",
    "missing_usage": "Requests without counts",
    "estimated_or_missing": "Estimated or without counts",
    "unattributed": "Unattributed: bypass or unknown",
    "over_explained": "Gateway books more, not explained",
    "scrape_gap": "Pages too far apart",
    "no_engine_samples": "No engine page was read",
}
Row = Mapping[str, Any]
SIGN = "Positive: the engines did more than the gateway books"


def quality_cards(answer: Row, coverage: Sequence[Row]) -> list[Card]:
    """The headline numbers; the worst coverage is the one to look at."""
    standing = answer["standing"]
    refused = sum(row["records"] for row in answer["quarantined"])
    differ = len(standing["differences"])
    compared = "not yet compared" if not standing["checked_at"] else f"{standing['days']} days compared"
    return [
        _coverage_card(coverage),
        _money_card(answer["money"]),
        Card("Records not taken", count(refused), "refused with their reason, kept aside"),
        Card(
            "Rollups against the archive",
            f"{differ} day{'s' * (differ > 1)} differ{'s' * (differ == 1)}"
            if differ
            else "agree"
            if standing["checked_at"]
            else UNKNOWN,
            f"{compared}; newest {stamp(standing['checked_at'])} UTC" if standing["checked_at"] else compared,
        ),
    ]


def _coverage_card(rows: Sequence[Row]) -> Card:
    known = [row for row in rows if row["coverage"] is not None]
    if not known:
        return Card("Lowest coverage", UNKNOWN, "no engine page was read")
    worst = min(known, key=lambda row: row["coverage"])
    return Card("Lowest coverage", percent(worst["coverage"]), f"{worst['deployment']}: engine tokens that usage records explain")


def _money_card(totals: Sequence[Row]) -> Card:
    if not totals:
        return Card("Money resting on faults", UNKNOWN, "no closed, priced quarter hour is touched")
    shown = " + ".join(money(row["total"], row["currency"]) for row in totals)
    return Card("Money resting on faults", shown, "each cent once, closed quarter hours")


def overlap_words(totals: Sequence[Row]) -> list[str]:
    """How the kinds' money and the total fit."""
    return [
        f"By kind {money(row['by_kind'], row['currency'])}, of which {money(row['counted_twice'], row['currency'])} rests on "
        f"several kinds at once: together {money(row['total'], row['currency'])}."
        for row in totals
    ]


def kind_table(kinds: Sequence[Row]) -> Table:
    """One row per kind, dearest first; a column of money per currency."""
    currencies = sorted({part["currency"] for row in kinds for part in row["money"]})
    columns: list[tuple[Column, Sequence[Cell]]] = [
        (Column("What"), [row["title"] for row in kinds]),
        (Column("Count", "count"), [row["count"] for row in kinds]),
        (Column("Of"), [row["counts"] for row in kinds]),
    ]
    columns += [numbers(f"Money, {currency}", [_amount(row, currency) for row in kinds]) for currency in currencies]
    return table([
        *columns,
        (Column("What to do"), [row["what_to_do"].replace("`", "") for row in kinds]),
        (Column("Last, UTC"), [stamp(row["last"]) for row in kinds]),
        (Column("First, UTC"), [stamp(row["first"]) for row in kinds]),
        (Column("Where"), [", ".join(f"{p['place']} ({p['count']:,})" for p in row["places"]) for row in kinds]),
        (Column("What the money is"), [row["money_is"] for row in kinds]),
    ])  # fmt: skip


def _amount(row: Row, currency: str) -> str | None:
    return next((part["amount"] for part in row["money"] if part["currency"] == currency), None)


def coverage_table(rows: Sequence[Row]) -> Table:
    """Engine view against gateway view, one row per deployment, least covered first."""
    ordered = sorted(rows, key=lambda row: (row["coverage"] is None, row["coverage"] or 0))
    counts = {
        "Engine prompt": "engine_prompt_tokens", "Gateway input": "gateway_input_tokens", "Difference in": "difference_in",
        "Engine generated": "engine_generation_tokens", "Gateway output": "gateway_output_tokens",
        "Difference out": "difference_out",
    }  # fmt: skip
    return table([
        (Column("Deployment"), [row["deployment"] for row in ordered]),
        (Column("Coverage", "share"), [None if row["coverage"] is None else percent(row["coverage"]) for row in ordered]),
        *((Column(title, "count"), [row[name] for row in ordered]) for title, name in counts.items()),
    ])  # fmt: skip


def reason_table(rows: Sequence[Row]) -> Table:
    """Why they differ; the amounts of a deployment add up to its difference exactly."""
    pairs = [(row["deployment"], reason) for row in rows for reason in row["reasons"]]
    return table([
        (Column("Reason"), [REASONS.get(r["name"], r["name"]) for _, r in pairs]),
        (Column("Deployment"), [deployment for deployment, _ in pairs]),
        (Column("Input tokens", "count", help=SIGN), [r["tokens_in"] for _, r in pairs]),
        (Column("Output tokens", "count"), [r["tokens_out"] for _, r in pairs]),
        (Column("Requests", "count"), [r["requests"] for _, r in pairs]),
        (Column("How it is known"), [_known(r) for _, r in pairs]),
    ])  # fmt: skip


def _known(reason: Row) -> str:
    extra = [f"{reason['count']:,} times"] if reason.get("count") else []
    extra += [f"{reason['seconds']:,.0f} s"] if reason.get("seconds") else []
    return "; ".join([*extra, reason["known"]])


def refused_table(rows: Sequence[Row]) -> Table:
    return table([
        (Column("Reason"), [row["reason"] for row in rows]),
        (Column("Field"), [row["field"] for row in rows]),
        (Column("Records", "count"), [row["records"] for row in rows]),
        (Column("Last, UTC"), [stamp(row["last_at"]) for row in rows]),
    ])  # fmt: skip


def fault_table(rows: Sequence[Row]) -> Table:
    return table([
        (Column("From, UTC"), [stamp(row["window_start"]) for row in rows]),
        (Column("Kind"), [row["kind"].replace("_", " ") for row in rows]),
        (Column("Source"), [row["source"] for row in rows]),
        (Column("Detail"), ["; ".join(f"{name}: {value}" for name, value in row["detail"].items()) for row in rows]),
    ])  # fmt: skip


def difference_table(rows: Sequence[Row]) -> Table:
    """Each measure that differs between the raw archive and a rollup."""
    pairs = [(row, name, sums) for row in rows for name, sums in row["measures"].items()]
    return table([
        (Column("Day"), [row["day"] for row, _, _ in pairs]),
        (Column("Deployment"), [row["deployment"] for row, _, _ in pairs]),
        (Column("Measure"), [name.replace("_", " ") for _, name, _ in pairs]),
        *(
            (Column(title, "count"), [sums.get(level) for _, _, sums in pairs])
            for title, level in (("Archive", "archive"), ("By minute", "minute"), ("By hour", "hour"), ("By day", "day"))
        ),
        (Column("Since, UTC"), [stamp(row["differs_since"]) for row, _, _ in pairs]),
    ])  # fmt: skip

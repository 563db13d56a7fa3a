"""Rows of ``tokenfuse show`` as people read them in a terminal; ``--json`` prints the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from core.feature_figures import FIGURES
from core.money import plain
from models.heat_map_repo import HeatMap

SHOWN = (
    "engines", "kv_use", "kv_use_max", "hit_rate", "busy_share", "running_mean", "waiting_mean", "tokens_per_step",
    "decode_ms_per_token", "preemptions", "memory_share", "power_w",
)  # fmt: skip


def coverage_words(row: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """One line a row: what differs, and each reason with its tokens in and out."""
    share = None if row["coverage"] is None else f"{row['coverage'] * 100:.1f} %"
    return {
        **{key: row[key] for key in keys},
        "engine_in": row["engine_prompt_tokens"],
        "gateway_in": row["gateway_input_tokens"],
        "engine_out": row["engine_generation_tokens"],
        "gateway_out": row["gateway_output_tokens"],
        "coverage": share,
        "why_they_differ": "; ".join(_reason(reason) for reason in row["reasons"]) or "they agree",
    }


def _reason(reason: Mapping[str, Any]) -> str:
    parts = [
        f"{reason[field]:+,} {word}" for field, word in (("tokens_in", "in"), ("tokens_out", "out")) if reason[field]
    ]  # fmt: skip
    counts = [
        f"{plain(Decimal(reason[field]))} {word}"
        for field, word in (("requests", "requests"), ("count", "times"), ("seconds", "s"))
        if reason.get(field)
    ]
    told = ", ".join([*parts, *counts])
    return f"{reason['name'].replace('_', ' ')} {told}".strip()


def unit_cost_words(row: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens in columns of their own, the reasons of what is unknown as text; of what the figures rest on, state and coverage."""
    coverage = row["meta"]["coverage"]
    told: dict[str, Any] = {}
    for name, value in row.items():
        if name == "tokens":
            told |= {f"{kind}_tokens": count for kind, count in value.items()}
        elif name not in ("reasons", "meta"):
            told[name] = value
    reasons = "; ".join(f"{name.replace('_', ' ')}: {why}" for name, why in row["reasons"].items())
    return {
        **told,
        "unpriced_tokens": row["meta"]["unpriced_tokens"],
        "state": row["meta"]["state"],
        "coverage": None if coverage is None else f"{coverage * 100:.1f} %",
        "why_unknown": reasons or "all known",
    }


def heat_map_grid(found: HeatMap) -> list[dict[str, Any]]:
    """A row per place on the axis, a column per length."""
    labels = {cell["low_tokens"]: cell["label"] for cell in sorted(found.cells, key=lambda cell: cell["low_tokens"])}
    places: dict[Any, dict[str, Any]] = {}
    for cell in found.cells:
        row = places.setdefault(cell["at"], {"at": _place(cell["at"]), **dict.fromkeys(labels.values(), 0)})
        row[cell["label"]] = cell["requests"]
    return list(places.values())


def _place(at: Any) -> Any:
    return f"{at:02d}:00" if isinstance(at, int) else at


def efficiency_words(row: Mapping[str, Any], step: str | None) -> dict[str, Any]:
    """The figures of one screen's width."""
    return {**({step: row[step]} if step else {}), "deployment": row["deployment"], **{name: row[name] for name in SHOWN}}


def feature_words(row: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Keys, requests and the figures; an unknown one is empty (``--json`` says why)."""
    return {**{key: row[key] for key in keys}, "requests": row["requests"], **{name: row[name] for name in FIGURES}}


def quality_words(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One line a kind, dearest first."""
    return [
        {
            "what": row["title"],
            "count": f"{row['count']:,} {row['counts']}",
            "last": row["last"],
            "where": ", ".join(place["place"] for place in row["places"]),
            "money": ", ".join(f"{plain(part['amount'])} {part['currency']}" for part in row["money"]) or "none",
            "money_is": row["money_is"],
            "what_to_do": row["what_to_do"],
        }
        for row in whole["kinds"]
    ]


def standing_words(standing: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The newest comparison in one line, then the differences."""
    checked = standing["checked_at"]
    summary = f"{standing['days']} days compared, {len(standing['differences'])} differences"
    first = {
        "day": "all",
        "deployment": "all",
        "found": summary if checked else "not yet compared",
        "checked_at": checked or "never",
    }
    return [
        first,
        *(
            {
                "day": one["day"], "deployment": one["deployment"], "checked_at": one["checked_at"],
                "found": "; ".join(f"{name}: {sums}" for name, sums in one["measures"].items()),
            }
            for one in standing["differences"]
        ),
    ]  # fmt: skip

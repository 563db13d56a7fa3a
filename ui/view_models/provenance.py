"""What a page's numbers rest on: basis, prices, use, freshness, coverage, state; and why some are unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ui.view_models.figures import age, percent, stamp

BASIS_WORDS: Mapping[str, str] = {"allocation": "Allocation basis (idle included)", "usage": "Usage basis (work only)"}
STATE_WORDS: Mapping[str, str] = {
    "estimate": "estimate: quarter hours still open are estimated",
    "provisional": "provisional: priced by rates, bill pending",
    "trued_up": "trued up: priced by bills whose invoice is not issued yet",
    "final": "final: trued up to the invoice",
}
ADVICE: tuple[tuple[str, str], ...] = (
    ("price", "Import a dated price: `tokenfuse rates import FILE`. A missing price is unknown, never zero."),
    ("currenc", "Import an exchange rate, or price everything in one currency."),
    ("exchange rate", "Import an exchange rate, or price everything in one currency."),
    ("scraped", "Name the engines in the settings; `tokenfuse doctor fleet` says which do not answer."),
    ("closed", "A quarter hour closes 15 minutes after its end, once the stream has counted it."),
    ("metered", "Nothing was served there in this time; choose a longer range."),
    ("cached", "Nothing to do: no such token was served."),
    ("tokens", "Nothing was served there in this time; choose a longer range."),
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A number that is not there: which, why, and what would give it."""

    name: str
    reason: str
    advice: str


def unknown(name: str, reason: str) -> Unknown:
    """Look up what to do about a reason of the API."""
    return Unknown(name, reason, next((advice for word, advice in ADVICE if word in reason), ""))


def provenance_line(meta: Mapping[str, Any], now: datetime) -> str:
    """All of it in one line, for under the title."""
    parts = [
        BASIS_WORDS.get(meta.get("basis") or "", ""),
        f"prices: {meta['price_source']}" if meta.get("price_source") else "no price known",
        STATE_WORDS.get(meta.get("state") or "", meta.get("state") or ""),
        f"coverage {percent(meta['coverage'])}"
        if meta.get("coverage") is not None
        else "coverage unknown: no engine was scraped",
        freshness_words(meta, now),
    ]
    return " · ".join(part for part in parts if part)


def freshness_words(meta: Mapping[str, Any], now: datetime) -> str:
    """How far the stream has counted."""
    if not meta.get("freshness"):
        return "nothing counted yet: is the stream running?"
    return f"counted up to {stamp(meta['freshness'])} UTC ({age(datetime.fromisoformat(meta['freshness']), now)} ago)"


def merged_meta(metas: Sequence[Mapping[str, Any]], page: Mapping[str, Any]) -> dict[str, Any]:
    """The page's meta with the sources of its rows: each distinct one named once, the least settled state."""
    merged = dict(page)
    for name in ("price_source", "utilisation_source", "weight_source"):
        found = sorted({part for meta in metas for part in (meta.get(name) or "").split("; ") if part})
        merged[name] = "; ".join(found) or None
    states = {meta.get("state") for meta in metas}
    merged["state"] = next((state for state in ("estimate", "provisional", "trued_up", "final") if state in states), None)
    return merged


def scope_name(scope: str) -> str:
    """``tenant:acme/search`` → ``acme / search``."""
    kind, _, rest = scope.partition(":")
    return rest.replace("/", " / ") if kind == "tenant" else rest if kind == "deployment" else scope.replace(":", " ")

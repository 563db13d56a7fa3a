"""What makes numbers less true, in words, and how much money rests on it, without counting a cent twice in the total.

Two sorts of money: *time* faults touch whole quarter hours of a deployment, whose capacity cost then rests on them; *line* faults
touch named parts of an hour's cost (work no record explains, work booked by estimates). In the total every quarter hour counts
once, and a part counts only outside the quarter hours that count whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Literal

from core.money import CONTEXT, ZERO, quantize
from core.windows import floor_time

Quarter = tuple[str, datetime]
"""Deployment as text and the start of its quarter hour."""
Hour = tuple[str, datetime]
Amounts = Mapping[str, Decimal]
"""Currency -> amount."""
HOUR = timedelta(hours=1)
MoneySort = Literal["time", "line", "none"]


@dataclass(frozen=True, slots=True)
class About:
    """``counts``: what the count counts. ``money``: what the money is, or why there is none."""

    title: str
    counts: str
    sort: MoneySort
    money: str
    what_to_do: str


_CAPACITY = "capacity cost of the quarter hours it touches"
_LOOK = "Open `tokenfuse show quality --json` for its details."
ABOUT: Mapping[str, About] = {
    "bypass": About(
        "Work no usage record explains", "hours", "line", "unattributed cost of these hours",
        "Compare reasons in `tokenfuse show coverage --by deployment,hour`; close the way around the gateway, or meter it.",
    ),
    "estimated": About(
        "Counts the gateway estimated", "requests", "line", "their share of the served cost, at the hour's mean cost per token",
        "Ask engines for usage on streams: stream_options.include_usage, in LiteLLM `always_include_stream_usage: true`.",
    ),
    "missing": About(
        "Requests without counts", "requests", "none", "not known: their work is in the unattributed cost",
        "Failed requests report none; answered ones should: see that the gateway passes usage on.",
    ),
    "over_explained": About(
        "Gateway books more than engines counted", "quarter hours", "none", "none: the excess is shown and not costed",
        "Look for engines that are not scraped, restarts and estimates in `tokenfuse show coverage`.",
    ),
    "scrape_gap": About(
        "Engine time between pages too far apart", "quarter hours", "time", _CAPACITY,
        "Scrape more often, or see why the page did not answer: `tokenfuse doctor fleet`.",
    ),
    "engine_reset": About(
        "Engine restarts", "restarts", "time", _CAPACITY,
        "Counts after the last page before a restart are lost; see why it restarted.",
    ),
    "no_price": About(
        "Quarter hours without a price", "quarter hours", "none", "not known: no price",
        "Import one: `tokenfuse rates import FILE`.",
    ),
    "no_gpu": About(
        "Quarter hours without GPU inventory", "quarter hours", "none", "not known: GPU type and count are not declared",
        "Declare gpu, count and node of the target in the settings.",
    ),
    "late": About(
        "Quarter hours closed again", "quarter hours", "none", "none: they were allocated again as a new version",
        "Nothing, unless it is many: then see why records come late.",
    ),
    "quarantined": About(
        "Records not taken", "records", "none", "not known: their work is in the unattributed cost",
        "Mend the source; reasons are below.",
    ),
    "clock_skew": About(
        "Clocks that disagree", "records and readings", "none", "not known: such records are not taken",
        "Set the clocks of gateway and engines (NTP).",
    ),
    "stale_stream": About(
        "The stream is behind", "lines", "none", "not known: what is not yet counted has no cost yet",
        "See `tokenfuse doctor`; it catches up by itself when it runs.",
    ),
    "rollup_difference": About(
        "Rollups that are not the archive's sums", "days", "time", _CAPACITY,
        "`tokenfuse rebuild --from DAY` counts the day anew from the raw archive.",
    ),
}  # fmt: skip
"""Kinds this platform finds itself. What the readers of engines report bears its own name; see ``about``."""
_SOURCES: Mapping[str, tuple[str, str]] = {
    "target_down": ("Engine pages that did not answer", "Is the engine up, and the URL right? `tokenfuse doctor fleet`."),
    "target_timeout": ("Engine pages that took too long", "Is the engine overloaded? A longer scrape interval may help."),
    "target_vanished": ("Engines that left the list", "Nothing, if it was scaled down."),
    "engine_vanished": ("Engines gone from their page", "Nothing, if it was restarted with fewer engines."),
    "metric_vanished": ("Metrics gone from a page", "An upgrade renamed or dropped them: update Tokenfuse's table of names."),
    "unmapped_metrics": ("Metrics with unknown names", "Nothing is lost from known figures; tell us the names."),
    "bad_value": ("Values that are no measurement (NaN, Inf, sentinels)", "They are left out; see the exporter's version."),
    "several_processes": ("Several processes behind one address", "Scrape each engine by its own address, not a load balancer."),
    "read_twice": ("Engines offered by two sources", "One is left out, nothing counts twice; remove one source."),
    "no_target_label": ("Series without their engine's address", "Let Prometheus keep the `instance` label."),
    "router_page": ("Routers that repeat their engines' numbers", "They are not counted; scrape the engines themselves."),
    "gpu_seen_twice": ("GPUs shown by two exporters", "One counts; remove the other exporter."),
    "gpu_vanished": ("GPUs gone from their exporter's page", "Nothing, if it was taken out; else look at the driver."),
    "no_gpu_metrics": ("GPU exporters without a GPU", "Is it a DCGM or device-metrics exporter, and does it see the devices?"),
    "no_gpu_id": ("GPU series without a UUID", "Let the exporter and Prometheus keep the UUID label."),
    "source_down": ("Prometheus or discovery did not answer", "Is it up, and its address right?"),
    "source_gap": ("Prometheus has no samples", "Its tokens are counted when the next sample comes; the minutes are not known."),
}


_HARMLESS = frozenset({"unmapped_metrics", "target_vanished", "read_twice", "no_target_label", "bad_file_name"})
"""Kinds that leave every known figure as it is."""


def about(kind: str) -> About:
    """What a kind is; one that is not listed keeps its name."""
    if kind in ABOUT:
        return ABOUT[kind]
    title, what_to_do = _SOURCES.get(kind, (kind.replace("_", " ").capitalize(), _LOOK))
    if kind in _HARMLESS:
        return About(title, "minutes", "none", "none: no known figure rests on it", what_to_do)
    return About(title, "minutes", "time", _CAPACITY, what_to_do)


@dataclass(frozen=True, slots=True)
class Touched:
    """What one kind touches: whole quarter hours, or parts of hours with their currency."""

    quarters: frozenset[Quarter] = frozenset()
    parts: Mapping[tuple[Hour, str], Decimal] | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity cost of closed quarter hours, None where no price is known."""

    quarters: Mapping[Quarter, tuple[str, Decimal | None]]

    def of(self, quarters: Iterable[Quarter]) -> dict[str, Decimal]:
        """Per currency; quarter hours that are not closed or not priced add nothing."""
        sums: defaultdict[str, Decimal] = defaultdict(lambda: ZERO)
        for quarter in quarters:
            currency, amount = self.quarters.get(quarter, ("", None))
            if amount is not None:
                sums[currency] += amount
        return dict(sums)


def money_of(touched: Touched, capacity: Capacity) -> dict[str, Decimal]:
    """What rests on one kind by itself, per currency."""
    sums: defaultdict[str, Decimal] = defaultdict(lambda: ZERO, capacity.of(touched.quarters))
    for (_hour, currency), amount in (touched.parts or {}).items():
        sums[currency] += amount
    return dict(sums)


def money_at_risk(kinds: Iterable[Touched], capacity: Capacity) -> dict[str, Decimal]:
    """What rests on any of them, each cent once."""
    touched = list(kinds)
    whole = frozenset().union(*(one.quarters for one in touched)) if touched else frozenset()
    sums: defaultdict[str, Decimal] = defaultdict(lambda: ZERO, capacity.of(whole))
    covered = _covered(whole, capacity)
    with localcontext(CONTEXT):
        for one in touched:
            for (hour, currency), amount in (one.parts or {}).items():
                sums[currency] += quantize(amount * (1 - covered.get(hour, ZERO)))
    return dict(sums)


def _covered(whole: frozenset[Quarter], capacity: Capacity) -> dict[Hour, Decimal]:
    """Per hour the share of its capacity cost that counts whole already."""
    all_of: defaultdict[Hour, Decimal] = defaultdict(lambda: ZERO)
    part: defaultdict[Hour, Decimal] = defaultdict(lambda: ZERO)
    for quarter, (_currency, amount) in capacity.quarters.items():
        if amount:
            hour = (quarter[0], floor_time(quarter[1], HOUR))
            all_of[hour] += amount
            part[hour] += amount if quarter in whole else ZERO
    with localcontext(CONTEXT):
        return {hour: part[hour] / amount for hour, amount in all_of.items()}

"""Power of own racks in a cost book: measured, metered or declared kWh × tariff at that hour × PUE, by day and node.

A kWh without a tariff stops the issue: unknown is not zero. Hours that were not measured are named, not guessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Literal, get_args

from core.cost_book import BookLine, CostBook, days_of
from core.depreciation import CENTS
from core.errors import BadInput
from core.money import CONTEXT, ZERO, plain, quantize, split
from core.rates import BASIS_ORDER, PricedSpan, Rate, priced_spans, pue_at, sku_key
from core.windows import Window, require_utc

Meter = Literal["gpus", "readings", "declared"]
METERS: tuple[str, ...] = get_args(Meter)
METER_WORDS: Mapping[str, str] = {
    "gpus": "the GPUs' own energy, the rest of the node is not in it", "readings": "meter readings", "declared": "declared",
}  # fmt: skip
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Reading:
    """A meter that only counts up showed ``kwh`` at an instant."""

    at: datetime
    kwh: Decimal


@dataclass(frozen=True, slots=True)
class PowerEntry:
    """Power of ``nodes``, shared evenly by those in service where one meter serves several. ``site``: the name its tariff and PUE
    go by; ``declared``: first day of a month to kWh."""

    id: str
    nodes: tuple[str, ...]
    meter: Meter
    site: str
    readings: tuple[Reading, ...] = ()
    declared: Mapping[date, Decimal] | None = None

    def __post_init__(self) -> None:
        if self.meter not in METERS:
            raise BadInput(f"must be one of {', '.join(METERS)}", field="meter", value=self.meter)
        if self.meter == "readings" and len(self.readings) < 2:
            raise BadInput("needs two readings at least", field="readings", value=len(self.readings))
        for before, after in pairwise(self.readings):
            if require_utc(after.at, "at") <= require_utc(before.at, "at") or after.kwh < before.kwh:
                raise BadInput("must come after the one before it, and not fall", field="readings", value=after.at.isoformat())
        below = next((kwh for kwh in (self.declared or {}).values() if kwh < 0), None)
        if below is not None:
            raise BadInput("must not be negative", field="kwh", value=plain(below))


@dataclass(frozen=True, slots=True)
class Energy:
    """What a node drew in a window, evenly over it."""

    node: str
    window: Window
    kwh: Decimal


@dataclass(frozen=True, slots=True)
class MonthEnergy:
    energy: tuple[Energy, ...]
    unmeasured: tuple[str, ...] = ()
    """What is not in it, in words."""


@dataclass(frozen=True, slots=True)
class Prices:
    """``rates`` of kind kwh and pue; the tariff must be in ``currency``. ``decimals``: of a month's amount."""

    rates: Sequence[Rate]
    currency: str
    decimals: int = CENTS


def known_energy(book: CostBook, entry: PowerEntry, month: date, until: date) -> MonthEnergy:
    """Energy of the month by day and node in service, of an entry that is read or declared (``gpus``: from the database).

    Declared kWh are of the whole month; only days before ``until`` are missed where they are not read."""
    days = days_of(month)
    served = {day: [node for node in entry.nodes if book.asset_of(node).in_service(day)] for day in days}
    if entry.meter == "declared":
        kwh = (entry.declared or {}).get(month)
        pairs = {(day, node): 1 for day in days for node in served[day]}
        if kwh is None or not pairs:
            return MonthEnergy((), (f"{entry.id}: no kWh is declared for {month:%Y-%m}",) if kwh is None else ())
        shares = split(kwh, pairs)
        return MonthEnergy(tuple(Energy(node, day_window(day), share) for (day, node), share in shares.items()))
    found: list[Energy] = []
    unread = []
    for day in days:
        drawn = _between(entry.readings, day_window(day))
        if drawn is None:
            unread += [day] if day < until else []
        elif served[day]:
            found += [Energy(n, day_window(day), kwh) for n, kwh in split(drawn, dict.fromkeys(served[day], 1)).items()]
    said = (
        f"{entry.id}: no readings on both sides of {unread[0]}" + (f" and {len(unread) - 1} more days" if unread[1:] else "")
        if unread
        else ""
    )
    return MonthEnergy(tuple(found), (said,) if said else ())


def power_lines(entry: PowerEntry, energy: Iterable[Energy], prices: Prices, until: date) -> list[BookLine]:
    """Lines by day and node of the days before ``until``; the month's amount is rounded once, to the book's decimals.

    Raises BadInput where a kWh has no tariff in the book's currency.
    """
    exact: dict[date, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    drawn: dict[tuple[date, str], Decimal] = defaultdict(lambda: ZERO)
    for one in energy:
        for part in _days(one):
            day = part.window.start.date()
            if day >= until:
                continue
            with localcontext(CONTEXT):
                drawn[day, part.node] += part.kwh
            exact[day][part.node] += _cost(entry, part, prices)
    amounts = _rounded(exact, prices.decimals)
    return [
        BookLine(day, entry.id, "power", node, amounts[day, node], quantity=quantize(kwh), unit="kWh",
                 description=f"power of {entry.id}: {METER_WORDS[entry.meter]}")
        for (day, node), kwh in sorted(drawn.items())
    ]  # fmt: skip


def _rounded(exact: Mapping[date, Mapping[str, Fraction]], decimals: int) -> dict[tuple[date, str], Decimal]:
    """Each day's share of the sum so far, rounded as a whole and shared over its nodes exactly.

    Rounding the running sum, not the days, gives the month its amount rounded once and leaves former days as they were issued
    when later ones become known; a day is never below zero.
    """
    found: dict[tuple[date, str], Decimal] = {}
    whole, issued = Fraction(0), ZERO
    for day, nodes in sorted(exact.items()):
        whole += sum(nodes.values())
        so_far = Decimal(f"{round(whole * 10**decimals)}E-{decimals}")
        with localcontext(CONTEXT):
            of_day, issued = so_far - issued, so_far
        weights = {node: _quantum(amount) for node, amount in nodes.items()}
        shares = split(of_day, weights if any(weights.values()) else dict.fromkeys(nodes, 1))
        found |= {(day, node): share for node, share in shares.items()}
    return found


def _cost(entry: PowerEntry, part: Energy, prices: Prices) -> Fraction:
    whole = part.window.duration // timedelta(microseconds=1)
    sites = (part.node, entry.site)
    found = Fraction(0)
    for span in _spans(entry, part, prices):
        for start, end in pairwise(_pue_edges(prices.rates, sites, span.span)):
            pue = next((rate for site in sites if (rate := pue_at(prices.rates, site, start)) is not None), None)
            share = Fraction((end - start) // timedelta(microseconds=1), whole)
            found += Fraction(part.kwh) * share * Fraction(span.rate.price.amount) * Fraction(pue.price.amount if pue else 1)
    return found


def _pue_edges(rates: Iterable[Rate], sites: Sequence[str], window: Window) -> list[datetime]:
    names = {sku_key(site) for site in sites}
    ends = [end for r in rates if r.kind == "pue" and sku_key(r.sku) in names for end in (r.valid_from, r.valid_to)]
    return sorted({window.start, window.end, *(end for end in ends if end is not None and window.contains(end))})


def _spans(entry: PowerEntry, part: Energy, prices: Prices) -> Sequence[PricedSpan]:
    """The tariff of the node, else of the site, on the first basis that knows the whole window."""
    names = tuple(dict.fromkeys((part.node, entry.site)))
    for name in names:
        for basis in BASIS_ORDER:
            spans, _ = priced_spans(prices.rates, "kwh", name, part.window, basis)
            if not spans:
                continue
            wrong = next((one.rate for one in spans if one.rate.price.currency != prices.currency), None)
            if wrong is not None:
                raise BadInput(
                    f"the tariff of {name} is in {wrong.price.currency}, the book in {prices.currency}",
                    field="site", value=entry.site, hint="give the tariff in the book's currency",
                )  # fmt: skip
            return spans
    raise BadInput(
        f"no tariff for {plain(part.kwh)} kWh of {part.node} in the hours from {part.window.start.isoformat()} on",
        field="site", value=entry.site, hint=f"import a rate card with a kwh rate named {' or '.join(names)}",
    )  # fmt: skip


def _days(one: Energy) -> Iterable[Energy]:
    """Cut at midnight UTC."""
    start, end = one.window.start, one.window.end
    cuts = [start, *(day_window(start.date() + n * DAY).end for n in range((end.date() - start.date()).days + 1)), end]
    edges = sorted({cut for cut in cuts if start <= cut <= end})
    if len(edges) == 2:
        yield one
        return
    lengths = {edge: (after - edge) // timedelta(microseconds=1) for edge, after in pairwise(edges)}
    for edge, kwh in split(one.kwh, lengths).items():
        yield Energy(one.node, Window(edge, edge + timedelta(microseconds=lengths[edge])), kwh)


def _between(readings: Sequence[Reading], window: Window) -> Decimal | None:
    """kWh of a window inside the first and the last reading: of each interval its part in time; None outside."""
    if readings[0].at > window.start or readings[-1].at < window.end:
        return None
    found = Fraction(0)
    for before, after in pairwise(readings):
        overlap = Window(before.at, after.at).overlap(window)
        if overlap:
            found += Fraction(after.kwh - before.kwh) * Fraction(
                overlap // timedelta(microseconds=1), (after.at - before.at) // timedelta(microseconds=1)
            )
    return _quantum(found)


def day_window(day: date) -> Window:
    start = datetime.combine(day, time(0), tzinfo=UTC)
    return Window(start, start + DAY)


def _quantum(value: Fraction) -> Decimal:
    return Decimal(f"{round(value * 10**12)}E-12")

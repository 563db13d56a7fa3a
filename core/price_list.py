"""Instance prices of a cloud's public price list -> dated GPU-hour rates; what is no price is refused with its reason.

A GPU-hour is the instance's price / its GPUs: the machine around them is in it, so no node rate goes with these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, localcontext

from core.errors import BadInput
from core.money import CONTEXT, Money, plain, quantize
from core.rates import Rate, check_price, rate_at, sku_key


@dataclass(frozen=True, slots=True)
class InstancePrice:
    """One on-demand price of one instance-hour. ``place`` names the row to a person."""

    instance_type: str
    region: str
    price: Decimal
    currency: str
    sku: str
    place: str


@dataclass(frozen=True, slots=True)
class PriceSheet:
    """One version of a list. ``until``: when the next version took over, where that is known; None: not yet. ``is_whole``: it
    holds every instance of its region, so the next one takes its place; else just those of which a history tells."""

    offer: str
    version: str
    since: datetime
    until: datetime | None
    prices: tuple[InstancePrice, ...]
    refused: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def list_name(self) -> tuple[str, str]:
        """(offer, region): versions of one list take each other's place."""
        return self.offer, self.prices[0].region if self.prices else ""


@dataclass(frozen=True, slots=True)
class Accelerators:
    """What an instance holds. ``names``: of its GPU, as node inventories call it, the table's own first. ``is_smallest``: of all
    instances known with this GPU."""

    names: tuple[str, ...]
    gpus: int
    is_smallest: bool = False


@dataclass(frozen=True, slots=True)
class SheetRates:
    rates: tuple[Rate, ...]
    refused: tuple[str, ...]


def sheet_rates(sheet: PriceSheet, machines: Mapping[str, Accelerators]) -> SheetRates:
    """List rates ``GPU@INSTANCE`` of every priced instance, and of each bare GPU name that of the smallest instance with it (of
    a sheet that is not whole: where that one is in it).

    Refused, with the row named: a price of 0 (Capacity Blocks, free tiers: not what the GPU costs), a second price of one
    instance, one outside the bounds of a GPU-hour, an instance whose GPUs are not known.
    """
    refused = [*sheet.refused]
    found: dict[str, InstancePrice] = {}
    for instance_type, prices in _by_instance(sheet.prices).items():
        amounts = sorted({(price.price, price.currency) for price in prices if price.price != 0})
        refused += [f"{price.place}: {instance_type}: a price of 0 is no price" for price in prices if price.price == 0]
        if len(amounts) > 1:
            shown = " and ".join(f"{plain(amount)} {currency}" for amount, currency in amounts)
            refused.append(f"{prices[0].place}: {instance_type}: has {len(amounts)} prices ({shown}); none is taken")
        elif amounts and instance_type not in machines:
            refused.append(f"{prices[0].place}: {instance_type}: how many GPUs it has is not known")
        elif amounts:
            found[instance_type] = next(price for price in prices if price.price != 0)
    rates: list[Rate] = []
    for instance_type, names in _names(found, machines, sheet.is_whole).items():
        try:
            rates += _rates(found[instance_type], machines[instance_type], names, sheet)
        except BadInput as error:
            refused.append(f"{found[instance_type].place}: {error}")
    return SheetRates(tuple(rates), tuple(refused))


def chain(
    sheets: Iterable[PriceSheet], known: Iterable[tuple[str, str, datetime]] = ()
) -> list[PriceSheet]:  # fmt: skip
    """Versions in order, each until the next one's date. A version that says its own end keeps it.

    ``known``: (offer, region, since) of whole versions imported before. One that is older than some of them ends where the next
    of them begins: what that one says (also by saying what was said before) stays in force from there on.
    """
    ordered = sorted(sheets, key=lambda sheet: (sheet.since, sheet.version))
    starts: dict[tuple[str, str], set[datetime]] = defaultdict(set)
    for offer, region, since in known:
        starts[offer, region].add(since)
    for sheet in ordered:
        if sheet.is_whole:
            starts[sheet.list_name].add(sheet.since)
    return [replace(sheet, until=sheet.until or _next(starts[sheet.list_name], sheet)) for sheet in ordered]


def _next(starts: Iterable[datetime], sheet: PriceSheet) -> datetime | None:
    return min((at for at in starts if at > sheet.since), default=None) if sheet.is_whole else None


@dataclass(frozen=True, slots=True)
class Changes:
    """``new``: first price of its name; ``changed``: (former, new); ``unchanged``: the price in force already says so."""

    new: tuple[Rate, ...]
    changed: tuple[tuple[Rate, Rate], ...]
    unchanged: tuple[Rate, ...]

    @property
    def to_add(self) -> tuple[Rate, ...]:
        return (*self.new, *(rate for _, rate in self.changed))


def compare(rates: Sequence[Rate], known: Sequence[Rate]) -> Changes:
    """What an import brings, against the price in force when each rate begins. An equal price is not stored again, unless it
    would end earlier than the new one: it would only make closed windows look changed."""
    by_name: dict[tuple[str, str, str], list[Rate]] = defaultdict(list)
    for rate in known:
        by_name[_name(rate)].append(rate)
    new: list[Rate] = []
    unchanged: list[Rate] = []
    changed: list[tuple[Rate, Rate]] = []
    for rate in sorted(rates, key=lambda rate: rate.valid_from):
        former = rate_at(by_name[_name(rate)], rate.kind, rate.sku, rate.valid_from, rate.charge_basis).rate
        if former is None:
            new.append(rate)
        elif former.price == rate.price and _covers_end(former, rate):
            unchanged.append(rate)
            continue
        else:
            changed.append((former, rate))
        by_name[_name(rate)].append(rate)
    return Changes(tuple(new), tuple(changed), tuple(unchanged))


def _covers_end(former: Rate, rate: Rate) -> bool:
    return former.valid_to is None or (rate.valid_to is not None and rate.valid_to <= former.valid_to)


def _name(rate: Rate) -> tuple[str, str, str]:
    return rate.kind, sku_key(rate.sku), rate.charge_basis


def _by_instance(prices: Iterable[InstancePrice]) -> dict[str, list[InstancePrice]]:
    found: dict[str, list[InstancePrice]] = defaultdict(list)
    for price in prices:
        found[price.instance_type].append(price)
    return {name: found[name] for name in sorted(found)}


def _names(
    found: Mapping[str, InstancePrice], machines: Mapping[str, Accelerators], is_whole: bool
) -> dict[str, tuple[str, ...]]:
    """Under which bare names each instance's price also stands."""
    smallest: dict[str, str] = {}
    for name in sorted(found, key=lambda name: (machines[name].gpus, found[name].price, name)):
        if is_whole or machines[name].is_smallest:
            smallest.setdefault(machines[name].names[0], name)
    return {name: machines[name].names if name in smallest.values() else () for name in found}


def _rates(price: InstancePrice, machine: Accelerators, bare: Sequence[str], sheet: PriceSheet) -> list[Rate]:
    with localcontext(CONTEXT):
        each = Money(quantize(price.price / machine.gpus), price.currency)
    source = (
        f"list price, bill pending: AWS Price List {sheet.offer} {sheet.version}, {price.region} {price.instance_type} on demand "
        f"({plain(price.price)} {price.currency} / {machine.gpus} GPUs)"
    )
    names = (*bare, *(f"{name}@{price.instance_type}" for name in machine.names))
    rates = [Rate("gpu_hour", name, each, "list", source, sheet.since, sheet.until) for name in names]
    for rate in rates:
        check_price(rate)
    return rates

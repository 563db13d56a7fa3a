"""All price lists together: what one bought request costs a token, which list says so, and what would fill a hole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from core.vendor_list import STANDARD, ModelSheet, PriceEntry, PromptClass, vendor_names
from core.vendor_price import TokenPrices

SOURCES: tuple[str, ...] = ("vendor-card", "genai-prices", "litellm-prices")
"""Order of preference where lists disagree: what a person typed, then the list that keeps dates, then LiteLLM's."""
AliasUse = Literal["price", "compare"]
SHORT = PromptClass(0, 1)


@dataclass(frozen=True, slots=True)
class ModelAlias:
    """A person's word, in ``[valid_from, valid_to)``: ``model`` of ``vendor`` is ``list_model`` of ``list_vendor`` in the lists
    (use ``price``); or a model of one's own (vendor '') is to be compared with it (use ``compare``). ``source`` '': any list."""

    use: AliasUse
    vendor: str
    model: str
    list_vendor: str
    list_model: str
    source: str
    valid_from: datetime
    valid_to: datetime | None
    made_by: str
    reason: str

    def holds(self, at: datetime) -> bool:
        return self.valid_from <= at and (self.valid_to is None or at < self.valid_to)


@dataclass(frozen=True, slots=True)
class Quote:
    """The price of one (vendor, model) at an instant, or None with the reason and what would fill the hole."""

    prices: TokenPrices | None
    label: str = ""
    """List, its date, and the model it names, as numbers show it."""
    source: str = ""
    list_vendor: str = ""
    list_model: str = ""
    reason: str = ""
    hint: str = ""
    free: bool = False
    entry: PriceEntry | None = None


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Sheets of every list and the aliases; ``order`` is the preference of sources (those not named come last, by name)."""

    sheets: tuple[ModelSheet, ...] = ()
    aliases: tuple[ModelAlias, ...] = ()
    order: tuple[str, ...] = SOURCES
    _by_vendor: Mapping[str, Sequence[ModelSheet]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[str, list[ModelSheet]] = {}
        for sheet in self.sheets:
            found.setdefault(sheet.vendor, []).append(sheet)
        object.__setattr__(self, "_by_vendor", found)

    @property
    def sources(self) -> tuple[str, ...]:
        """Those there are sheets of, preferred first."""
        have = {sheet.source for sheet in self.sheets}
        named = [source for source in self.order if source in have]
        return (*named, *sorted(have.difference(named)))

    def in_force(self, vendor: str, at: datetime) -> list[ModelSheet]:
        """The newest sheet of each model of a vendor (by any of its names) at ``at``; of equals in date the last given."""
        newest: dict[tuple[str, str, str], ModelSheet] = {}
        for name in vendor_names(vendor):
            for sheet in self._by_vendor.get(name, ()):
                if sheet.valid_from <= at:
                    former = newest.get(sheet.key)
                    if former is None or sheet.valid_from >= former.valid_from:
                        newest[sheet.key] = sheet
        return list(newest.values())

    def alias(self, use: AliasUse, vendor: str, model: str, at: datetime) -> ModelAlias | None:
        """The alias in force, of several the last given."""
        found = [a for a in self.aliases if (a.use, a.vendor, a.model) == (use, vendor, model) and a.holds(at)]
        return found[-1] if found else None


def quote(
    book: PriceBook, vendor: str, model: str, at: datetime, tier: str = STANDARD, prompt: PromptClass = SHORT
) -> Quote:  # fmt: skip
    """The price by the first source, in the order of preference, that names the model and this way of selling it. What that
    list does not say (a bucket, a length) is not taken from another one: the hint says which list would."""
    alias = book.alias("price", vendor, model, at)
    asked, vendor, model = (vendor, model), *((alias.list_vendor, alias.list_model) if alias is not None else (vendor, model))
    sheets = book.in_force(vendor, at)
    lacking: list[Quote] = []
    for source in [alias.source] if alias is not None and alias.source else book.sources:
        sheet, reason = _named([s for s in sheets if s.source == source], model)
        if reason:
            lacking.append(Quote(None, source=source, reason=reason, hint=_alias_hint(*asked, "LIST_VENDOR/LIST_MODEL")))
        if sheet is None:
            continue
        found = _from(sheet, at, tier, prompt)
        if any(one.tier == tier for one in sheet.entries):
            return found
        lacking.append(found)
    if lacking:
        return lacking[0]
    whose = f"{vendor}/{model}" + (" (by alias)" if alias is not None else "")
    hint = _guess(sheets, asked, model, bool(book.sheets))
    return Quote(None, reason=f"no price list names {whose} at {at:%Y-%m-%d}", hint=hint)


def quotes(
    book: PriceBook, vendor: str, model: str, at: datetime, tier: str = STANDARD, prompt: PromptClass = SHORT
) -> list[Quote]:  # fmt: skip
    """What each source says, preferred first: where they disagree, the others are shown beside the one that counts."""
    found = [quote(PriceBook(book.sheets, book.aliases, (s,)), vendor, model, at, tier, prompt) for s in book.sources]
    by_source = {one.source: one for one in found if one.source}
    return [by_source[source] for source in book.sources if source in by_source]


def _named(sheets: Sequence[ModelSheet], model: str) -> tuple[ModelSheet | None, str]:
    """The sheet of one source that names the model; None and '' where none does, None and the reason where several do."""
    best: list[ModelSheet] = []
    strength: tuple[int, int] | None = None
    for sheet in sheets:
        found = sheet.strength(model)
        if found is None or (strength is not None and found > strength):
            continue
        best = [*best, sheet] if found == strength else [sheet]
        strength = found
    if not best:
        return None, ""
    if any(other.entries != best[0].entries for other in best[1:]):
        names = " and ".join(sorted(f"{s.vendor}/{s.model}" for s in best))
        return None, f"{best[0].label} names it twice, at different prices: {names}"
    return best[0], ""


def _from(sheet: ModelSheet, at: datetime, tier: str, prompt: PromptClass) -> Quote:
    entry, reason = sheet.entry_at(at, tier, prompt)
    label = f"{sheet.label} {sheet.vendor}/{sheet.model}" + (f" {tier}" if tier != STANDARD else "")
    if entry is None:
        return Quote(None, label, sheet.source, sheet.vendor, sheet.model, reason, _CARD)
    return Quote(entry.prices, label, sheet.source, sheet.vendor, sheet.model, free=entry.free, entry=entry)


_CARD = "import a newer list, or type the price into a vendor-card (docs/vendor-prices.md)"


def _guess(sheets: Iterable[ModelSheet], asked: tuple[str, str], model: str, any_list: bool) -> str:
    if not any_list:
        return "import a list: tokenfuse rates import FILE --format genai-prices"
    likely = [s for s in sheets if s.entries and any(rule.might_mean(model) for rule in s.rules)]
    if not likely:
        return f"{_alias_hint(*asked, 'LIST_VENDOR/LIST_MODEL')}; or {_CARD}"
    nearest = max(likely, key=lambda s: (max(len(r.text) for r in s.rules if r.might_mean(model)), s.model))
    name = f"{nearest.vendor}/{nearest.model}"
    return f"a reader that guesses would take it for {name}; if that is right: {_alias_hint(*asked, name)}"


def _alias_hint(vendor: str, model: str, target: str) -> str:
    return f"tokenfuse rates vendor alias add {vendor}/{model} {target} --from DATE --reason WHY"

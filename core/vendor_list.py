"""Price lists of model vendors: which sheet of a list names a model, and what it says at an instant. Nothing is guessed.

A model no rule names has no price. A prefix rule names what is the prefix itself, or the prefix and a date (``-20250929``,
``-0613``, ``-latest``): "deepseek-r1" is not "deepseek-r1-distill-qwen-32b". A rule that merely asks for a text *somewhere* in
the name never prices; it is told as a hint, and a person's alias says whether it is right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time
from typing import Literal, get_args

from core.errors import BadInput
from core.vendor_price import TokenPrices
from core.windows import require_utc, zone

RuleKind = Literal["exact", "prefix", "regex", "contains", "suffix"]
RULE_KINDS: tuple[str, ...] = get_args(RuleKind)
NAMING: tuple[RuleKind, ...] = ("exact", "prefix", "regex")
"""Rules that name a model, the stronger first. The other kinds are kept as the list has them and never price."""
MAX_RULE = 200
STANDARD, BATCH = "standard", "batch"
TIERS = {
    "": STANDARD, "default": STANDARD, "standard": STANDARD, "auto": STANDARD, "on_demand": STANDARD, "batches": BATCH,
    "batch_api": BATCH, "on_demand_priority": "priority",
}  # fmt: skip
"""What vendors and gateways call the ways a request is sold; any other word stands for itself (flex, priority, scale …)."""
SAME_VENDOR: dict[str, tuple[str, ...]] = {
    "gemini": ("google",), "vertex_ai": ("google",), "gcp.gemini": ("gemini", "google"), "gcp.vertex_ai": ("vertex_ai", "google"),
    "bedrock": ("bedrock_converse", "aws"), "bedrock_converse": ("bedrock", "aws"),
    "aws.bedrock": ("bedrock", "bedrock_converse", "aws"), "xai": ("x-ai",),
    "x_ai": ("xai", "x-ai"), "moonshot": ("moonshotai",), "together_ai": ("together",), "fireworks_ai": ("fireworks",),
    "mistral_ai": ("mistral",), "azure.ai.openai": ("azure",), "azure.ai.inference": ("azure_ai", "azure"),
    "azure_openai": ("azure",), "text-completion-openai": ("openai",), "voyage": ("voyageai",), "cohere_chat": ("cohere",),
}  # fmt: skip
"""Names by which gateways and lists call one vendor: as it is called -> its other names in lists."""
_MONTH_DAY = r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
_SNAPSHOT = re.compile(rf"(?:[-@_](?:20\d{{6}}|20\d\d-\d\d-\d\d|{_MONTH_DAY}|2[3-9](?:0[1-9]|1[0-2])|latest))?(?:-v\d+:\d+)?")


@dataclass(frozen=True, slots=True)
class Rule:
    """How a list names a model; letter case does not matter."""

    kind: RuleKind
    text: str

    def __post_init__(self) -> None:
        if self.kind not in RULE_KINDS:
            raise BadInput(f"must be one of {', '.join(RULE_KINDS)}", field="rule", value=self.kind)
        if not self.text or len(self.text) > MAX_RULE:
            raise BadInput(f"must have 1 to {MAX_RULE} characters", field="rule", value=self.text)
        if self.kind == "regex":
            try:
                re.compile(self.text)
            except re.error as error:
                raise BadInput(f"is no regular expression: {error}", field="rule", value=self.text) from error

    def names(self, model: str) -> bool:
        """Whether the rule names ``model`` beyond doubt."""
        name, text = model.casefold(), self.text.casefold()
        if self.kind == "exact":
            return name == text
        if self.kind == "prefix":
            return name.startswith(text) and _SNAPSHOT.fullmatch(name[len(text) :]) is not None
        return self.kind == "regex" and re.match(self.text, name, re.IGNORECASE) is not None

    def might_mean(self, model: str) -> bool:
        """Whether a reader that guesses would take it: what the hint says, never a price."""
        name, text = model.casefold(), self.text.casefold()
        found = {"prefix": name.startswith(text), "contains": text in name, "suffix": name.endswith(text)}
        return found.get(self.kind, False)


@dataclass(frozen=True, slots=True)
class PromptClass:
    """Prompt lengths in ``(above, upto]`` tokens; ``upto`` None: without end. One length n is ``(n - 1, n]``."""

    above: int = 0
    upto: int | None = None


CLASS_EDGES = (32_000, 64_000, 100_000, 128_000, 200_000, 252_000, 256_000, 272_000, 512_000, 1_000_000)
"""Every threshold the known lists have, so that a class of prompt lengths has one price."""


def prompt_class(tokens: int) -> PromptClass:
    """The class of a prompt of so many tokens."""
    above = max((edge for edge in CLASS_EDGES if edge < tokens), default=0)
    return PromptClass(above, min((edge for edge in CLASS_EDGES if edge >= tokens), default=None))


@dataclass(frozen=True, slots=True)
class PriceEntry:
    """One price of a sheet and when it holds: for prompts longer than ``above_tokens`` (the whole request then), sold in this
    ``tier``, from ``starts_at`` on, at times of day in ``[day_from, day_to)`` of ``zone_name`` (over midnight if it ends before
    it starts). Of the entries that hold the last one counts."""

    prices: TokenPrices
    tier: str = STANDARD
    above_tokens: int = 0
    starts_at: datetime | None = None
    day_from: time | None = None
    day_to: time | None = None
    zone_name: str = "UTC"
    free: bool = False
    """A price of 0 is meant: the list says so."""

    def __post_init__(self) -> None:
        if self.above_tokens < 0:
            raise BadInput("must not be negative", field="above_tokens", value=self.above_tokens)
        if (self.day_from is None) != (self.day_to is None):
            raise BadInput("needs both ends", field="day_from", value=self.day_from)
        for name, at in (("day_from", self.day_from), ("day_to", self.day_to), ("starts_at", self.starts_at)):
            if at is not None and (at.minute % 15 or at.second or at.microsecond):
                raise BadInput("is not on a quarter hour, by which usage is priced", field=name, value=at.isoformat())
        if not self.free and any(price == 0 for _, price in self.prices.named()):
            raise BadInput("0 is no price", field="price", value="0", hint="leave it out (unknown), or mark the entry as free")
        zone(self.zone_name)

    def holds(self, at: datetime) -> bool:
        """By the instant alone."""
        if self.starts_at is not None and at < self.starts_at:
            return False
        if self.day_from is None or self.day_to is None:
            return True
        clock = at.astimezone(zone(self.zone_name)).time()
        if self.day_from <= self.day_to:
            return self.day_from <= clock < self.day_to
        return clock >= self.day_from or clock < self.day_to


@dataclass(frozen=True, slots=True)
class ModelSheet:
    """What one list says of one model from ``valid_from`` until its next sheet of that model. No entries: the list no longer
    names it. ``label`` is the list and its date, as numbers show it."""

    source: str
    vendor: str
    model: str
    rules: tuple[Rule, ...]
    entries: tuple[PriceEntry, ...]
    valid_from: datetime
    label: str

    def __post_init__(self) -> None:
        start = require_utc(self.valid_from, "valid_from")
        if start.minute % 15 or start.second or start.microsecond:
            raise BadInput("is not on a quarter hour, by which usage is priced", field="valid_from", value=start.isoformat())

    @property
    def key(self) -> tuple[str, str, str]:
        return self.source, self.vendor, self.model

    def same_prices(self, other: ModelSheet) -> bool:
        """Whether nothing but the date of the list differs."""
        return (self.rules, self.entries) == (other.rules, other.entries)

    def strength(self, model: str) -> tuple[int, int] | None:
        """How well the sheet names ``model`` (smaller is better), or None."""
        found = [(NAMING.index(r.kind), -len(r.text)) for r in self.rules if r.kind in NAMING and r.names(model)]
        return min(found, default=None)

    def entry_at(self, at: datetime, tier: str, prompt: PromptClass) -> tuple[PriceEntry | None, str]:
        """The entry in force, and ''; or None and the reason."""
        of_tier = [entry for entry in self.entries if entry.tier == tier]
        if not of_tier:
            said = "no longer names" if not self.entries else f"has no {tier} price for"
            return None, f"{self.label} {said} {self.vendor}/{self.model}"
        for entry in reversed(of_tier):
            if not entry.holds(at) or (prompt.upto is not None and prompt.upto <= entry.above_tokens):
                continue
            if prompt.above < entry.above_tokens:
                return None, f"the list's limit of {entry.above_tokens} prompt tokens lies inside a class of lengths that is kept"
            return entry, ""
        return None, f"{self.label} has no {tier} price for {self.vendor}/{self.model} at {at.isoformat()}"


def sold_as(word: str | None) -> str:
    """How a request was sold, from the word the vendor or gateway has for it."""
    name = (word or "").strip().casefold()
    return TIERS.get(name, name)


def vendor_names(vendor: str) -> tuple[str, ...]:
    """The vendor's own name first, then those by which lists call it."""
    return (vendor, *SAME_VENDOR.get(vendor, ()))

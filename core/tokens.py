"""Token counts in four disjoint input buckets; only these may be added up."""

from __future__ import annotations

from dataclasses import dataclass, fields

from core.errors import BadRecord

MAX_TOKENS = 100_000_000
"""No request has more; a larger count is a unit slip or garbage and is quarantined."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Disjoint input buckets and output. ``output_reasoning`` is a subset of ``output``."""

    input_uncached: int = 0
    input_cache_read: int = 0
    input_cache_write_5m: int = 0
    input_cache_write_1h: int = 0
    output: int = 0
    output_reasoning: int = 0

    def __post_init__(self) -> None:
        u, r, w5, w1 = self.input_uncached, self.input_cache_read, self.input_cache_write_5m, self.input_cache_write_1h
        out, reasoning = self.output, self.output_reasoning
        all_whole = type(u) is type(r) is type(w5) is type(w1) is type(out) is type(reasoning) is int
        if not (all_whole and min(u, r, w5, w1, reasoning) >= 0 and max(u, r, w5, w1, out) <= MAX_TOKENS and reasoning <= out):
            self._explain()

    def _explain(self) -> None:
        for name in TOKEN_FIELDS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise BadRecord("must be a whole number", field=f"tokens.{name}", value=value)
            if value < 0:
                raise BadRecord("must not be negative", field=f"tokens.{name}", value=value)
            if value > MAX_TOKENS:
                raise BadRecord(f"exceeds {MAX_TOKENS}", field=f"tokens.{name}", value=value)
        if self.output_reasoning > self.output:
            raise BadRecord(
                f"is a part of output ({self.output}) and cannot exceed it",
                field="tokens.output_reasoning",
                value=self.output_reasoning,
            )

    @property
    def input_total(self) -> int:
        return self.input_uncached + self.input_cache_read + self.input_cache_write_5m + self.input_cache_write_1h

    @classmethod
    def from_inclusive(
        cls,
        prompt: int,
        output: int,
        *,
        cache_read: int = 0,
        cache_write_5m: int = 0,
        cache_write_1h: int = 0,
        reasoning: int = 0,
    ) -> TokenCounts:
        """From an OpenAI-style prompt count that includes its cached parts (source: facts of usage objects).

        Raises BadRecord when the parts exceed the whole.
        """
        uncached = prompt - cache_read - cache_write_5m - cache_write_1h
        if uncached < 0:
            raise BadRecord(
                f"cached parts ({cache_read}+{cache_write_5m}+{cache_write_1h}) exceed the prompt",
                field="prompt_tokens",
                value=prompt,
            )
        return cls(uncached, cache_read, cache_write_5m, cache_write_1h, output, reasoning)


TOKEN_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(TokenCounts))


@dataclass(frozen=True, slots=True)
class TokenSums:
    """Sums of ``TokenCounts`` over requests: the same disjoint buckets, without the bound of one request."""

    input_uncached: int = 0
    input_cache_read: int = 0
    input_cache_write_5m: int = 0
    input_cache_write_1h: int = 0
    output: int = 0
    output_reasoning: int = 0

    def __add__(self, other: TokenSums | TokenCounts) -> TokenSums:
        return TokenSums(*(getattr(self, name) + getattr(other, name) for name in TOKEN_FIELDS))

    @property
    def total(self) -> int:
        """Every token once: reasoning is a part of output."""
        return sum(getattr(self, name) for name in TOKEN_FIELDS if name != "output_reasoning")

"""Sketches of prompts' prefixes: what a guard sends as ``prefix_sketch``, and what two of them say of the tokens both share.

The elements of a prompt are its prefixes by whole blocks of 16 words: element k stands for all words from the first to the end
of block k. Two prompts with s blocks in common at their head share exactly s elements, so their Jaccard similarity is
s / (a + b - s): it measures what a prefix cache could reuse, and text that stands at different places does not count. A sketch
holds, for each of 64 fixed permutations, the least permuted element; the share of equal places estimates the similarity (standard
deviation at most 1/16).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from operator import eq

BLOCK_WORDS = 16
PERMUTATIONS = 64
PRIME = (1 << 61) - 1
MASK = (1 << 32) - 1


def prefix_elements(words: Sequence[str]) -> list[int]:
    """A 64-bit hash per whole block of words, each over the hash before it; none for fewer than 16 words."""
    found, head = [], b""
    for start in range(0, len(words) - BLOCK_WORDS + 1, BLOCK_WORDS):
        block = "\x1f".join(words[start : start + BLOCK_WORDS]).encode("utf-8", "surrogatepass")
        head = blake2b(head + block, digest_size=8).digest()
        found.append(int.from_bytes(head, "big"))
    return found


def sketch(elements: Iterable[int]) -> tuple[int, ...]:
    """64 numbers below 2^32, or none without elements. The order and repetition of elements do not matter."""
    taken = set(elements)
    if not taken:
        return ()
    return tuple(min((a * e + b) % PRIME for e in taken) & MASK for a, b in permutations())


@cache
def permutations() -> tuple[tuple[int, int], ...]:
    """(a, b) of each permutation x -> (a·x + b) mod 2^61 - 1; fixed for ever, for sketches of different guards are compared."""
    return tuple((1 + _seed(f"a{n}") % (PRIME - 1), _seed(f"b{n}") % PRIME) for n in range(PERMUTATIONS))


def _seed(name: str) -> int:
    return int.from_bytes(blake2b(f"tokenfuse/prefix-sketch/1/{name}".encode(), digest_size=16).digest(), "big")


def matches(one: Sequence[int], other: Sequence[int]) -> int:
    """At how many places two sketches are equal."""
    return sum(map(eq, one, other))


def places_needed(percent: int) -> int:
    """Equal places from which two sketches count as ``percent`` similar: 45 of 64 for 70."""
    return -(-PERMUTATIONS * percent // 100)


def shared_tokens(places: int, tokens: int, other_tokens: int) -> int:
    """Tokens at the head that both prompts have, rounded down: with J = places/64 and sizes a and b, J (a + b) / (1 + J); never
    more than the shorter prompt."""
    return min(places * (tokens + other_tokens) // (PERMUTATIONS + places), tokens, other_tokens)


@cache
def bands(needed: int) -> tuple[slice, ...]:
    """Cuts of a sketch, of which two sketches equal at ``needed`` places or more have at least one whole cut in common.

    One cut more than the places that may differ: so many differences cannot reach every cut. Nothing similar is missed.
    """
    number = PERMUTATIONS - needed + 1
    edges = [PERMUTATIONS * n // number for n in range(number + 1)]
    return tuple(slice(low, high) for low, high in pairwise(edges))

"""Sketches of prompts' prefixes: the estimate lies near the true similarity, and the search for similar ones misses none."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.minhash import BLOCK_WORDS, PERMUTATIONS, bands, matches, places_needed, prefix_elements, shared_tokens, sketch


def words(seed: int, blocks: int) -> list[str]:
    random = Random(seed)
    return [f"w{random.randrange(50_000)}" for _ in range(blocks * BLOCK_WORDS)]


def pair(seed: int, shared: int, more: int, other: int) -> tuple[list[str], list[str]]:
    """Two prompts with ``shared`` blocks at their head, and ``more`` and ``other`` blocks of their own after them."""
    head = words(seed, shared)
    return head + words(seed + 10_000, more), head + words(seed + 20_000, other)


@pytest.mark.parametrize(
    ("shared", "more", "other"), [(100, 0, 0), (90, 10, 10), (70, 15, 15), (50, 25, 25), (20, 60, 20), (0, 40, 40)]
)
def test_the_estimate_lies_near_the_true_similarity(shared: int, more: int, other: int) -> None:
    true = shared / (shared + more + other)
    errors = []
    for seed in range(40):
        one, two = (sketch(prefix_elements(text)) for text in pair(seed, shared, more, other))
        errors.append(matches(one, two) / PERMUTATIONS - true)
    spread = (true * (1 - true) / PERMUTATIONS) ** 0.5
    assert abs(sum(errors) / len(errors)) <= 4 * spread / len(errors) ** 0.5
    assert max(map(abs, errors)) <= 4 * spread


def test_a_prompt_is_its_head() -> None:
    text = words(1, 20)
    assert len(prefix_elements(text[:15])) == 0
    assert len(prefix_elements(text[:16])) == len(prefix_elements(text[:31])) == 1
    assert prefix_elements(text)[:7] == prefix_elements(text[: 7 * BLOCK_WORDS])
    assert set(prefix_elements(text)).isdisjoint(prefix_elements(["first", *text])), "a word before it moves every block"
    assert sketch([]) == ()
    assert len(sketch(prefix_elements(text))) == PERMUTATIONS
    assert all(0 <= value < 2**32 for value in sketch(prefix_elements(text)))


def test_the_permutations_are_fixed_for_ever() -> None:
    """Guards of different versions are compared: another value here is another sketch, under another name."""
    assert sketch([1, 2, 3])[:3] == (2475563145, 1232961211, 3121369985)
    assert prefix_elements(["a"] * 16) == [13223639486173974134]


@given(st.integers(45, 64), st.randoms(use_true_random=False))
def test_similar_sketches_always_have_a_band_in_common(equal: int, random: Random) -> None:
    one = [random.randrange(2**32) for _ in range(PERMUTATIONS)]
    differing = set(random.sample(range(PERMUTATIONS), PERMUTATIONS - equal))
    other = [value ^ 1 if n in differing else value for n, value in enumerate(one)]
    assert matches(one, other) == equal
    assert any(one[band] == other[band] for band in bands(places_needed(70)))


def test_bands_cut_the_whole_sketch() -> None:
    for percent in range(1, 101):
        cuts = bands(places_needed(percent))
        assert [n for cut in cuts for n in range(cut.start, cut.stop)] == list(range(PERMUTATIONS))
        assert all(cut.stop > cut.start for cut in cuts)
    assert (places_needed(70), places_needed(100), places_needed(1)) == (45, 64, 1)


@given(st.integers(0, 64), st.integers(0, 200_000), st.integers(0, 200_000))
def test_shared_tokens_are_those_of_both_prompts(places: int, one: int, other: int) -> None:
    found = shared_tokens(places, one, other)
    assert found == shared_tokens(places, other, one)
    assert 0 <= found <= min(one, other)
    similarity = Fraction(places, PERMUTATIONS)
    assert found <= similarity * (one + other) / (1 + similarity)
    assert shared_tokens(64, one, one) == one

"""Efficiency figures: sums divided last, each null with its reason."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from core.efficiency import FIGURES, IDLE, NO_NAME, NO_PAIRS, NO_PLUGIN, NOT_SEEN, SUMS, EngineSums, GpuSums, efficiency
from core.memory_growth import MemoryGrowth

MINUTE_US = 60_000_000


def engine(**sums: int) -> EngineSums:
    return EngineSums(observed_us=MINUTE_US, **sums)


def test_two_engines_at_90_and_10_per_cent_are_never_100_per_cent() -> None:
    """B13: the fullest at 0.9, the mean 0.5."""
    full = engine(kv_seen_us=MINUTE_US, kv_full_us=54_000_000, kv_token_us=900 * MINUTE_US, kv_capacity_us=1000 * MINUTE_US)
    empty = engine(kv_seen_us=MINUTE_US, kv_full_us=6_000_000, kv_token_us=100 * MINUTE_US, kv_capacity_us=1000 * MINUTE_US)
    found = efficiency([full, empty])
    assert (found.values["kv_use"], found.values["kv_use_max"]) == (Decimal("0.5"), Decimal("0.9"))


def test_the_mean_of_unlike_engines_goes_by_capacity_and_says_when_it_cannot() -> None:
    big = engine(kv_seen_us=MINUTE_US, kv_full_us=6_000_000, kv_token_us=300 * MINUTE_US, kv_capacity_us=3000 * MINUTE_US)
    small = engine(kv_seen_us=MINUTE_US, kv_full_us=54_000_000, kv_token_us=900 * MINUTE_US, kv_capacity_us=1000 * MINUTE_US)
    assert efficiency([big, small]).values["kv_use"] == Decimal("0.3")
    plain = efficiency([engine(kv_seen_us=MINUTE_US, kv_full_us=15_000_000)])
    assert plain.values["kv_use"] == Decimal("0.25")
    assert "plain mean" in plain.notes["kv_use"]


def test_the_hit_rate_is_marked_where_preemptions_rise() -> None:
    """B15: recomputation after preemption was counted as prefix hits."""
    calm = efficiency([engine(prefix_queries=200, prefix_hits=64)])
    assert calm.values["hit_rate"] == Decimal("0.32")
    assert calm.notes == {}
    pressed = efficiency([engine(prefix_queries=200, prefix_hits=64, preemptions=3)])
    assert pressed.notes["hit_rate"].startswith("unreliable")


def test_the_batch_gap_is_idle_time_over_busy_time() -> None:
    found = efficiency([engine(busy_us=45_000_000, running_us=90_000_000, waiting_us=6_000_000)])
    assert found.values["batch_gap"] == (Decimal(15) / 45).quantize(Decimal("1e-6"))
    assert found.values["busy_share"] == Decimal("0.75")
    assert (found.values["running_mean"], found.values["waiting_mean"]) == (Decimal("1.5"), Decimal("0.1"))


def test_batch_efficiency_needs_the_engines_configuration() -> None:
    sums = engine(steps=10, iteration_tokens=20_480, prompt_tokens=1, generation_tokens=1)
    unknown = efficiency([sums])
    assert unknown.values["tokens_per_step"] == 2048
    assert unknown.values["batch_efficiency"] is None
    assert "max_num_batched_tokens" in unknown.reasons["batch_efficiency"]
    assert efficiency([sums], max_batched_tokens=8192).values["batch_efficiency"] == Decimal("0.25")


def test_decode_time_is_shared_by_the_tokens_after_the_first() -> None:
    found = efficiency(
        [
            engine(
                decode_us=1_980_000, finished_generation_tokens=101, generation_tokens=150, requests_finished=2, queue_us=500_000
            )
        ]
    )
    assert found.values["decode_ms_per_token"] == Decimal("20")
    assert found.values["queue_s"] == Decimal("0.25")


def test_an_engine_nobody_saw_an_idle_one_and_a_silent_page_are_told_apart() -> None:
    unseen, idle = efficiency([EngineSums()]), efficiency([engine()])
    silent = efficiency([engine(generation_tokens=5, prompt_tokens=5, busy_us=1)])
    assert {unseen.reasons["busy_share"], unseen.reasons["decode_ms_per_token"]} == {NOT_SEEN}
    assert idle.values["busy_share"] == 0
    assert {idle.reasons["batch_gap"], idle.reasons["decode_ms_per_token"], idle.reasons["hit_rate"]} == {IDLE}
    assert {silent.reasons["decode_ms_per_token"], silent.reasons["kv_use"], silent.reasons["hit_rate"]} == {NO_NAME}


def test_memory_and_power_come_from_the_gpus_or_are_not_measured() -> None:
    assert "not measured" in efficiency([engine()]).reasons["power_w"]
    gpus = GpuSums(40 * MINUTE_US, 80 * MINUTE_US, MINUTE_US, 0, 0, 600 * MINUTE_US, 2 * MINUTE_US)
    found = efficiency([engine()], gpus=gpus)
    assert (found.values["memory_share"], found.values["power_w"]) == (Decimal("0.5"), Decimal("300"))


sums = st.builds(EngineSums, **{name: st.integers(0, 10**12) for name in SUMS})


@given(st.lists(sums, max_size=4))
def test_every_figure_is_there_or_says_why_not(engines: list[EngineSums]) -> None:
    found = efficiency(engines)
    assert list(found.values) == list(FIGURES)
    assert {name for name, value in found.values.items() if value is None} == set(found.reasons)
    assert all(found.reasons.values())


def test_fragmentation_is_memory_held_and_unused_over_held() -> None:
    sums = engine(torch_seen_us=MINUTE_US, torch_reserved_mib_us=100 * MINUTE_US, torch_allocated_mib_us=70 * MINUTE_US)
    found = efficiency([sums, engine()], growth=MemoryGrowth(Decimal("12.5"), 7, Decimal("24.000000")))
    assert (found.values["fragmentation"], found.values["memory_growth_mib_h"]) == (Decimal("0.3"), Decimal("12.5"))
    assert found.notes["memory_growth_mib_h"] == "by 7 windows over 24 hours"
    assert efficiency([sums]).reasons["memory_growth_mib_h"] == NO_PAIRS
    reversed_pair = engine(torch_seen_us=MINUTE_US, torch_reserved_mib_us=MINUTE_US, torch_allocated_mib_us=2 * MINUTE_US)
    assert efficiency([reversed_pair]).values["fragmentation"] is None


def test_without_the_plugin_memory_of_pytorch_is_not_measurable() -> None:
    found = efficiency([engine()])
    assert {found.reasons["fragmentation"], found.reasons["memory_growth_mib_h"]} == {NO_PLUGIN}
    assert efficiency([EngineSums()]).reasons["fragmentation"] == NOT_SEEN

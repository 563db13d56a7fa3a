"""The GPU fold as a specification: energy, shares and memory of one physical GPU, whatever its exporter does."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.engine_line import encode_gpu_line, is_gpu_line, parse_gpu_line
from core.errors import BadInput, BadRecord
from core.fold import KEPT, FoldState
from core.gpu import GpuSample
from core.gpu_fold import GpuDelta, decode_state, encode_state, fold
from core.gpu_spread import MEASURES
from core.windows import from_epoch_ms
from models.tables_gpu import GPU_MEASURES

T0 = 1_796_040_000_000
S = 1_000_000
"""Microseconds in a second."""
GAUGES = ("engine_active_ppm", "sm_active_ppm", "util_ppm", "power_mw", "memory_used_mib", "memory_total_mib")


def sample(at_s: float, energy_uj: int | None = None, *, pods: tuple[str, ...] = (), mig: str = "", **gauges: int) -> GpuSample:
    return GpuSample(
        target="http://dcgm:9400/metrics",
        gpu="GPU-1",
        at=from_epoch_ms(T0 + round(at_s * 1000)),
        mig=mig,
        cluster="c1",
        node="node-1",
        gpu_model="NVIDIA A10G",
        pods=pods,
        interval_ms=15_000,
        counters={} if energy_uj is None else {"energy_uj": energy_uj},
        gauges=gauges,
    )


def split_line(line: str) -> list[str]:
    [fields] = csv.reader([line])
    return fields


def run(samples: Iterable[GpuSample]) -> tuple[FoldState | None, list[GpuDelta]]:
    """Fold in order of arrival, through the line of the log and the bytes the stream keeps between two calls."""
    state: FoldState | None = None
    deltas: list[GpuDelta] = []
    for one in samples:
        fields = split_line(encode_gpu_line(one))
        assert is_gpu_line(fields)
        state, new = fold(state, parse_gpu_line(fields))
        state = decode_state(encode_state(state))
        deltas += new
    return state, deltas


def totals(deltas: Iterable[GpuDelta]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for delta in deltas:
        total.update(delta.measures)
    return {name: value for name, value in total.items() if value}


def test_measures_are_the_columns_of_the_rollup() -> None:
    assert MEASURES == GPU_MEASURES


@pytest.mark.parametrize(
    ("what", "samples", "expected"),
    [
        ("one reading is a baseline", [sample(0, 5_000_000, power_mw=300_000)], {"samples": 1}),
        (
            "energy counts from reading to reading",
            [sample(0, 100), sample(15, 4_500_000_100)],
            {"samples": 2, "energy_uj": 4_500_000_000, "energy_seen_us": 15 * S, "observed_us": 15 * S},
        ),
        (
            "B11 for energy: 100, 150, reset, 10, 30 are 80",
            [sample(0, 100), sample(15, 150), sample(30, 10), sample(45, 30)],
            {
                "samples": 4, "resets": 1, "energy_uj": 80, "energy_seen_us": 45 * S,
                "observed_us": 30 * S, "gap_us": 15 * S,
            },
        ),
        (
            "the energy of a silence did flow; what the GPU did in it is not known",
            [sample(0, 0, util_ppm=1_000_000), sample(600, 7, util_ppm=1_000_000)],
            {"samples": 2, "energy_uj": 7, "energy_seen_us": 600 * S, "gap_us": 600 * S},
        ),
        (
            "shares are time x mean of the two ends, beside the time they are known for",
            [sample(0, engine_active_ppm=200_000, sm_active_ppm=0), sample(10, engine_active_ppm=400_000, sm_active_ppm=100_000)],
            {
                "samples": 2, "observed_us": 10 * S, "engine_active_us": 3 * S, "engine_active_seen_us": 10 * S,
                "sm_active_us": S // 2, "sm_active_seen_us": 10 * S,
            },
        ),
        (
            "a share known at one end only is not known (a blank value is a gap of that share alone)",
            [sample(0, util_ppm=500_000, engine_active_ppm=1), sample(10, util_ppm=500_000)],
            {"samples": 2, "observed_us": 10 * S, "util_us": 5 * S, "util_seen_us": 10 * S},
        ),
        (
            "300 W for ten seconds are 3 kJ",
            [sample(0, power_mw=300_000), sample(10, power_mw=300_000)],
            {"samples": 2, "observed_us": 10 * S, "power_uj": 3_000_000_000, "power_seen_us": 10 * S},
        ),
        (
            "memory, both numbers or neither",
            [sample(0, memory_used_mib=10, memory_total_mib=100), sample(10, memory_used_mib=30, memory_total_mib=100)],
            {
                "samples": 2, "observed_us": 10 * S, "memory_used_mib_us": 200 * S, "memory_total_mib_us": 1000 * S,
                "memory_seen_us": 10 * S,
            },
        ),
        (
            "used without total is not known",
            [sample(0, memory_used_mib=10), sample(10, memory_used_mib=30)],
            {"samples": 2, "observed_us": 10 * S},
        ),
    ],
)  # fmt: skip
def test_what_readings_mean(what: str, samples: list[GpuSample], expected: dict[str, int]) -> None:
    assert totals(run(samples)[1]) == expected, what


def test_pods_that_come_and_go_share_out_one_gpu() -> None:
    """B21: the rows of one GPU add up to it, whoever held it."""
    first, second = ("prod/a",), ("prod/a", "prod/b")
    readings = [sample(0, 0, pods=first), sample(15, 10, pods=first), sample(30, 30, pods=second)]
    by_pods: Counter[str] = Counter()
    for delta in run(readings)[1]:
        by_pods[delta.pods] += delta.measures["energy_uj"]
    assert by_pods == {"prod/a": 10, "prod/a prod/b": 20}


def test_many_pods_are_listed_by_number() -> None:
    pods = tuple(f"ns/pod-{i}" for i in range(17))
    assert {delta.pods for delta in run([sample(0, 0, pods=pods)])[1]} == {"17 pods"}


readings = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 10**9)), min_size=1, max_size=KEPT, unique_by=lambda r: r[0])


@settings(deadline=None)
@given(readings, st.randoms(use_true_random=False))
def test_order_and_repetition_of_arrival_change_nothing(rows: list[tuple[int, int]], random: object) -> None:
    ordered = [sample(at_s, energy, util_ppm=energy % 1_000_001) for at_s, energy in sorted(rows)]
    mixed = [*ordered, *ordered[::2]]
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert totals(run(mixed)[1]) == totals(run(ordered)[1])


@given(readings)
def test_observed_and_gap_are_the_elapsed_time_to_the_microsecond(rows: list[tuple[int, int]]) -> None:
    ordered = sorted(rows)
    total = totals(run([sample(at_s, energy) for at_s, energy in ordered])[1])
    assert total.get("observed_us", 0) + total.get("gap_us", 0) == (ordered[-1][0] - ordered[0][0]) * S


def test_a_mig_instance_is_its_own_key() -> None:
    assert sample(0, mig="3").key.engine == "GPU-1/3"
    parsed = parse_gpu_line(split_line(encode_gpu_line(sample(0, mig="3", util_ppm=1))))
    assert (parsed.gpu, parsed.mig) == ("GPU-1", "3")


@pytest.mark.parametrize("state", [b"", b"gpu.v0\n[]", b"engine.v2\n[]", b"gpu.v1\n{}", b"\xff"])
def test_foreign_state_is_refused(state: bytes) -> None:
    with pytest.raises(BadInput):
        decode_state(state)


@pytest.mark.parametrize("payload", ['{"k":"gpu",', '{"k":"gpu","m":1}', '{"k":"gpu","m":"x","d":[],"c":{"nonsense":1}}'])
def test_a_damaged_line_is_refused(payload: str) -> None:
    with pytest.raises(BadRecord):
        parse_gpu_line(["id", "t", "GPU-1/", "c", "", "", "n", "1796040000000", payload])

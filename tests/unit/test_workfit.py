"""The fit of engine time: finds what made the time, is judged on unseen windows, refuses to guess."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest

from core.allocate import Work
from core.workfit import FitWindow, fit_weights, fit_work

STEP_US, COMPUTED_US, GENERATED_US, KV_US = 4_000, 25, 150, 0.002


def windows(count: int, noise: float = 0.0, seed: int = 1) -> list[FitWindow]:
    """Engine minutes made by known coefficients and relative noise."""
    random = Random(seed)
    found = []
    for _ in range(count):
        steps, computed = random.randint(500, 3_000), random.randint(10_000, 900_000)
        generated, kv = random.randint(1_000, 60_000), random.randint(10**8, 10**9)
        busy = steps * STEP_US + computed * COMPUTED_US + generated * GENERATED_US + kv * KV_US
        found.append(FitWindow(int(busy * random.uniform(1 - noise, 1 + noise)), steps, computed, generated, kv))
    return found


def test_known_coefficients_are_found() -> None:
    fit = fit_work(windows(60))
    assert fit.usable
    assert fit.held_out_error == pytest.approx(0, abs=1e-6)
    assert (fit.step_us, fit.computed_us) == (pytest.approx(STEP_US, rel=1e-3), pytest.approx(COMPUTED_US, rel=1e-3))
    assert (fit.generated_us, fit.kv_us) == (pytest.approx(GENERATED_US, rel=1e-3), pytest.approx(KV_US, rel=1e-3))


@pytest.mark.parametrize(("noise", "usable"), [(0.05, True), (0.9, False)])
def test_noise_shows_in_the_held_out_error_and_decides(noise: float, usable: bool) -> None:
    fit = fit_work(windows(60, noise))
    assert fit.held_out_error is not None
    assert fit.usable is usable
    assert (fit_weights(fit) is not None) is usable


@pytest.mark.parametrize("count", [0, 1, 19])
def test_fewer_than_twenty_windows_are_no_fit(count: int) -> None:
    fit = fit_work(windows(count))
    assert (fit.usable, fit.held_out_error) == (False, None)
    assert fit.reason == f"{count} windows with the engine busy throughout, 20 needed"


def test_windows_without_output_tell_nothing_of_it() -> None:
    fit = fit_work([FitWindow(60_000_000, 100, 1_000_000 + n, 0, 0) for n in range(30)])
    assert not fit.usable
    assert fit.reason == "the windows do not tell prompt work from output work"


def test_as_weights_an_output_token_bears_its_share_of_the_steps() -> None:
    fit = fit_work(windows(60))
    weights = fit_weights(fit)
    assert weights is not None
    expected = GENERATED_US + STEP_US * fit.steps / fit.generated
    assert float(weights.output) == pytest.approx(expected, rel=1e-3)
    assert weights.source == "fit"


def test_a_cached_token_weighs_its_share_of_the_kv_reads_alone() -> None:
    weights = fit_weights(fit_work(windows(60)))
    assert weights is not None
    found = weights.of(Work(1, 1_000, 1_000, 100, kv_work_x2=2 * 100 * 2_050))
    assert Decimal(0) < found["input_cached"] < found["input"]
    assert found["input"] - found["input_cached"] == weights.input * 1_000
    assert weights.of(Work(1, 1_000, 1_000, 0))["input_cached"] == 0

"""Forecasts on real load by rolling origin: ``python -m bench.forecast [DATA]`` prints errors and how often intervals held."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from core.forecast import Series, forecast, methods, wape


@dataclass(frozen=True, slots=True)
class Judged:
    """``errors``: WAPE by method. ``held``: share of 80 % intervals that held the sum that came. ``total_error``: median relative
    error of the sums."""

    origins: int
    errors: dict[str, float]
    chosen: float
    held: float
    total_error: float

    @property
    def better_naive(self) -> float:
        return min(error for name, error in self.errors.items() if "naive" in name)


def rolling(series: Sequence[float], horizon: int, seasons: tuple[int, ...], first: int, step: int) -> Judged:
    """From every ``step``-th origin from ``first`` on, each forecast knowing only what came before it."""
    pairs: dict[str, list[tuple[Series, Series]]] = {}
    held: list[bool] = []
    for origin in range(first, len(series) - horizon + 1, step):
        past, came = series[:origin], series[origin : origin + horizon]
        for name, method in methods(seasons).items():
            pairs.setdefault(name, []).append((method(past, horizon), came))
        found = forecast(past, horizon, seasons)
        pairs.setdefault("chosen", []).append((found.steps, came))
        if found.low is not None and found.high is not None:
            held.append(found.low <= sum(came) <= found.high)
    chosen = pairs.pop("chosen")
    totals = median(abs(sum(ahead) - sum(came)) / sum(came) for ahead, came in chosen)
    errors = {name: wape(judged) or 0.0 for name, judged in pairs.items()}
    return Judged(len(chosen), errors, wape(chosen) or 0.0, sum(held) / len(held), totals)


def servegen_hours(data: Path) -> list[float]:
    """Requests an hour of ServeGen m-large, all clients, 14 days."""
    hours: dict[int, float] = {}
    for part in (1, 2):
        with (data / f"traces/servegen/language_m-large_all_rates_{part}.csv").open() as file:
            for row in csv.DictReader(file):
                hour = int(float(row["window_start_s"]) // 3600)
                hours[hour] = hours.get(hour, 0.0) + float(row["rate_rps"]) * 600
    return [hours.get(n, 0.0) for n in range(max(hours) + 1)]


def burstgpt_days(data: Path) -> list[float]:
    """Tokens a day of BurstGPT_1, days 0 to 44."""
    with (data / "traces/burstgpt_1_daily/days_00_44.csv").open() as file:
        return [float(row["total_tokens"]) for row in csv.DictReader(file)]


def main() -> None:
    data = Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TOKENFUSE_DATA", "../shared/data"))
    hours, days = servegen_hours(data), burstgpt_days(data)
    cases = {
        "ServeGen m-large, 24 h ahead, an origin a day": rolling(hours, 24, (24, 168), 24, 24),
        "ServeGen m-large, 24 h ahead, every 6 h from day 4": rolling(hours, 24, (24, 168), 96, 6),
        "BurstGPT, 7 days ahead, an origin a day from day 14": rolling(days, 7, (7,), 14, 1),
        "BurstGPT, 1 day ahead, an origin a day from day 8": rolling(days, 1, (7,), 8, 1),
    }
    for name, found in cases.items():
        methods_said = ", ".join(f"{method} {error:.1%}" for method, error in found.errors.items())
        sys.stdout.write(
            f"{name}: {found.origins} origins\n  WAPE chosen {found.chosen:.1%}, better naive {found.better_naive:.1%}\n"
            f"  by method: {methods_said}\n"
            f"  80 % interval held {found.held:.0%}; median error of the total {found.total_error:.1%}\n"
        )


if __name__ == "__main__":
    main()

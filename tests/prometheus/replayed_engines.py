"""Three engines whose recorded time runs faster than the wall's: a recording of a real one, and two that count and restart."""

from __future__ import annotations

import re
import tarfile
import time
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

RECORDING = Path(__file__).parents[2] / "cli" / "demo" / "recording"
DOWN_AFTER_S = 12.0
"""Recorded seconds without a page after which the engine counts as down."""
_STAMP = re.compile(r"^(process_start_time_seconds|vllm:\w+_created(?:\{.*\})?) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Clock:
    """Recorded second 0 is the wall's ``zero``; recorded time runs ``speed`` times as fast."""

    zero: float
    speed: float

    def recorded_s(self) -> float:
        return (time.time() - self.zero) * self.speed

    def wall(self, recorded_s: float) -> float:
        return self.zero + recorded_s / self.speed


class Recorded:
    """The committed recording of a vLLM that was killed and restarted, again and again; its stamps are moved to the wall."""

    def __init__(self, clock: Clock, folder: Path) -> None:
        with tarfile.open(RECORDING / "pages.tar.xz") as pages:
            pages.extractall(folder, filter="data")
        self._clock = clock
        self._paths = sorted(folder.rglob("*.prom"), key=lambda path: float(path.stem))
        self._times = [float(path.stem) for path in self._paths]
        self._first, self._length_s = self._times[0], self._times[-1] - self._times[0] + 30

    def __call__(self) -> bytes | None:
        round_, past_s = divmod(self._clock.recorded_s(), self._length_s)
        place = bisect_right(self._times, self._first + past_s) - 1
        if place < 0 or self._first + past_s - self._times[place] > DOWN_AFTER_S:
            return None
        shift = round_ * self._length_s - self._first
        text = self._paths[place].read_text()
        return _STAMP.sub(lambda m: f"{m[1]} {self._clock.wall(float(m[2]) + shift):.3f}", text).encode()


@dataclass(frozen=True, slots=True)
class Counting:
    """A page whose counters grow with recorded time and restart every ``life_s``, down for 10 s before.

    ``stamped``: it tells when its process started.
    """

    clock: Clock
    life_s: float
    stamped: bool

    def __call__(self) -> bytes | None:
        lives, age_s = divmod(self.clock.recorded_s(), self.life_s)
        if age_s > self.life_s - 10:
            return None
        labels = '{engine="0",model_name="counting"}'
        lines = [
            f"vllm:prompt_tokens_total{labels} {int(age_s * 1000) + int(lives)}",
            f"vllm:generation_tokens_total{labels} {int(age_s * 37)}",
            f"vllm:num_requests_running{labels} {int(age_s) % 5}",
        ]
        if self.stamped:
            lines.append(f"process_start_time_seconds {self.clock.wall(lives * self.life_s):.3f}")
        return ("\n".join(lines) + "\n").encode()

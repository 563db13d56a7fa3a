"""Cost between closes: the work of an open quarter hour at unit rates frozen when it was first needed (state: estimate).

Within an open window tokens, elapsed time and nothing else grow, and the rates stay, so the running cost never falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from typing import Any

from core.allocate import Weights, Work, list_weights
from core.money import CONTEXT, ZERO, plain, quantize
from core.windows import QUARTER_HOUR

QUARTER_HOUR_US = 900_000_000
ASSUMED_UNITS_PER_GPU_S = 2_000
"""List-weighted tokens (input 1, output 2) a GPU serves in a second, where nothing was measured yet: our guess, not data."""


@dataclass(frozen=True, slots=True)
class RunningUnits:
    """Cost of one unit of work, and the window's whole capacity cost (None: unknown). ``source`` says what they rest on.

    ``unit`` bears the used cost alone, ``allocated_unit`` also idle and starting time as it was in the source window.
    """

    currency: str
    unit: Decimal
    allocated_unit: Decimal
    weights: Weights
    capacity: Decimal | None
    source: str

    def usage(self, work: Work, elapsed_us: int) -> Decimal:
        """At the unit, but no more than the capacity elapsed in the window: a source window with one small request in a minute
        must not price a busy one many times over."""
        return self._within(self.unit, work, elapsed_us)

    def allocated(self, work: Work, elapsed_us: int) -> Decimal:
        """At the allocated unit with the same limit, and no less than on the usage basis."""
        return max(self.usage(work, elapsed_us), self._within(self.allocated_unit, work, elapsed_us))

    def _within(self, unit: Decimal, work: Work, elapsed_us: int) -> Decimal:
        with localcontext(CONTEXT):
            cost = quantize(unit * self.weights.total(work))
            if self.capacity is None:
                return cost
            share = Decimal(min(max(elapsed_us, 0), QUARTER_HOUR_US)) / QUARTER_HOUR_US
            return min(cost, quantize(self.capacity * share))

    def as_text(self) -> dict[str, str | None]:
        """Decimals as plain text, for storage; ``units_from_text`` reads it back."""
        w = self.weights
        return {
            "unit": plain(self.unit), "allocated_unit": plain(self.allocated_unit), "input": plain(w.input),
            "input_cached": plain(w.input_cached), "output": plain(w.output), "kv": plain(w.kv),
            "capacity": None if self.capacity is None else plain(self.capacity),
        }  # fmt: skip


def units_from_text(units: Mapping[str, Any], currency: str, source: str) -> RunningUnits:
    """From ``as_text``, or from a closed window's ``detail["running"]``."""
    number = {name: Decimal(units[name]) for name in ("unit", "allocated_unit", "input", "input_cached", "output", "kv")}
    weights = Weights(source, number["input"], number["input_cached"], number["output"], number["kv"])
    capacity = units.get("capacity")
    return RunningUnits(
        currency, number["unit"], number["allocated_unit"], weights, None if capacity is None else Decimal(capacity), source
    )


def with_capacity(units: RunningUnits, capacity: Decimal | None) -> RunningUnits:
    return replace(units, capacity=capacity)


def first_units(
    currency: str, capacity: Decimal, targets: int, gpus: int, weights: Weights, busy_us: int, work: Work, source: str
) -> RunningUnits:
    """Before any window closed: what the engines' busy time so far cost, over the work done in it.

    ``busy_us`` is summed over the deployment's ``targets``. With no busy time or no work known, the rate card and an assumed
    throughput (``ASSUMED_UNITS_PER_GPU_S``) stand in, and the source says so.
    """
    with localcontext(CONTEXT):
        weight = weights.total(work)
        if busy_us > 0 and weight > 0:
            unit = capacity * busy_us / (QUARTER_HOUR_US * targets) / weight
            return RunningUnits(currency, unit, unit, weights, capacity, source)
        unit = capacity / (QUARTER_HOUR.seconds * gpus * ASSUMED_UNITS_PER_GPU_S) if gpus else ZERO
        return RunningUnits(currency, unit, unit, list_weights(), capacity, "rate card x assumed throughput")

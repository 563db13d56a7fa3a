"""From verdicts to alerts: for-duration, hysteresis and NO_DATA as a pure fold over windows.

A window is folded once: one that is not newer than the last changes nothing, so repeats, late windows and restarts are harmless.
It fires after verdicts of ``firing`` that lasted ``hold``, and recovers after verdicts of ``clear`` that lasted
``recover_after``; ``between`` keeps what stands and starts both durations anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from core.detect import Verdict

Event = Literal["fired", "recovered"]
Shown = Literal["OK", "WARNING", "ALERT", "NO_DATA"]


@dataclass(frozen=True, slots=True)
class Timing:
    """``hold``: how long it must fire; ``recover_after``: how long it must be clear; ``stale_after``: without a value so long
    it is shown as NO_DATA."""

    hold: timedelta = timedelta(minutes=5)
    recover_after: timedelta = timedelta(minutes=10)
    stale_after: timedelta = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class RuleState:
    """One rule on one scope. ``window_end``: up to when windows are folded. ``epoch`` grows by one with every event."""

    firing: bool = False
    epoch: int = 0
    window_end: datetime | None = None
    since: datetime | None = None
    firing_since: datetime | None = None
    clear_since: datetime | None = None
    no_data_since: datetime | None = None

    def shown(self, severity: str, timing: Timing) -> Shown:
        """What people see: NO_DATA once values were missing for long, though what stood before is held."""
        missing, end = self.no_data_since, self.window_end
        if end is None or (missing is not None and end - missing >= timing.stale_after):
            return "NO_DATA"
        if not self.firing:
            return "OK"
        return "ALERT" if severity == "page" else "WARNING"


def fold(timing: Timing, state: RuleState, verdict: Verdict, start: datetime, end: datetime) -> tuple[RuleState, Event | None]:
    """Fold the verdict of the window [start, end)."""
    if state.window_end is not None and end <= state.window_end:
        return state, None
    level = verdict.level
    after = replace(
        state,
        window_end=end,
        firing_since=(state.firing_since or start) if level == "firing" else None,
        clear_since=(state.clear_since or start) if level == "clear" else None,
        no_data_since=(state.no_data_since or start) if level == "no_data" else None,
    )
    if not state.firing and after.firing_since is not None and end - after.firing_since >= timing.hold:
        return replace(after, firing=True, epoch=state.epoch + 1, since=end), "fired"
    if state.firing and after.clear_since is not None and end - after.clear_since >= timing.recover_after:
        return replace(after, firing=False, epoch=state.epoch + 1, since=end), "recovered"
    return after, None

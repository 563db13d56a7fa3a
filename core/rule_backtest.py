"""What a rule would have done on a series: the same detector, fold and refits as live, window by window. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from core.detect import Baseline, Verdict
from core.money import ZERO, quantize
from core.rule_fold import RuleState, fold
from core.rules import Rule
from core.series import Point, Series, series_of
from core.windows import Window

WEEK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Judged:
    """A window with its verdict; ``at_risk``: what it cost above the usual, None where not known."""

    window: Window
    verdict: Verdict
    at_risk: Decimal | None


@dataclass(frozen=True, slots=True)
class Firing:
    """One alert there would have been: from its first firing window until it recovered (or the series ended)."""

    started_at: datetime
    fired_at: datetime
    ended_at: datetime
    recovered: bool
    verdict: Verdict
    at_risk: Decimal | None

    @property
    def window(self) -> Window:
        return Window(self.started_at, self.ended_at)

    def touches(self, windows: Iterable[Window]) -> bool:
        return any(self.started_at < w.end and w.start < self.ended_at for w in windows)


@dataclass(frozen=True, slots=True)
class Replay:
    """``windows`` judged, of which ``no_data`` were not known."""

    windows: int
    no_data: int
    firings: tuple[Firing, ...]


def judge_windows(rule: Rule, baseline: Baseline, points: Sequence[Point], window: Window) -> list[Judged]:
    """Every window of ``rule.window`` in ``window``, oldest first. Without a point it counts 0 where silence is 0."""
    step, series = rule.window, series_of(points, min_tokens=rule.min_tokens)
    by_start = {point.at: point for point in points}
    starts = (window.start + n * step for n in range((window.end - window.start) // step))
    return [judge_point(rule, baseline, series, by_start.get(start) or silent(rule, start)) for start in starts]


def silent(rule: Rule, start: datetime) -> Point:
    """A window without rows."""
    return Point(start, 0.0, 0) if rule.facts.silent_is_zero else Point(start, None)


def judge_point(rule: Rule, baseline: Baseline, series: Series, point: Point) -> Judged:
    """One window against a baseline; ``series`` holds the windows before it (and may hold more)."""
    window = Window(point.at, point.at + rule.window)
    if point.value is not None and point.tokens is not None and point.tokens < rule.min_tokens:
        few = f"{point.tokens} tokens in the window, {rule.min_tokens} needed"
        return Judged(window, Verdict("no_data", point.value, reason=few), None)
    verdict = rule.detector.judge(baseline, series.before(point.at), point.at, point.value)
    at_risk = money_at_risk(rule, verdict, point.tokens)
    if verdict.level == "firing" and at_risk is not None and at_risk < rule.min_money:
        little = f"{verdict.reason}; but only {at_risk:.6f} above the usual, {rule.min_money} matters"
        verdict = Verdict("clear", verdict.value, verdict.score, verdict.threshold, verdict.usual, little)
    return Judged(window, verdict, at_risk)


def money_at_risk(rule: Rule, verdict: Verdict, tokens: int | None) -> Decimal | None:
    """What the window cost above the usual, at decision prices (an estimate); None for metrics that are no cost."""
    if verdict.value is None or verdict.usual is None or not rule.facts.priced:
        return None
    excess = verdict.value - verdict.usual
    if rule.metric == "spend_rate":
        return quantize(Decimal(repr(excess * (rule.window / timedelta(hours=1)))))
    return None if tokens is None else quantize(Decimal(repr(excess * tokens / 1e6)))


def replay(rule: Rule, points: Sequence[Point], window: Window, refit_every: timedelta) -> Replay:
    """Walk the windows in ``window``; ``points`` also hold the history before it.

    Baselines are made anew every ``refit_every`` of the windows before then, those in which the rule itself fired left out, as
    live.
    """
    walk = _Walk(rule, series_of(points, min_tokens=rule.min_tokens))
    by_start = {point.at: point for point in points}
    unknown, count = 0, (window.end - window.start) // rule.window
    for n in range(count):
        start = window.start + n * rule.window
        if walk.made_at is None or start - walk.made_at >= refit_every:
            walk.refit(start)
        judged = judge_point(rule, walk.baseline, walk.series, by_start.get(start) or silent(rule, start))
        unknown += judged.verdict.level == "no_data"
        walk.take(judged)
    walk.close(window.end, recovered=False)
    return Replay(count, unknown, tuple(walk.firings))


class _Walk:
    """What a replay holds between windows; ``opened``: start of the firing under way, when it fired, on what verdict."""

    def __init__(self, rule: Rule, series: Series) -> None:
        self.rule, self.series = rule, series
        self.state, self.baseline = RuleState(), Baseline()
        self.made_at: datetime | None = None
        self.opened: tuple[datetime, datetime, Verdict] | None = None
        self.risk: Decimal | None = ZERO
        self.firings: list[Firing] = []

    def refit(self, start: datetime) -> None:
        own = [firing.window for firing in self.firings]
        if self.opened is not None and self.opened[0] < start:
            own.append(Window(self.opened[0], start))
        history = self.series.before(start).since(start - self.rule.detector.lookback)
        self.baseline, self.made_at = self.rule.detector.fit(history.without(own)), start

    def take(self, one: Judged) -> None:
        self.state, event = fold(self.rule.timing, self.state, one.verdict, one.window.start, one.window.end)
        if event == "fired":
            self.opened, self.risk = (self.state.firing_since or one.window.start, one.window.end, one.verdict), ZERO
        if self.opened is not None and one.verdict.level == "firing":
            self.risk = None if self.risk is None or one.at_risk is None else self.risk + one.at_risk
        if event == "recovered":
            self.close(one.window.end, recovered=True)

    def close(self, at: datetime, *, recovered: bool) -> None:
        if self.opened is not None:
            started_at, fired_at, verdict = self.opened
            self.firings.append(Firing(started_at, fired_at, at, recovered, verdict, self.risk))
            self.opened = None


def false_per_week(firings: Iterable[Firing], incidents: Sequence[Window], span: timedelta) -> Decimal:
    """Firings that touch no labelled incident, a week; to two decimals."""
    false = sum(not firing.touches(incidents) for firing in firings)
    return (Decimal(false) * WEEK.days * 86400 / Decimal(max(1, int(span.total_seconds())))).quantize(Decimal("0.01"))

"""Rules: which metric of which scopes is watched by which detector, and what its firing means. YAML's meaning, both ways.

A rule starts in shadow: it is evaluated and its alerts are kept, and nobody is told. Health rules are notices until a person says
that they were calibrated on own data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from core.detect import ConformalResidual, Detector, HourOfWeekZ, OwnPercentile, StaticThreshold
from core.errors import BadInput
from core.rule_fold import Timing
from core.rule_metrics import METRICS, Metric
from core.scopes import parse_scope
from core.windows import zone

Severity = Literal["notice", "warning", "page"]
SEVERITIES: tuple[Severity, ...] = ("notice", "warning", "page")
DETECTORS: Mapping[str, Callable[..., Detector]] = {
    "static": StaticThreshold,
    "percentile": OwnPercentile,
    "hour_of_week": HourOfWeekZ,
    "forecast": ConformalResidual,
}
EACH = ("each:deployment", "each:org", "each:team")
"""Scopes that stand for many: every deployment, organisation or team with a value."""
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_SPAN = re.compile(r"(\d+)\s*([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True, slots=True)
class Rule:
    """``tier``: the breaker tier it may feed, 0 for none. ``scope``: one of ``EACH`` or a scope's text. ``window``: the length of
    one measured window. Below ``min_tokens`` in a window nothing is known; an excess of less than ``min_money`` (currency of the
    scope's price, in one window) is not worth an alert."""

    name: str
    metric: str
    scope: str
    detector: Detector
    timing: Timing = field(default_factory=Timing)
    window: timedelta = timedelta(minutes=5)
    tier: int = 0
    severity: Severity = "notice"
    owner: str = ""
    channels: tuple[str, ...] = ()
    enabled: bool = True
    shadow: bool = True
    min_tokens: int = 0
    min_money: Decimal = Decimal(0)
    source: str = ""
    remedy: str = ""

    @property
    def facts(self) -> Metric:
        return METRICS[self.metric]


_TEXTS = ("owner", "source", "remedy")
_FLAGS = ("enabled", "shadow")
_SPANS = {"for": ("hold", timedelta(minutes=5)), "recover": ("recover_after", timedelta(minutes=10))}
_FIELDS = {
    "name", "metric", "scope", "detector", "window", "tier", "severity", "channels", "min_tokens", "min_money", "no_data_after",
    *_TEXTS, *_FLAGS, *_SPANS,
}  # fmt: skip


def rule_from(given: Any, where: str = "") -> Rule:
    """A rule of its YAML or JSON mapping. Raises BadInput naming ``where``, the field and the value."""
    if not isinstance(given, Mapping):
        raise BadInput("a rule is a mapping of fields", where=where, value=given, hint="see `tokenfuse rules export`")
    reader = _Reader(given, where)
    reader.known(_FIELDS)
    name = reader.text("name")
    if not NAME.fullmatch(name):
        raise reader.bad("must be lower-case letters, digits, dots, dashes, underscores (64 at most)", "name", name)
    metric = reader.text("metric")
    if metric not in METRICS:
        raise reader.bad("is not a metric", "metric", metric, f"use one of {', '.join(METRICS)}")
    spans = {field_: reader.span(key, default) for key, (field_, default) in _SPANS.items()}
    return Rule(
        name=name,
        metric=metric,
        scope=_scope(reader, METRICS[metric]),
        detector=_detector(reader),
        timing=Timing(**spans, stale_after=reader.span("no_data_after", timedelta(minutes=30))),
        window=_window(reader, METRICS[metric]),
        tier=reader.whole("tier", 0, 2),
        severity=reader.choice("severity", SEVERITIES, "notice"),
        channels=reader.names("channels"),
        min_tokens=reader.whole("min_tokens", 0, 2**53),
        min_money=reader.money("min_money"),
        **{key: reader.text(key, "") for key in _TEXTS},
        enabled=reader.flag("enabled"),
        shadow=reader.flag("shadow"),
    )


def rule_as(rule: Rule) -> dict[str, Any]:
    """The mapping that ``rule_from`` reads as the same rule; plain values for YAML and JSON."""
    kind = next(name for name, made in DETECTORS.items() if isinstance(rule.detector, made))  # type: ignore[arg-type]
    parameters = {name: getattr(rule.detector, name) for name in rule.detector.__dataclass_fields__}  # type: ignore[attr-defined]
    told = {key: span_text(v) if isinstance(v, timedelta) else v for key, v in parameters.items()}
    return {
        "name": rule.name, "metric": rule.metric, "scope": rule.scope, "window": span_text(rule.window),
        "detector": {"kind": kind, **told}, "for": span_text(rule.timing.hold), "recover": span_text(rule.timing.recover_after),
        "no_data_after": span_text(rule.timing.stale_after), "tier": rule.tier, "severity": rule.severity, "owner": rule.owner,
        "channels": list(rule.channels), "enabled": rule.enabled, "shadow": rule.shadow, "min_tokens": rule.min_tokens,
        "min_money": f"{rule.min_money.normalize():f}", "source": rule.source, "remedy": rule.remedy,
    }  # fmt: skip


def span_text(span: timedelta) -> str:
    """As ``7d``, ``6h`` or ``5m``, in the largest unit that divides it."""
    minutes = span // timedelta(minutes=1)
    for size, unit in ((1440, "d"), (60, "h")):
        if minutes and minutes % size == 0:
            return f"{minutes // size}{unit}"
    return f"{minutes}m"


class _Reader:
    def __init__(self, given: Mapping[Any, Any], where: str, prefix: str = "") -> None:
        self.given, self.where, self.prefix = given, where, prefix

    def bad(self, message: str, name: str, value: object = None, hint: str = "") -> BadInput:
        return BadInput(message, where=self.where, field=self.prefix + name, value=value, hint=hint)

    def known(self, names: set[str]) -> None:
        unknown = [str(key) for key in self.given if key not in names]
        if unknown:
            raise self.bad("is not a field", unknown[0], self.given[unknown[0]], f"fields are {', '.join(sorted(names))}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self.given.get(name, default)
        if value is None:
            raise self.bad("is missing", name)
        if not isinstance(value, str):
            raise self.bad("must be text", name, value)
        return value

    def choice(self, name: str, values: tuple[Any, ...], default: Any) -> Any:
        value = self.given.get(name, default)
        if value not in values:
            raise self.bad("is unknown", name, value, f"use {', '.join(values)}")
        return value

    def flag(self, name: str) -> bool:
        value = self.given.get(name, True)
        if not isinstance(value, bool):
            raise self.bad("must be true or false", name, value)
        return value

    def whole(self, name: str, default: int, most: int) -> int:
        value = self.given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self.bad(f"must be a whole number from 0 to {most}", name, value)
        return value

    def number(self, name: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(float(value)) < 1e300:
            raise self.bad("must be a number", name, value)
        return float(value)

    def money(self, name: str) -> Decimal:
        value = self.given.get(name, "0")
        try:
            found = Decimal(str(value))
        except InvalidOperation:
            found = Decimal("NaN")
        if isinstance(value, float | bool) or not found.is_finite() or found < 0:
            raise self.bad("must be an amount of 0 or more, as quoted text", name, value, 'write "0.05"')
        return found

    def names(self, name: str) -> tuple[str, ...]:
        value = self.given.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self.bad("must be a list of names", name, value)
        return tuple(value)

    def span(self, name: str, default: timedelta) -> timedelta:
        if name not in self.given:
            return default
        found = _SPAN.fullmatch(str(self.given[name]).strip())
        span = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found and len(found[1]) < 6 else None
        if span is None or span > timedelta(days=400):
            raise self.bad(
                "must be a span of whole minutes, hours or days, 400 days at most", name, self.given[name], "write 5m, 6h or 7d"
            )
        return span


def _scope(reader: _Reader, metric: Metric) -> str:
    text = reader.text("scope", EACH[0])
    if text in EACH:
        kind = "deployment" if text == EACH[0] else "tenant"
    else:
        try:
            kind = parse_scope(text).kind
        except BadInput as error:
            raise reader.bad(
                error.message, "scope", text, f"{error.hint or 'check the scope'}; or one of {', '.join(EACH)}"
            ) from error
    if kind not in metric.scopes:
        raise reader.bad(f"this metric is measured of: {', '.join(metric.scopes)}", "scope", text)
    return text


def _window(reader: _Reader, metric: Metric) -> timedelta:
    window = reader.span("window", max(timedelta(minutes=5), metric.step))
    hour = timedelta(hours=1)
    if window < metric.step or window > hour or hour % window:
        raise reader.bad(f"must divide an hour and be at least {span_text(metric.step)}", "window", reader.given.get("window"))
    return window


def _detector(reader: _Reader) -> Detector:
    given = reader.given.get("detector")
    if not isinstance(given, Mapping):
        raise reader.bad("must be a mapping with a kind", "detector", given, f"kinds are {', '.join(DETECTORS)}")
    inner = _Reader(given, reader.where, "detector.")
    kind = inner.text("kind")
    if kind not in DETECTORS:
        raise inner.bad("is not a detector", "kind", kind, f"use {', '.join(DETECTORS)}")
    fields = DETECTORS[kind].__dataclass_fields__  # type: ignore[attr-defined]
    inner.known({"kind", *fields})
    values = {name: _parameter(inner, name, fields[name].type) for name in given if name != "kind"}
    _within(inner, values)
    if kind == "static" and {"fire", "clear"} - values.keys():
        raise inner.bad("a static threshold needs both `fire` and `clear`", "fire" if "fire" not in values else "clear")
    return DETECTORS[kind](**values)


def _parameter(reader: _Reader, name: str, kind: object) -> Any:
    value = reader.given[name]
    if name == "lookback":
        return reader.span(name, timedelta(0))
    if name == "direction":
        return reader.choice(name, ("high", "low"), "high")
    if name == "zone":
        return zone(reader.text(name)).key
    if kind == "bool":
        return reader.flag(name)
    return reader.whole(name, 0, 100_000) if kind == "int" else reader.number(name, value)


_RANGES = {
    "percentile": (0.0, 100.0), "factor": (1.0, 1e6), "recover": (0.0, 1.0), "z": (0.1, 1e6), "floor": (0.0, 1e6),
    "alpha": (1e-6, 0.5), "margin": (0.1, 1e6), "least": (0.0, 1e300),
}  # fmt: skip


def _within(reader: _Reader, values: Mapping[str, Any]) -> None:
    for name, (least, most) in _RANGES.items():
        if name in values and not least <= values[name] <= most:
            raise reader.bad(f"must be from {least:g} to {most:g}", name, values[name])

"""What a bench row says: figures against their floor and goal, a peer beside them, and what the time went on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Better = Literal["more", "less"]
Verdict = Literal["goal", "floor", "BELOW FLOOR", ""]


@dataclass(frozen=True, slots=True)
class Figure:
    """``value`` in ``unit``; ``floor`` and ``goal`` in the same unit, None where no bar is set. ``peer`` is what ``peer_is`` took
    or reached in the same run; its ratio is peer / ours for "more" and ours / peer for "less": above 1 the peer is better."""

    name: str
    value: float
    unit: str
    better: Better = "more"
    floor: float | None = None
    goal: float | None = None
    peer: float | None = None
    peer_is: str = ""

    @property
    def ratio(self) -> float | None:
        if self.peer is None or not self.peer or not self.value:
            return None
        return self.peer / self.value if self.better == "more" else self.value / self.peer

    @property
    def verdict(self) -> Verdict:
        if self.floor is None and self.goal is None:
            return ""
        if self._reaches(self.goal):
            return "goal"
        return "floor" if self._reaches(self.floor) else "BELOW FLOOR"

    def _reaches(self, bar: float | None) -> bool:
        if bar is None:
            return False
        return self.value >= bar if self.better == "more" else self.value <= bar

    def as_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in ("name", "value", "unit", "better", "floor", "goal", "peer", "peer_is")}
        return {**fields, "ratio": self.ratio, "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Row:
    """One bar of the design, measured. ``start_up_s`` is apart from every figure; ``profile`` says what the time went on."""

    name: str
    what: str
    load: str
    figures: tuple[Figure, ...]
    profile: str
    start_up_s: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        about = {"name": self.name, "what": self.what, "load": self.load, "start_up_s": self.start_up_s}
        return {**about, "figures": [f.as_json() for f in self.figures], "profile": self.profile, "detail": dict(self.detail)}


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed. Raises ValueError without values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values were measured")
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def text_of(value: float | None) -> str:
    """Short and exact enough: 1,234,567 · 12.3 · 0.042."""
    if value is None:
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


COLUMNS = ("figure", "ours", "peer", "ratio", "floor", "goal", "verdict")


def cells(figure: Figure) -> tuple[str, ...]:
    sign = "≥ " if figure.better == "more" else "≤ "
    peer = f"{text_of(figure.peer)} ({figure.peer_is})" if figure.peer is not None else "–"
    ratio = f"{figure.ratio:.2f}×" if figure.ratio is not None else "–"
    bars = [sign + text_of(bar) if bar is not None else "–" for bar in (figure.floor, figure.goal)]
    return figure.name, f"{text_of(figure.value)} {figure.unit}", peer, ratio, *bars, figure.verdict or "shown"


def as_text(rows: Iterable[Row]) -> str:
    """The table for a terminal."""
    found: list[str] = []
    for row in rows:
        table = [COLUMNS, *(cells(f) for f in row.figures)]
        widths = [max(len(line[n]) for line in table) for n in range(len(COLUMNS))]
        found += [f"\n{row.what} [{row.name}]", f"  load: {row.load}"]
        found += [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
        ]
        found += [f"  start-up, apart: {row.start_up_s:.1f} s"] if row.start_up_s is not None else []
        found.append(f"  the time went on: {row.profile}")
    return "\n".join(found)


def as_markdown(rows: Iterable[Row]) -> str:
    found: list[str] = []
    for row in rows:
        found += [f"## {row.what}", "", f"Load: {row.load}.", "", "| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
        found += ["| " + " | ".join(cells(f)) + " |" for f in row.figures]
        found += ["", f"Start-up, apart: {row.start_up_s:.1f} s."] if row.start_up_s is not None else []
        found += ["", f"What the time went on: {row.profile}.", ""]
    return "\n".join(found)

"""How Flink is told a place on disk: it takes the text after ``file://`` as it is, so nothing in it is escaped."""

from __future__ import annotations

from pathlib import Path

_SCHEME = "file://"


def flink_path(place: Path) -> str:
    """``place`` (absolute) in the form of Flink's options."""
    return f"{_SCHEME}{place}"


def local_path(text: str) -> Path:
    """The way back from ``flink_path``."""
    return Path(text.removeprefix(_SCHEME))

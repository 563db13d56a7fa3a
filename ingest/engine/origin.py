"""What a page itself does not say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

TargetKind = Literal["engine", "gpu"]


@dataclass(frozen=True, slots=True)
class Origin:
    """``model_id`` renames the page's only model; ``interval_ms`` is the schedule; ``kind`` is what the page should hold."""

    cluster: str = ""
    namespace: str = ""
    node: str = ""
    model_id: str | None = None
    watched_since: datetime | None = None
    interval_ms: int | None = None
    kind: TargetKind = "engine"

"""What makes engine numbers less true: one row of topic ``fault`` each (table ``data_fault``)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from core.windows import floor_time, require_utc

FaultKind = Literal[
    "target_down",
    "target_timeout",
    "http_status",
    "redirect_refused",
    "page_too_large",
    "page_cut_short",
    "bad_page",
    "no_engine_metrics",
    "bad_value",
    "no_model_label",
    "metric_vanished",
    "engine_vanished",
    "several_processes",
    "unmapped_metrics",
    "bad_file_name",
    "source_down",
    "source_gap",
    "clock_skew",
    "read_twice",
    "target_vanished",
    "no_target_label",
    "router_page",
    "no_gpu_metrics",
    "no_gpu_id",
    "gpu_seen_twice",
    "gpu_vanished",
]
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Fault:
    """``subject`` tells faults of one kind, source and minute apart; those equal in all four are one row."""

    kind: FaultKind
    source: str
    at: datetime
    subject: str = ""
    detail: Mapping[str, object] = field(default_factory=dict)

    @property
    def id(self) -> str:
        minute = floor_time(self.at, MINUTE).isoformat()
        return hashlib.sha256("\0".join((self.kind, self.source, minute, self.subject)).encode()).hexdigest()[:32]


def fault_line(fault: Fault, noticed_at: datetime) -> str:
    """One JSON object: id, kind, source, window_start, window_end (the minute), detail, noticed_at."""
    start = floor_time(fault.at, MINUTE)
    body = {
        "id": fault.id,
        "kind": fault.kind,
        "source": fault.source,
        "window_start": _stamp(start),
        "window_end": _stamp(start + MINUTE),
        "detail": {**fault.detail, **({"subject": fault.subject} if fault.subject else {})},
        "noticed_at": _stamp(noticed_at),
    }
    return json.dumps(body, ensure_ascii=True, default=str)


def _stamp(at: datetime) -> str:
    return require_utc(at).isoformat().replace("+00:00", "Z")

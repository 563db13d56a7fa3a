"""Query parameters the reads share: a half-open window, grouping keys, filters, paging. Each fault names its parameter."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from api.deps import PartsDep
from core import period_text
from core.errors import BadInput
from core.windows import Window, floor_time, require_utc

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
LONGEST = timedelta(days=3660)
LOST_PLUS = re.compile(r" (\d{2}:?\d{2})$")
MAX_NAME = 120
NAME_PATTERN = r"^[^\x00-\x1f\x7f]*$"
TIME_SCHEMA: dict[str, Any] = {"format": "date-time"}


def parse_time(text: str, field: str) -> datetime:
    """RFC 3339 with an offset -> aware UTC. A ``+`` that the URL turned into a space is mended."""
    try:
        at = datetime.fromisoformat(LOST_PLUS.sub(r"+\1", text.strip()))
    except ValueError as error:
        raise BadInput(
            "is not a time", where="query", field=field, value=text, hint="send RFC 3339 such as 2026-11-30T12:00:00Z"
        ) from error
    if at.tzinfo is None:
        raise BadInput("time has no zone", where="query", field=field, value=text, hint="send an offset such as Z")
    if not EARLIEST <= at.replace(tzinfo=UTC) < LATEST:
        raise BadInput("is outside 2000..2200", where="query", field=field, value=text)
    return require_utc(at, field)


def parse_month(text: str, field: str) -> date:
    """The first day of ``YYYY-MM``."""
    return period_text.parse_month(text, field, where="query", hint="send 2026-07")


From = Annotated[str | None, Query(alias="from", max_length=40, description="Start, included.", json_schema_extra=TIME_SCHEMA)]
To = Annotated[str | None, Query(alias="to", max_length=40, description="End, excluded.", json_schema_extra=TIME_SCHEMA)]


Live = Annotated[bool, Query(description="true: measure budgets now instead of showing what the control loop last measured.")]


def _day_window(parts: PartsDep, since: From = None, until: To = None) -> Window:
    return parse_window(since, until, parts.now(), timedelta(days=1))


def parse_window(since: str | None, until: str | None, now: datetime, default: timedelta) -> Window:
    """``[from, to)``; what is left out makes a window of ``default`` that ends with the current minute."""
    minute = timedelta(minutes=1)
    end = parse_time(until, "to") if until else floor_time(now, minute) + minute
    start = parse_time(since, "from") if since else end - default
    if start >= end:
        raise BadInput("must be after `from`", where="query", field="to", value=end.isoformat())
    if end - start > LONGEST:
        raise BadInput("the window is longer than 10 years", where="query", field="from", value=start.isoformat())
    return Window(start, end)


DayWindow = Annotated[Window, Depends(_day_window)]
"""``from`` and ``to``; by default the day that ends with the current minute."""


def parse_by(text: str | None, known: Collection[str], default: tuple[str, ...] = ()) -> tuple[str, ...]:
    """``by=org,team`` -> keys, each known and named once."""
    keys = tuple(part.strip() for part in text.split(",") if part.strip()) if text else default
    for key in keys:
        if key not in known:
            raise BadInput("unknown key", where="query", field="by", value=key, hint=f"known: {', '.join(known)}")
    if len(set(keys)) != len(keys):
        raise BadInput("names a key twice", where="query", field="by", value=text)
    return keys


@dataclass(frozen=True, slots=True)
class Rows:
    """Which rows of a long answer: ``limit`` of them after the first ``offset``."""

    limit: int
    offset: int

    def of(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return rows[self.offset : self.offset + self.limit]


def _rows(
    limit: Annotated[int, Query(ge=1, le=50_000, description="Most rows to return.")] = 10_000,
    offset: Annotated[int, Query(ge=0, le=10_000_000, description="Rows to leave out at the start.")] = 0,
) -> Rows:
    return Rows(limit, offset)


RowsDep = Annotated[Rows, Depends(_rows)]


FILTER_KEYS: tuple[str, ...] = (
    "cluster", "namespace", "model_id", "org", "team", "project", "user", "key_id",
    "service_tier", "status", "usage_source", "workload_class",
)  # fmt: skip


def _filter(key: str) -> Any:
    return Query(alias=f"filter.{key}", max_length=MAX_NAME, pattern=NAME_PATTERN, description=f"Only rows of this {key}.")


def _filters(
    request: Request,
    cluster: Annotated[str | None, _filter("cluster")] = None,
    namespace: Annotated[str | None, _filter("namespace")] = None,
    model_id: Annotated[str | None, _filter("model_id")] = None,
    org: Annotated[str | None, _filter("org")] = None,
    team: Annotated[str | None, _filter("team")] = None,
    project: Annotated[str | None, _filter("project")] = None,
    user: Annotated[str | None, _filter("user")] = None,
    key_id: Annotated[str | None, _filter("key_id")] = None,
    service_tier: Annotated[str | None, _filter("service_tier")] = None,
    status: Annotated[str | None, _filter("status")] = None,
    usage_source: Annotated[str | None, _filter("usage_source")] = None,
    workload_class: Annotated[int | None, Query(alias="filter.workload_class", ge=0, le=32767)] = None,
) -> dict[str, str]:
    given = request.query_params
    return {key: given[f"filter.{key}"] for key in FILTER_KEYS if f"filter.{key}" in given}


Filters = Annotated[dict[str, str], Depends(_filters)]


@dataclass(frozen=True, slots=True)
class Paging:
    limit: int
    before: int | None


def _paging(
    limit: Annotated[int, Query(ge=1, le=1000, description="Most rows to return.")] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**62, description="`next` of the page before; newest first.")] = None,
) -> Paging:
    return Paging(limit, before)


Page = Annotated[Paging, Depends(_paging)]

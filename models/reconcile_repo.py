"""What ``core.reconcile`` is given: both views of each deployment per step of time, and what the minutes around them say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, text

from core.reconcile import EngineView, GatewayView
from core.usage import Deployment
from core.windows import Window, period_window, zone
from models.usage_keys import DEPLOYMENT_COLUMNS, TIME_KEYS, columns_of, filter_sql, key_sql
from models.usage_pieces import Level, coarsest_for
from models.usage_rollups import ENGINE, USAGE, Family, rollup_rows

VENDOR = "vendor"
INPUT_SQL = "input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h"
_FAILED = "status IN ('aborted', 'error')"
_GATEWAY: Mapping[str, str] = {
    "tokens_in": "sum(tokens_in)",
    "tokens_out": "sum(tokens_out)",
    "ok_requests": "sum(requests) FILTER (WHERE status = 'ok')",
    "failed_requests": f"sum(requests) FILTER (WHERE {_FAILED})",
    "failed_in": f"sum(tokens_in) FILTER (WHERE {_FAILED})",
    "failed_out": f"sum(tokens_out) FILTER (WHERE {_FAILED})",
    "repeated": "sum(repeated_input)",
    "failed_repeated": f"sum(repeated_input) FILTER (WHERE {_FAILED})",
    "estimated_requests": "sum(requests) FILTER (WHERE usage_source = 'estimated')",
    "estimated_in": "sum(tokens_in) FILTER (WHERE usage_source = 'estimated')",
    "estimated_out": "sum(tokens_out) FILTER (WHERE usage_source = 'estimated')",
    "ok_estimated": "sum(requests) FILTER (WHERE usage_source = 'estimated' AND status = 'ok')",
    "missing_requests": "sum(requests) FILTER (WHERE usage_source = 'missing')",
    "ok_missing": "sum(requests) FILTER (WHERE usage_source = 'missing' AND status = 'ok')",
}
_ENGINE_SUMS = (
    "prompt_tokens", "generation_tokens", "prompt_tokens_external", "finished_prompt_tokens", "finished_generation_tokens",
    "n_requests", "requests_finished", "resets", "gap_us",
)  # fmt: skip
_TELLS = "bool_and(finished_prompt_tokens > 0 OR requests_finished = 0) AND sum(finished_prompt_tokens) > 0"
_ENGINE: Mapping[str, str] = {
    "prompt": "sum(prompt_tokens)",
    "generation": "sum(generation_tokens)",
    "finished_prompt": f"CASE WHEN {_TELLS} THEN sum(finished_prompt_tokens) END",
    "finished_generation": f"CASE WHEN {_TELLS} THEN sum(finished_generation_tokens) END",
    "requests": "coalesce(nullif(sum(n_requests), 0), nullif(sum(requests_finished), 0))",
    "external": "sum(prompt_tokens_external)",
    "prefill_answers": "CASE WHEN sum(prompt_tokens_external) > 0 THEN "
    "coalesce(sum(requests_finished) FILTER (WHERE prompt_tokens_external = 0), 0) ELSE 0 END",
    "resets": "sum(resets)",
    "gap_us": "sum(gap_us)",
}


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows: a window of whole minutes, filters by deployment key, and the step of time (None: the window whole)."""

    window: Window
    filters: Mapping[str, str]
    time_key: str | None
    zone_name: str

    def span(self, step: datetime | date | None) -> Window:
        """The part of the window that a step's row is about."""
        if step is None:
            return self.window
        if isinstance(step, datetime):
            whole = Window(step, step + (timedelta(hours=1) if self.time_key == "hour" else timedelta(minutes=1)))
        else:
            noon = datetime(step.year, step.month, step.day, 12, tzinfo=zone(self.zone_name))
            whole = period_window("day", noon, self.zone_name)
        return Window(max(whole.start, self.window.start), min(whole.end, self.window.end))


@dataclass(frozen=True, slots=True)
class Key:
    """One deployment in one step of time."""

    step: datetime | date | None
    deployment: Deployment


@dataclass(frozen=True, slots=True)
class Views:
    """``engine`` None: no page of the deployment was read in that time."""

    engine: EngineView | None
    gateway: GatewayView


def read_views(connection: Connection, question: Question) -> dict[Key, Views]:
    """Both views of every deployment that worked; usage bought from vendors has no engine here and is left out."""
    gateway = {key: GatewayView(**row) for key, row in _gateway(connection, question)}
    engine = {key: EngineView(**row) for key, row in _engine(connection, question)}
    return {key: Views(engine.get(key), gateway.get(key, GatewayView())) for key in {*gateway, *engine}}


@dataclass(frozen=True, slots=True)
class ViewSums:
    """Both views of one row summed over its deployments. ``engine`` and ``difference`` (engine - gateway of the deployments
    whose engines were seen) are None where none was; each is (in, out)."""

    engine: tuple[int, int] | None
    gateway: tuple[int, int]
    difference: tuple[int, int] | None


_SIDES = """
    SELECT {keys}sum(e.tokens_in)::bigint AS engine_in, sum(e.tokens_out)::bigint AS engine_out,
           coalesce(sum(g.tokens_in), 0)::bigint AS gateway_in, coalesce(sum(g.tokens_out), 0)::bigint AS gateway_out,
           sum(e.tokens_in - coalesce(g.tokens_in, 0))::bigint AS difference_in,
           sum(e.tokens_out - coalesce(g.tokens_out, 0))::bigint AS difference_out
    FROM (SELECT {names}, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out FROM ({gateway}) part GROUP BY {names}) g
    FULL JOIN
         (SELECT {names}, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out FROM ({engine}) part GROUP BY {names}) e
    USING ({names}) {grouped}
"""


def read_view_sums(connection: Connection, question: Question, by: Sequence[str]) -> dict[tuple[Any, ...], ViewSums]:
    """The two views by the keys ``by`` without what tells why they differ: one statement, and one row a key."""
    where, values = filter_sql(question.filters)
    values["vendor"] = VENDOR
    booked = f"{INPUT_SQL} AS tokens_in, output AS tokens_out"
    did = "prompt_tokens AS tokens_in, generation_tokens AS tokens_out"
    gateway = _unsummed(question, USAGE, (), booked, f" AND cluster <> :vendor{where}", values, "g")
    engine = _unsummed(question, ENGINE, (), did, where, values, "e")
    keys = ", ".join(f'"{key}"' if key in TIME_KEYS else key_sql(key, "", question.zone_name, values) for key in by)
    grouped = f"GROUP BY {', '.join(str(n + 1) for n in range(len(by)))}" if by else "HAVING count(*) > 0"
    sql = _SIDES.format(keys=f"{keys}, " if by else "", names=_names(question), gateway=gateway, engine=engine, grouped=grouped)
    return {tuple(row[: len(by)]): _sides(row) for row in connection.execute(text(sql), values)}


def _sides(row: Any) -> ViewSums:
    seen = row.engine_in is not None
    return ViewSums(
        (row.engine_in, row.engine_out) if seen else None,
        (row.gateway_in, row.gateway_out),
        (row.difference_in, row.difference_out) if seen else None,
    )


def _gateway(connection: Connection, question: Question) -> Iterator[tuple[Key, dict[str, int]]]:
    where, values = filter_sql(question.filters)
    values["vendor"] = VENDOR
    columns = f"status, usage_source, {INPUT_SQL} AS tokens_in, output AS tokens_out, requests, repeated_input"
    found = _unsummed(question, USAGE, ("status", "usage_source"), columns, f" AND cluster <> :vendor{where}", values)
    sums = ", ".join(f"coalesce({rule}, 0)::bigint AS {name}" for name, rule in _GATEWAY.items())
    return _rows(connection, question, f"SELECT {_names(question)}, {sums} FROM ({found}) AS part", values)


def _engine(connection: Connection, question: Question) -> Iterator[tuple[Key, dict[str, int]]]:
    """Engines are summed one by one first: which of them tell, and which fetch prompts from others."""
    where, values = filter_sql(question.filters)
    found = _unsummed(question, ENGINE, ("target", "engine"), f"target, engine, {', '.join(_ENGINE_SUMS)}", where, values)
    each = ", ".join(f"sum({name}) AS {name}" for name in _ENGINE_SUMS)
    names = _names(question)
    engines = f"SELECT {names}, {each} FROM ({found}) AS part GROUP BY {names}, target, engine"
    sums = ", ".join(f"({rule})::bigint AS {name}" for name, rule in _ENGINE.items())
    return _rows(connection, question, f"SELECT {names}, {sums} FROM ({engines}) AS each", values)


def _unsummed(
    question: Question, families: Sequence[Family], own: Sequence[str], columns: str, where: str, values: dict[str, Any],
    side: str = "",
) -> str:  # fmt: skip
    """The rows of the question's window with its keys and ``columns``, which are of the key columns ``own`` and of sums."""
    coarsest = coarsest_for(question.time_key, question.window, question.zone_name)
    named = (*columns_of(question.filters), *DEPLOYMENT_COLUMNS, *own)

    def select(level: Level) -> str:
        return f"{_keys(question, level, values)}, {columns}"

    return rollup_rows(families, question.window, coarsest, named, select, where, values, side)


def _names(question: Question) -> str:
    return ", ".join([*([f'"{question.time_key}"'] if question.time_key else []), *DEPLOYMENT_COLUMNS])


def _keys(question: Question, level: str, values: dict[str, Any]) -> str:
    time = question.time_key
    step = [f'{key_sql(time, level, question.zone_name, values)} AS "{time}"'] if time else []
    return ", ".join([*step, *DEPLOYMENT_COLUMNS])


def _rows(
    connection: Connection, question: Question, sql: str, values: Mapping[str, Any]
) -> Iterator[tuple[Key, dict[str, int]]]:
    found = connection.execute(text(f"{sql} GROUP BY {_names(question)}"), values)
    names = tuple(found.keys())
    for values_of_row in found:
        row = dict(zip(names, values_of_row, strict=True))
        step = row.pop(question.time_key) if question.time_key else None
        yield Key(step, Deployment(*(row.pop(name) for name in DEPLOYMENT_COLUMNS))), row

"""How much of what the engines did the usage records explain, and why not all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import Connection, text

from core.money import CONTEXT
from core.windows import Window
from models.usage_keys import DEPLOYMENT, DEPLOYMENT_COLUMNS, TIME_KEYS, Row, check_keys, filter_sql, key_sql
from models.usage_pieces import coarsest_for, pieces

COVERAGE_KEYS: tuple[str, ...] = (*TIME_KEYS, DEPLOYMENT, *DEPLOYMENT_COLUMNS)
RATIO = Decimal("0.000001")
VENDOR = "vendor"
_INPUT = "input_uncached + input_cache_read + input_cache_write_5m + input_cache_write_1h"
_GATEWAY: dict[str, str] = {
    "all": "TRUE",
    "estimated_stream": "usage_source = 'estimated' AND status <> 'aborted'",
    "missing_usage": "usage_source = 'missing'",
    "aborted": "status = 'aborted'",
}
_ENGINE: dict[str, str] = {
    "engine_prompt_tokens": "sum(prompt_tokens)",
    "engine_generation_tokens": "sum(generation_tokens)",
    "resets": "sum(resets)",
    "gap_us": "sum(gap_us)",
}


def coverage_rows(
    connection: Connection,
    by: Sequence[str],
    window: Window,
    filters: Mapping[str, str] | None = None,
    *,
    zone_name: str = "UTC",
) -> list[Row]:
    """Per key: engine and gateway tokens, ``coverage`` = Σ min(engine, gateway) / Σ engine over prompt and generated tokens
    (six decimals; None when the engines did or said nothing), and ``reasons``: {name, tokens_in, tokens_out, requests}, None
    where the amount cannot be known. ``parallel_answers`` are prompt tokens the engine counted again for n > 1. Usage bought
    from vendors has no engine here and is left out.
    """
    time_key = check_keys(by, filters or {}, COVERAGE_KEYS)
    merged: dict[tuple[Any, ...], Row] = {}
    for row in _gateway(connection, by, window, filters or {}, time_key, zone_name):
        merged.setdefault(tuple(row[key] for key in by), {}).update(row)
    for row in _engine(connection, by, window, filters or {}, time_key, zone_name):
        merged.setdefault(tuple(row[key] for key in by), {}).update(row)
    return [_coverage(by, merged[key]) for key in sorted(merged, key=lambda key: tuple(map(str, key)))]


def _gateway(
    connection: Connection, by: Sequence[str], window: Window, filters: Mapping[str, str], time_key: str | None, zone_name: str
) -> list[Row]:
    where, values = filter_sql(filters)
    values["vendor"] = VENDOR
    found: list[str] = []
    for number, part in enumerate(pieces(window, coarsest_for(time_key, window, zone_name))):
        values |= {f"start{number}": part.start, f"end{number}": part.end}
        keys = "".join(f'{key_sql(key, part.level, zone_name, values)} AS "{key}", ' for key in by)
        found.append(
            f"SELECT {keys}status, usage_source, {_INPUT} AS tokens_in, output AS tokens_out, requests, repeated_input "
            f"FROM usage_{part.level} WHERE {part.level} >= :start{number} "
            f"AND {part.level} < :end{number} AND cluster <> :vendor{where}"
        )
    sums = ", ".join(
        f"coalesce(sum({measure}) FILTER (WHERE {rule}), 0)::bigint AS {name}_{measure}"
        for name, rule in _GATEWAY.items()
        for measure in ("tokens_in", "tokens_out", "requests")
    )
    sums += ", coalesce(sum(repeated_input), 0)::bigint AS parallel_answers"
    return _grouped(connection, by, sums, " UNION ALL ".join(found), values)


def _engine(
    connection: Connection, by: Sequence[str], window: Window, filters: Mapping[str, str], time_key: str | None, zone_name: str
) -> list[Row]:
    where, values = filter_sql(filters)
    coarsest = coarsest_for(time_key, window, zone_name)
    found: list[str] = []
    for number, part in enumerate(pieces(window, "day" if coarsest == "month" else coarsest)):
        values |= {f"start{number}": part.start, f"end{number}": part.end}
        keys = "".join(f'{key_sql(key, part.level, zone_name, values)} AS "{key}", ' for key in by)
        found.append(
            f"SELECT {keys}prompt_tokens, generation_tokens, resets, gap_us FROM engine_{part.level} "
            f"WHERE {part.level} >= :start{number} AND {part.level} < :end{number}{where}"
        )
    sums = ", ".join(f"({rule})::bigint AS {name}" for name, rule in _ENGINE.items())
    return _grouped(connection, by, sums, " UNION ALL ".join(found), values)


def _grouped(connection: Connection, by: Sequence[str], sums: str, inner: str, values: Mapping[str, Any]) -> list[Row]:
    keys = ", ".join(f'"{key}"' for key in by)
    grouped = f"GROUP BY {keys}" if by else "HAVING count(*) > 0"
    found = connection.execute(text(f"SELECT {keys}{', ' if by else ''}{sums} FROM ({inner}) AS part {grouped}"), values)
    return [dict(row) for row in found.mappings()]


def _coverage(by: Sequence[str], row: Row) -> Row:
    engine = row.get("engine_prompt_tokens"), row.get("engine_generation_tokens")
    gateway = row.get("all_tokens_in", 0), row.get("all_tokens_out", 0)
    shown = {key: row[key].isoformat() if key == "day" else row[key] for key in by}
    return shown | {
        "engine_prompt_tokens": engine[0],
        "engine_generation_tokens": engine[1],
        "gateway_input_tokens": gateway[0],
        "gateway_output_tokens": gateway[1],
        "coverage": _ratio(engine, gateway),
        "reasons": _reasons(row, engine, gateway),
    }


def _ratio(engine: tuple[int | None, int | None], gateway: tuple[int, int]) -> Decimal | None:
    worked = sum(tokens or 0 for tokens in engine)
    if not worked:
        return None
    explained = sum(min(did or 0, said) for did, said in zip(engine, gateway, strict=True))
    with localcontext(CONTEXT):
        return (Decimal(explained) / worked).quantize(RATIO)


def _reasons(row: Row, engine: tuple[int | None, int | None], gateway: tuple[int, int]) -> list[Row]:
    found = [
        _reason(name, row[f"{name}_tokens_in"], row[f"{name}_tokens_out"], row[f"{name}_requests"])
        for name in ("estimated_stream", "missing_usage", "aborted")
        if row.get(f"{name}_requests")
    ]
    if row.get("parallel_answers"):
        found.append(_reason("parallel_answers", row["parallel_answers"], 0, None))
    if engine[0] is None:
        return [*found, _reason("no_engine_samples", None, None, None)]
    missing = [max(0, (did or 0) - said) for did, said in zip(engine, gateway, strict=True)]
    excess = [max(0, said - (did or 0)) for did, said in zip(engine, gateway, strict=True)]
    if any(missing):
        found.append(_reason("unattributed", missing[0], missing[1], None))
    if any(excess):
        found.append(_reason("over_explained", excess[0], excess[1], None))
    if row.get("resets"):
        found.append(_reason("engine_reset", None, None, None) | {"count": row["resets"]})
    if row.get("gap_us"):
        found.append(_reason("scrape_gap", None, None, None) | {"seconds": Decimal(row["gap_us"]) / 1_000_000})
    return found


def _reason(name: str, tokens_in: int | None, tokens_out: int | None, requests: int | None) -> Row:
    """Missing usage has requests but no counts: what it burned is not known, and is not zero."""
    if name == "missing_usage":
        tokens_in = tokens_out = None
    return {"name": name, "tokens_in": tokens_in, "tokens_out": tokens_out, "requests": requests}

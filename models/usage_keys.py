"""The keys usage and coverage can be grouped and filtered by, and their SQL over the rollup tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.errors import BadInput
from core.windows import zone

KEY_COLUMNS: dict[str, str] = {
    "cluster": "cluster", "namespace": "namespace", "model_id": "model_id", "org": "org", "team": "team", "project": "project",
    "user": "user_id", "key_id": "key_id", "service_tier": "service_tier", "status": "status", "usage_source": "usage_source",
    "workload_class": "workload_class",
}  # fmt: skip
DEPLOYMENT = "deployment"
DEPLOYMENT_COLUMNS = ("cluster", "namespace", "model_id")
TIME_KEYS = ("minute", "hour", "day")
USAGE_KEYS: tuple[str, ...] = (*TIME_KEYS, DEPLOYMENT, *KEY_COLUMNS)
Row = dict[str, Any]


def check_keys(by: Sequence[str], filters: Mapping[str, str], known: Sequence[str]) -> str | None:
    """The time key in ``by`` if any. Raises BadInput naming a key that is unknown, doubled, or a second time key."""
    for field, names in (("by", by), ("filter", filters)):
        for name in names:
            if name not in known or (field == "filter" and name in TIME_KEYS):
                raise BadInput("is not a key of usage", field=field, value=name, hint=f"use {', '.join(known)}")
    times = [name for name in by if name in TIME_KEYS]
    if len(times) > 1 or len(set(by)) != len(by):
        raise BadInput("keys may not repeat, and only one time key can be asked for", field="by", value=",".join(by))
    return times[0] if times else None


def filter_sql(filters: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """`` AND column = :parameter …`` for the filters, with its values."""
    values: dict[str, Any] = {}
    for name, value in filters.items():
        if name == DEPLOYMENT:
            values |= dict(zip((f"f_{column}" for column in DEPLOYMENT_COLUMNS), _deployment_parts(value), strict=True))
        elif name == "workload_class":
            values["f_workload_class"] = _class_number(value)
        else:
            values[f"f_{KEY_COLUMNS[name]}"] = value
    return "".join(f" AND {name.removeprefix('f_')} = :{name}" for name in values), values


def _deployment_parts(value: str) -> list[str]:
    parts = value.split("/", 2)
    if len(parts) != 3:
        raise BadInput("must be CLUSTER/NAMESPACE/MODEL", field="filter.deployment", value=value)
    return parts


def _class_number(value: str) -> int:
    if not value.isdecimal():
        raise BadInput("must be a class number", field="filter.workload_class", value=value)
    return int(value)


def columns_of(names: Iterable[str]) -> set[str]:
    """The key columns these keys and filters need; a time key needs none."""
    columns: set[str] = set()
    for name in names:
        columns |= set(DEPLOYMENT_COLUMNS) if name == DEPLOYMENT else {KEY_COLUMNS[name]} if name in KEY_COLUMNS else set()
    return columns


def keys_sql(by: Sequence[str], level: str, zone_name: str, values: dict[str, Any]) -> str:
    """The keys as named columns, each followed by a comma."""
    return "".join(f'{key_sql(key, level, zone_name, values)} AS "{key}", ' for key in by)


def key_sql(key: str, level: str, zone_name: str, values: dict[str, Any]) -> str:
    """The SQL of one key over a rollup table's columns."""
    if key == DEPLOYMENT:
        return "cluster || '/' || namespace || '/' || model_id"
    if key == "day":
        values["zone"] = zone(zone_name).key
        return f"({level} AT TIME ZONE :zone)::date"
    if key in TIME_KEYS:
        return level if key == level else f"date_trunc('{key}', {level}, 'UTC')"
    return KEY_COLUMNS[key]

"""Identity rules at the boundary: prepared records under the tenant and tier that the rules of their time give them.

A record that rules do not change keeps its bytes. The answer is remembered by what decides it, in a bounded store: period, the
identity columns of the line, and, only where rules look at more, the parts of the record that say it.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from core.errors import BadRecord
from core.identity import PATH_PARTS, Facts
from core.identity_codec import IDENTITY, record_facts, said_of
from core.identity_state import IdentityState, Judge
from core.usage import TenantPath, encode_line
from core.usage_codec import TENANT_KEYS
from ingest.usage.refreshed import REFRESH_S, Refreshed
from ingest.usage.rows import BadRow, ParsedRow, Prepared

REMEMBERED = 50_000
_TIMES = len(",1780000000000,1780000000000,")
_IN_LINE = frozenset({*PATH_PARTS, "key_id", "service_tier", "cluster", "namespace", "model_id"})
_MODEL = re.compile(rb'"requested_model":"((?:[^"\\]|\\.)*+)"')
_IDENTITY = f'"{IDENTITY}":{{'.encode()
_RAW = b'"raw":{'
_RAW_IDENTITY = _RAW + _IDENTITY
Load = Callable[[str], "IdentityState | None"]
"""Given the revision held, the newer state, or None when it is the newest."""


class _Change(NamedTuple):
    """What rules make of an identity. ``line`` are the columns from cluster to service_tier; ``said`` JSON members."""

    line: str
    tenant: TenantPath
    tier: str
    old_tenant: bytes
    new_tenant: bytes
    old_tier: bytes
    new_tier: bytes
    said: bytes
    said_object: dict[str, Any]


class IdentityMapper:
    """Applies the rules; several threads may share one. ``clock`` is monotonic seconds."""

    def __init__(self, load: Load, clock: Callable[[], float], *, refresh_s: float = REFRESH_S) -> None:
        self._mapping: Refreshed[IdentityState, _Mapping] = Refreshed(
            load, _Mapping, clock, empty=_Mapping(IdentityState()), what="identity rules", refresh_s=refresh_s
        )

    def apply(self, rows: Sequence[ParsedRow], within: tuple[str, ...] = ()) -> Sequence[ParsedRow]:
        """The rows, mapped. ``within`` is the tenant a token is bound to: a row that rules put elsewhere is a bad row.

        Raises what ``load`` raises as long as no state was ever read; later a failed refresh keeps the last one.
        """
        mapping = self._mapping.value()
        if not mapping.has_rules:
            return rows
        mapped = [mapping.mapped(row) if type(row) is Prepared else row for row in rows]
        return [_inside(row, within) for row in mapped] if within else mapped


class _Mapping:
    """One state's rules, with what they were asked before."""

    def __init__(self, state: IdentityState) -> None:
        self._judge = Judge(state)
        self.has_rules = self._judge.has_rules
        fields = self._judge.fields
        self._asks_model = "requested_model" in fields
        self._asks_more = bool(fields - _IN_LINE - {"requested_model"})
        self._starts = self._judge.starts
        self._change = lru_cache(maxsize=REMEMBERED)(self._judged)

    def mapped(self, row: Prepared) -> Prepared:
        """The row as the rules of its time have it.

        Its identity lies in the line from cluster to tier: behind id and times, and up to the last ",P" (no column after the
        tier holds a capital letter).
        """
        _, request_id, _, finished_ms, line, record = row[:6]
        start, end = len(request_id) + _TIMES, line.rfind(",P") + len(",P1")
        if line[0] == '"' or line[start - 1] != "," or line[start - 15] != ",":
            start = len(encode_line(row[1:4])) + 1
        model = more = b""
        if self._asks_model and (found := _MODEL.search(record)):
            model = found[1]
        if self._asks_more and (place := record.find(_IDENTITY)) >= 0:
            more = record[place:]
        change = self._change(bisect_right(self._starts, finished_ms), line[start:end], model, more)
        if change is None:
            return row
        line = f"{line[:start]}{change.line}{line[end:]}"
        return tuple.__new__(Prepared, (*row[:4], line, _changed(record, change), *row[6:]))

    def _judged(self, period: int, columns: str, model: bytes, more: bytes) -> _Change | None:
        version = self._judge.version_of(period)
        if version is None:
            return None
        facts = _facts(columns, model, more)
        found = self._judge.resolve(facts, period)
        if found is None or (found.tenant, found.service_tier) == (facts.said, facts.service_tier):
            return None
        place, said = facts.deployment, said_of(facts, version)
        t = found.tenant
        names = (place.cluster, place.namespace, place.model_id, t.org, t.team, t.project, t.user, t.key_id, found.service_tier)
        return _Change(
            line=encode_line(names),
            tenant=t,
            tier=found.service_tier,
            old_tenant=_tenant_bytes(facts.said),
            new_tenant=_tenant_bytes(t),
            old_tier=f'"service_tier":"{facts.service_tier}"'.encode(),
            new_tier=f'"service_tier":"{found.service_tier}"'.encode(),
            said=orjson.dumps(said)[1:-1],
            said_object=said,
        )


def _facts(columns: str, model: bytes, more: bytes) -> Facts:
    """The facts of a new record from its line's columns and the parts of the record that were asked for."""
    cluster, namespace, model_id, *names, tier = next(csv.reader([columns]))
    record: dict[str, Any] = {
        "deployment": {"cluster": cluster, "namespace": namespace, "model_id": model_id},
        "tenant": dict(zip(TENANT_KEYS, names, strict=True)),
        "service_tier": tier,
        "requested_model": orjson.loads(b'"' + model + b'"'),
    }
    if more:
        record["raw"] = {IDENTITY: _first_object(more[len(_IDENTITY) - 1 :])}
    return record_facts(record, is_new=True)


def _first_object(text: bytes) -> Any:
    """The JSON object at the head of ``text``."""
    depth, is_text, at = 0, False, 0
    while at < len(text):
        letter = text[at : at + 1]
        if is_text:
            at += letter == b"\\"
            is_text = letter != b'"'
        elif letter == b'"':
            is_text = True
        elif letter in (b"{", b"}"):
            depth += 1 if letter == b"{" else -1
            if depth == 0:
                return orjson.loads(text[: at + 1])
        at += 1
    return {}


def _tenant_bytes(tenant: TenantPath) -> bytes:
    return b'"tenant":' + orjson.dumps({key: getattr(tenant, key) for key in TENANT_KEYS})


def _changed(record: bytes, change: _Change) -> bytes:
    """The full record under its new tenant and tier, with what the source said kept in ``raw.identity``.

    Cut and joined where the canonical text is of the ordinary form; everything else is parsed and written anew.
    """
    at = record.find(change.old_tenant)
    tier = record.find(change.old_tier, at)
    raw = record.find(_RAW, tier)
    rest = tier + len(change.old_tier)
    said, middle = change.said, record[at + len(change.old_tenant) : tier]
    if at < 0 or tier < 0:
        return _rewritten(record, change)
    if raw < 0:
        end = b"".join((record[rest:-1], b",", _RAW_IDENTITY, said, b"}}}"))
    elif record.find(b'"policy":', rest, raw) >= 0:
        return _rewritten(record, change)
    elif (place := record.find(_IDENTITY, raw)) < 0:
        end = b"".join((record[rest:raw], _RAW_IDENTITY, said, b"},", record[raw + len(_RAW) :]))
    elif place == raw + len(_RAW) and record.startswith(b'"', place + len(_IDENTITY)) and record.find(b'"said":', raw) < 0:
        end = b"".join((record[rest:place], _IDENTITY, said, b",", record[place + len(_IDENTITY) :]))
    else:
        return _rewritten(record, change)
    return b"".join((record[:at], change.new_tenant, middle, change.new_tier, end))


def _rewritten(record: bytes, change: _Change) -> bytes:
    body = orjson.loads(record)
    raw = body.get("raw") or {}
    raw = {
        IDENTITY: {**change.said_object, **{k: v for k, v in (raw.get(IDENTITY) or {}).items() if k not in ("said", "rules")}}
    } | {name: value for name, value in raw.items() if name != IDENTITY}
    body["tenant"] = {key: getattr(change.tenant, key) for key in TENANT_KEYS}
    body["service_tier"], body["raw"] = change.tier, raw
    return orjson.dumps(body)


def _inside(row: ParsedRow, within: tuple[str, ...]) -> ParsedRow:
    if not isinstance(row, Prepared):
        return row
    tenant = orjson.loads(row.record)["tenant"]
    path = tuple(tenant[part] for part in PATH_PARTS)
    if path[: len(within)] == within:
        return row
    error = BadRecord(
        f"identity rules put it outside this token's tenant {'/'.join(within)}",
        field="tenant",
        value="/".join(path).rstrip("/"),
        hint="bind the token to the tenant the rules give, or change the rules",
    )
    return BadRow(row.position, error, {"request_id": row.request_id, "tenant": tenant}, row.request_id)

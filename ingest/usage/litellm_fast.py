"""Ordinary LiteLLM payloads by a template: what repeats over a sender's calls is judged once, by the strict way.

A payload's key is everything the strict way reads of it but what is the call's own: ids, times, counts, the usage object. The
first payload of a key goes the strict way and leaves its line and record as a template; for the next ones only their own parts
are checked and filled in. Whatever is not plainly in order (failures, odd ids or times, bought APIs) goes the strict way, which
alone decides what is bad. Both give the same bytes (tests compare them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from core.errors import BadRecord
from core.texts import without_texts
from core.usage import UsageRecord, encode_line, line_fields
from core.usage_codec import UNMAPPED, usage_object
from core.usage_objects import tokens_from_usage, unmapped_fields
from core.windows import from_epoch_ms
from ingest.usage.litellm_call import LONGEST_ID
from ingest.usage.rows import Prepared

TEMPLATES_KEPT = 20_000
REPEATING = (
    "call_type", "cache_hit", "stream", "custom_llm_provider", "model", "model_id", "model_group", "api_base", "end_user",
    "request_tags", "error_information", "tokenfuse_policy", "tokenfuse_ends_operation",
    "tokenfuse_requested_model",
)  # fmt: skip
REPEATING_PARAMETERS = ("n", "stream", "stream_options")
REPEATING_METADATA = (
    "original_model_group", "attempted_retries", "attempted_fallbacks", "user_api_key_hash", "user_api_key_alias",
    "user_api_key_org_alias", "user_api_key_org_id", "user_api_key_team_alias", "user_api_key_team_id",
    "user_api_key_project_alias", "user_api_key_project_id", "user_api_key_end_user_id", "user_api_key_user_id",
    "requester_metadata", "spend_logs_metadata", "user_api_key_auth_metadata", "requester_custom_headers",
)  # fmt: skip
"""Everything ``ingest.usage.litellm.call_of`` reads beside a call's own parts; a test changes each of them."""
_LATER = ("operation_id", "session_id", "trace_id")
_PLAIN = re.compile(rf"[A-Za-z0-9_.:@/+=#~-]{{1,{LONGEST_ID}}}").fullmatch
_TAKEN = frozenset({"identity", "litellm", UNMAPPED})


class Own(NamedTuple):
    """A call's own parts, checked to be of the ordinary kind."""

    row_id: str
    call_id: str
    trace_id: str
    session_id: str
    started_us: int
    first_us: int | None
    finished_us: int
    """Microseconds since the epoch."""
    usage: dict[str, Any]


class _Template(NamedTuple):
    names: str
    """The line's columns from cluster to workload_class."""
    tail: str
    """Its repeated-prompt factor and operation end follow the counts."""
    answers: int
    place: str
    """Members ``deployment`` and ``tenant`` of the record."""
    middle: str
    """Members from ``usage_source`` to before ``trace_id``."""
    after: str
    """Members after ``session_id`` and before ``raw``."""
    identity: str
    litellm: str


class Templates:
    """What was judged of one body (its options are the same for all), by key."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Template | None] = {}

    def key(self, payload: Mapping[str, Any], metadata: Mapping[str, Any], usage: Mapping[str, Any], finish: str) -> bytes | None:
        """All that repeats; None when a repeating value is a float: NaN would be as null here."""
        get, said, parameters = payload.get, metadata.get, payload.get("model_parameters")
        asked = [parameters.get(name) for name in REPEATING_PARAMETERS] if isinstance(parameters, dict) else []
        headers = payload.get("hidden_params")
        more = headers.get("additional_headers") if isinstance(headers, dict) else None
        seen = isinstance(get("tokenfuse_upstream_usage"), dict)
        tried = (
            [value for name, value in more.items() if name.startswith("x-litellm-attempted")] if isinstance(more, dict) else []
        )
        values, facts = [get(name) for name in REPEATING], [said(name) for name in REPEATING_METADATA]
        if float in map(type, values) or float in map(type, facts) or float in map(type, asked):
            return None
        return orjson.dumps([values, asked, facts, tried, finish, bool(usage.get("prompt_tokens_details")), seen])

    def prepared(self, position: int, key: bytes, own: Own) -> Prepared | None:
        """The row, or None when the key has no template."""
        template = self._known.get(key)
        if template is None:
            return None
        try:
            return _filled(position, template, own)
        except BadRecord:
            return None

    def learn(self, key: bytes, record: UsageRecord) -> None:
        """Keep what the strict way made of the first payload of this key."""
        if len(self._known) >= TEMPLATES_KEPT:
            self._known.clear()
        self._known[key] = _template(record)


def _template(record: UsageRecord) -> _Template | None:
    """None for records whose shape depends on more than the key."""
    if record.vendor_cost is not None or record.provider != "self_hosted" or record.usage_source == "missing":
        return None
    found, fields = usage_object(record), line_fields(record)
    raw = found.get("raw", {})
    names = list(found)
    start, end = names.index("usage_source"), names.index("raw") if "raw" in found else len(names)
    middle = [name for name in names[start:end] if name not in _LATER and name not in ("ends_operation", "tools")]
    after = [name for name in names[start:end] if name in ("ends_operation", "tools")]
    return _Template(
        names=encode_line(fields[3:15]),
        tail=str(fields[23]),
        answers=record.n,
        place=_members(found, ["deployment", "tenant"]),
        middle=_members(found, middle),
        after="".join(f",{_members(found, [name])}" for name in after),
        identity=orjson.dumps(raw["identity"]).decode(),
        litellm=orjson.dumps(raw["litellm"]).decode(),
    )


def _members(found: Mapping[str, Any], names: list[str]) -> str:
    return ",".join([f'"{name}":{orjson.dumps(found[name]).decode()}' for name in names])


def _filled(position: int, template: _Template, own: Own) -> Prepared | None:
    k = tokens_from_usage(own.usage)
    kept = without_texts(own.usage)
    if not kept or not _TAKEN.isdisjoint(kept):
        return None
    request_id = f"{own.row_id}:generation"
    finished_ms = own.finished_us // 1000
    first_ms = finished_ms if own.first_us is None else own.first_us // 1000
    counts = ",".join(map(str, (k.input_uncached, k.input_cache_read, k.input_cache_write_5m, k.input_cache_write_1h)))
    repeated = (template.answers - 1) * k.input_total
    took_ms = finished_ms - own.started_us // 1000
    line = (
        f"{request_id},{first_ms},{finished_ms},{template.names},{counts},{k.output},{k.output_reasoning},{took_ms},{repeated},"
        f"{template.tail},1"
    )
    first = "" if own.first_us is None else f'"first_token_at":"{_stamp(own.first_us)}",'
    record = (
        f'{{"schema":"usage/1","request_id":"{request_id}","started_at":"{_stamp(own.started_us)}",{first}'
        f'"finished_at":"{_stamp(own.finished_us)}",{template.place},"tokens":{{"input_uncached":{k.input_uncached},'
        f'"input_cache_read":{k.input_cache_read},"input_cache_write_5m":{k.input_cache_write_5m},'
        f'"input_cache_write_1h":{k.input_cache_write_1h},"output":{k.output},"output_reasoning":{k.output_reasoning}}},'
        f"{template.middle}{_label('trace_id', own.trace_id)}{_label('operation_id', own.call_id)}"
        f'{_label("session_id", own.session_id)}{template.after},"raw":{{"identity":{template.identity},'
        f'{orjson.dumps(kept)[1:-1].decode()},"litellm":{template.litellm}}}}}'
    )
    return Prepared(position, request_id, first_ms, finished_ms, line, record.encode(), unmapped_fields(kept))


def _label(name: str, value: str) -> str:
    return f',"{name}":"{value}"' if value else ""


def _stamp(at_us: int) -> str:
    """RFC 3339 in UTC; microseconds only where there are any."""
    seconds, fraction = divmod(at_us, 1_000_000)
    return f"{_second(seconds)}.{fraction:06d}Z" if fraction else f"{_second(seconds)}Z"


@lru_cache(maxsize=100_000)
def _second(seconds: int) -> str:
    return from_epoch_ms(seconds * 1000).isoformat()[:19]


def is_plain(value: Any) -> bool:
    """Whether an id stands in line and record as it is."""
    return type(value) is str and _PLAIN(value) is not None and value != "None"


def is_plain_or_absent(value: Any) -> bool:
    """An absent label, or one that stands in the record as it is."""
    return not value or is_plain(value)

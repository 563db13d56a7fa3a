"""Format ``litellm``: the standard logging payloads LiteLLM's ``generic_api`` callback posts (a JSON array, NDJSON or one object,
by its ``log_format``), the same in files, or wrapped as ``{"event", "payload"}``. Shape read from LiteLLM 1.95.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from core.errors import BadRecord
from core.tokens import MAX_TOKENS
from core.usage import MAX_DURATION, MAX_ID, MAX_NAME, TenantPath
from core.usage_codec import EARLIEST, LATEST, whole_number
from ingest.usage.litellm_attempts import told_apart
from ingest.usage.litellm_call import Call, is_read, record_of, request_id, tag
from ingest.usage.litellm_fast import Own, Templates, is_plain, is_plain_or_absent
from ingest.usage.litellm_features import CALLING, GUARD_FEATURES, call_features
from ingest.usage.reading import Item, json_items
from ingest.usage.rows import BadRow, ParsedRow, ReadRow, SourceOptions, bad_row, prepare

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEEDED = ("call_type", "startTime", "endTime")
TOGETHER = 1_000
"""So many payloads are looked at side by side."""
EARLIEST_US, LATEST_US = (int(at.timestamp()) * 1_000_000 for at in (EARLIEST, LATEST))
HOUR_US = MAX_DURATION // timedelta(microseconds=1)
GUARD_SAYS = "tokenfuse_policy"
"""What our guard adds to a payload: the policy entry that acted on the call."""
GUARD_ENDS = "tokenfuse_ends_operation"
GUARD_ASKED = "tokenfuse_requested_model"
GUARD_SAW = "tokenfuse_upstream_usage"
"""The model the caller named; the usage a stream's chunks held, {} for none."""
Object = Mapping[str, Any]


class LiteLlm:
    """The adapter. ``by_template`` False: every payload goes the strict way (for comparison)."""

    def __init__(self, *, by_template: bool = True) -> None:
        self._by_template = by_template

    def looks_like(self, head: bytes) -> bool:
        return b'"call_type"' in head and (b'"litellm_call_id"' in head or b'"startTime"' in head)

    def rows(self, stream: BinaryIO, options: SourceOptions) -> Iterator[ParsedRow]:
        items, templates = json_items(stream), Templates() if self._by_template else None
        while chunk := list(islice(items, TOGETHER)):
            yield from _chunk_rows(chunk, templates, options)


class _Asked(NamedTuple):
    """A payload of the ordinary kind: its own parts, and the key of all else."""

    own: Own
    key: bytes
    templates: Templates


def _chunk_rows(chunk: list[Item | BadRow], templates: Templates | None, options: SourceOptions) -> list[ParsedRow]:
    """Rows that lie together: attempts of one operation are told apart among them, the others may go by template."""
    payloads = [None if isinstance(item, BadRow) else _payload(item[1]) for item in chunk]
    seen = Counter(_call_id(payload) for payload in payloads)
    rows: list[ParsedRow | None] = []
    strict: list[tuple[int, Call, _Asked | None]] = []
    for place, (item, payload) in enumerate(zip(chunk, payloads, strict=True)):
        if isinstance(item, BadRow):
            rows.append(item)
            continue
        asked = _asked(payload, templates) if templates and seen[_call_id(payload)] == 1 else None
        row: ParsedRow | None = asked.templates.prepared(item[0], asked.key, asked.own) if asked else None
        if row is None:
            try:
                strict.append((place, call_of(payload), asked))
            except BadRecord as error:
                row = bad_row(item[0], error, payload)
        rows.append(row)
    for (place, _, asked), call in zip(strict, told_apart([call for _, call, _ in strict]), strict=True):
        item = chunk[place]
        assert not isinstance(item, BadRow)
        rows[place] = _strictly(item[0], call, payloads[place], asked, options)
    return [row for row in rows if row is not None]


def _payload(item: Any) -> Any:
    """A payload without its wrapper."""
    return item.get("payload", item) if isinstance(item, dict) else item


def _call_id(payload: Any) -> str:
    found = payload.get("litellm_call_id") if isinstance(payload, dict) else None
    return found if isinstance(found, str) else ""


def _strictly(position: int, call: Call, payload: Any, asked: _Asked | None, options: SourceOptions) -> ParsedRow:
    try:
        if is_read(call):
            return judged(position, call, options)
        record = record_of(call, options)
        if asked:
            asked.templates.learn(asked.key, record)
        return prepare(record, position)
    except BadRecord as error:
        return bad_row(position, error, payload)


def _asked(payload: Any, templates: Templates) -> _Asked | None:
    """The payload's parts if it is of the ordinary kind: answered, with usage, ids and times in good order."""
    try:
        own = _own(payload)
        finish = _finish_reason(payload.get("response"))
        if own is None or finish in CALLING or GUARD_FEATURES in payload:
            return None
        key = templates.key(payload, payload["metadata"], own.usage, finish)
        return _Asked(own, key, templates) if key else None
    except (AttributeError, TypeError, ValueError, KeyError, BadRecord):
        return None


def _own(payload: dict[str, Any]) -> Own | None:
    get, metadata = payload.get, payload["metadata"]
    seen, row_id, call_id = upstream_usage(payload), payload["id"], payload["litellm_call_id"]
    usage = seen or metadata["usage_object"]
    begun, ended, completion = payload["startTime"], payload["endTime"], get("completionStartTime")
    session = get("session_id") or obj(metadata, "requester_metadata").get("session_id")
    numbers = (get("prompt_tokens"), get("completion_tokens"))
    if not (
        get("status") == "success" and not truth(get("cache_hit")) and isinstance(usage, dict) and usage and row_id != call_id
        and seen != {} and (usage.get("prompt_tokens") or usage.get("completion_tokens"))
        and type(begun) is type(ended) is float and (not completion or type(completion) is float)
        and is_plain(row_id) and is_plain(call_id) and is_plain_or_absent(get("trace_id")) and is_plain_or_absent(session)
        and all(number is None or (type(number) is int and 0 <= number <= MAX_TOKENS) for number in numbers)
    ):  # fmt: skip
        return None
    cost(payload, "response_cost")
    started_us, finished_us = round(begun * 1_000_000), round(ended * 1_000_000)
    if not (EARLIEST_US <= started_us <= finished_us < LATEST_US and finished_us - started_us <= HOUR_US):
        return None
    first_us = round(completion * 1_000_000) if completion else None
    in_order = first_us is not None and started_us <= first_us < finished_us
    first_us = first_us if in_order else None
    return Own(row_id, call_id, get("trace_id") or "", session or "", started_us, first_us, finished_us, usage)


def judged(position: int, call: Call, options: SourceOptions) -> ParsedRow:
    """A call as a record, or as a read of a stored answer."""
    if is_read(call):
        return ReadRow(
            position, request_id(call), f"{call.call_type} read a stored answer; its work is metered with the call that made it"
        )
    return prepare(record_of(call, options), position)


def call_of(payload: Any) -> Call:
    """A standard logging payload as a call. Raises BadRecord naming the field that is absent or wrong."""
    if not isinstance(payload, dict):
        raise BadRecord("must be a JSON object", field="record", value=type(payload).__name__)
    for name in NEEDED:
        if payload.get(name) is None:
            raise BadRecord("is required of a LiteLLM standard logging payload", field=name)
    metadata, error = obj(payload, "metadata"), obj(payload, "error_information")
    parameters, tags = obj(payload, "model_parameters"), names(payload.get("request_tags"))
    stream = payload.get("stream") if payload.get("stream") is not None else parameters.get("stream")
    return Call(
        row_id=label(payload, "id", 10_000),
        call_id=label(payload, "litellm_call_id", 10_000),
        call_type=label(payload, "call_type"),
        started_at=instant(payload, "startTime"),
        finished_at=instant(payload, "endTime"),
        completion_start=instant(payload, "completionStartTime") if payload.get("completionStartTime") else None,
        failed=payload.get("status") == "failure",
        cache_hit=truth(payload.get("cache_hit")),
        sold=label(parameters, "service_tier"),
        stream=stream if isinstance(stream, bool) else None,
        model=label(payload, "model"),
        model_group=label(payload, "model_group"),
        requested_group=label(payload, GUARD_ASKED) or label(metadata, "original_model_group"),
        upstream=(label(payload, "model_id"), label(payload, "model_group")),
        provider=label(payload, "custom_llm_provider"),
        api_base=label(payload, "api_base", 2000),
        tenant=tenant_of(metadata, tags, end_user=label(payload, "end_user"), key_id=label(metadata, "user_api_key_hash")),
        tags=tags,
        usage=obj(metadata, "usage_object"),
        prompt_tokens=count(payload, "prompt_tokens"),
        completion_tokens=count(payload, "completion_tokens"),
        cost_usd=cost(payload, "response_cost"),
        error_class=label(error, "error_class"),
        error_code=label(error, "error_code"),
        refused_by_us=refused_by_guard(error),
        attempt=1 + _stated(payload, metadata, "attempted_retries"),
        n=parameters["n"] if type(parameters.get("n")) is int and 1 <= parameters["n"] <= 1024 else 1,
        trace_id=label(payload, "trace_id", MAX_ID),
        fallbacks=_stated(payload, metadata, "attempted_fallbacks"),
        ends_operation=_ends(payload),
        session_id=label(payload, "session_id", MAX_ID) or label(obj(metadata, "requester_metadata"), "session_id", MAX_ID),
        finish_reason=_finish_reason(payload.get("response")),
        features=call_features(payload),
        key_alias=label(metadata, "user_api_key_alias"),
        metadata=labels_of(metadata),
        headers=obj(metadata, "requester_custom_headers"),
        policy=obj(payload, GUARD_SAYS) or None,
        upstream_usage=upstream_usage(payload),
    )


def _stated(payload: Object, metadata: Object, name: str) -> int:
    """``attempted_retries`` or ``attempted_fallbacks``: in newer metadata, or among the answer's headers of a buffered call."""
    if metadata.get(name) is not None:
        return count(metadata, name)
    headers = obj(obj(payload, "hidden_params"), "additional_headers")
    said = headers.get(f"x-litellm-{name.replace('_', '-')}")
    return said if type(said) is int and 0 <= said < 1000 else 0


def upstream_usage(payload: Object) -> Object | None:
    """What our guard saw of a stream's usage: the upstream's own object, {} for none; None where nobody looked."""
    said = payload.get(GUARD_SAW)
    return said if isinstance(said, dict) else None


def _ends(payload: Object) -> bool | None:
    """What our guard adds to a failure: whether the caller got it as the answer."""
    said = payload.get(GUARD_ENDS)
    return said if isinstance(said, bool) else None


def obj(item: Object, name: str) -> Object:
    """A nested object; absent, null or of another kind reads as empty."""
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def label(item: Object, name: str, limit: int = MAX_NAME) -> str:
    """A short string; null and LiteLLM's "None" read as ''. Numbers are taken as their digits."""
    value = item.get(name)
    if type(value) is str and len(value) <= limit:
        return "" if value == "None" else value
    if value is None or isinstance(value, (bool, dict, list)):
        return ""
    text = str(value)
    if len(text) > limit:
        raise BadRecord(f"is longer than {limit} characters", field=name, value=text)
    return text


def names(value: Any) -> tuple[str, ...]:
    """The strings of a list."""
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def truth(value: Any) -> bool:
    """LiteLLM writes booleans as true, "True" and "true"."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def count(item: Object, name: str) -> int:
    """A count, 0 when absent."""
    value = item.get(name)
    return 0 if value is None else whole_number(value, name, 0, MAX_TOKENS)


def cost(item: Object, name: str) -> float | None:
    """A cost in USD. LiteLLM keeps costs as floats; their shortest decimal is what it shows."""
    value = item.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise BadRecord("must be a number that is not negative", field=name, value=value)
    return value


def instant(item: Object, name: str) -> datetime:
    """Epoch seconds, or an ISO time with a zone."""
    value = item[name]
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return EPOCH + timedelta(microseconds=round(value * 1_000_000))
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRecord("is neither epoch seconds nor an ISO time", field=name, value=value) from error
    if at.tzinfo is None:
        raise BadRecord("time has no zone", field=name, value=value, hint="send an offset such as Z")
    return at.astimezone(UTC)


def tenant_of(metadata: Object, tags: tuple[str, ...], *, end_user: str, key_id: str) -> TenantPath:
    """Who called: the key's organisation, team and project (alias before id), else tags ``org:``, ``team:``, ``project:``; the
    end user the application named, else the key's user."""
    return TenantPath(
        org=label(metadata, "user_api_key_org_alias") or label(metadata, "user_api_key_org_id") or tag(tags, "org"),
        team=label(metadata, "user_api_key_team_alias") or label(metadata, "user_api_key_team_id") or tag(tags, "team"),
        project=label(metadata, "user_api_key_project_alias")
        or label(metadata, "user_api_key_project_id")
        or tag(tags, "project"),
        user=end_user or label(metadata, "user_api_key_end_user_id") or label(metadata, "user_api_key_user_id"),
        key_id=key_id,
    )


def labels_of(metadata: Object) -> dict[str, Any]:
    """What the key's owner and the caller put on a call; the owner's word wins."""
    found: dict[str, Any] = {}
    for name in ("requester_metadata", "spend_logs_metadata", "user_api_key_auth_metadata"):
        found |= obj(metadata, name)
    return found


def refused_by_guard(error: Object) -> bool:
    """Refused before any engine saw it: by our guard (its message names it), a LiteLLM budget, or a limit of the proxy's own."""
    message = error.get("error_message")
    ours = isinstance(message, str) and "tokenfuse" in message.lower()
    own_limit = label(error, "error_code") in {"401", "403", "429"} and not label(error, "llm_provider")
    return ours or own_limit or bool(label(error, "error_budget_entity_type"))


def _finish_reason(response: Any) -> str:
    choices = response.get("choices") if isinstance(response, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    reason = first.get("finish_reason") if isinstance(first, dict) else None
    return reason if isinstance(reason, str) and len(reason) <= 40 and reason.isprintable() else ""

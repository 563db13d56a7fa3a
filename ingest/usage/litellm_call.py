"""One LiteLLM call, whichever door its row came by (callback payload or spend log), to a usage record.

Rules that are not obvious:

- Identity: the upstream's response id + call class; a call without one (failures) is ``gateway:`` + LiteLLM's call id + attempt.
  Both doors give the same id for the same call. A bridged ``/v1/responses`` call that is logged twice has one upstream id and one
  class. Reading a stored response back (``aget_responses``) logs the whole cost again on each poll: it is no new work.
- ``usage_source``: LiteLLM counts a stream's tokens itself when the upstream sent no usage (also where it was asked to, or broke
  off), and does not say so. Exact is a stream of which our guard saw the upstream's own usage, or which has
  ``prompt_tokens_details`` (LiteLLM never invents them); else estimated. So is what a caller left: the engine went on until it
  noticed. A buffered answer is exact unless all its counts are 0, as LiteLLM writes where the upstream gave none: missing.
- Reasoning: an own count of LiteLLM's leaves it out of the output, so it is added; where LiteLLM fills it into the upstream's
  usage by its own tokenizer it may exceed the output, and then the split is not known and none is booked.
- ``cache_hit`` is LiteLLM's own response cache: no engine worked, so all counts are 0 (the stored usage stays in ``raw``).
- Retries and fallbacks of one request share LiteLLM's call id: it is the operation. ``trace_id`` is not (it is the session where
  there is one). Whether a failure was tried again is in ``litellm_attempts``; the spend log holds final failures only.
- Calls to a bought API lie in the deployment ``vendor/<provider>/<model>``; LiteLLM's cost is kept for those alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from core.errors import BadRecord
from core.identity_codec import IDENTITY, identity_facts
from core.money import Money
from core.texts import without_texts
from core.tokens import TokenCounts
from core.usage import SERVICE_TIERS, Deployment, Status, TenantPath, UsageRecord, UsageSource
from core.usage_objects import tokens_from_usage
from core.vendor_place import OWN_PROVIDERS, SELF_HOSTED
from ingest.usage.litellm_features import NOTHING, CallFeatures
from ingest.usage.rows import SourceOptions

OPENAI_LIKE = frozenset({"openai", "text-completion-openai"})
VENDOR_HOSTS = ("openai.com", "azure.com", "microsoft.com")
REFUSALS = frozenset(
    {
        "BudgetExceededError",
        "RejectedRequestError",
        "GuardrailRaisedException",
        "BlockedPiiEntityError",
        "ProxyModelNotFoundError",
    }
)
ABORTS = frozenset({"ClientDisconnected", "CancelledError", "ClientDisconnect", "GatewayStopped"})
"""The last is our guard's word for a call under way in a gateway that was killed."""
READS = ("get_responses", "delete_responses", "list_input_items", "cancel_responses", "retrieve_batch", "file_content")
LONGEST_ID = 160


@dataclass(frozen=True, slots=True)
class Call:
    """What a row says, before any judgement. Counts are LiteLLM's (the prompt includes its cached parts)."""

    row_id: str
    call_id: str
    call_type: str
    started_at: datetime
    finished_at: datetime
    completion_start: datetime | None
    failed: bool
    cache_hit: bool
    stream: bool | None
    model: str
    model_group: str
    requested_group: str
    upstream: tuple[str, ...]
    provider: str
    api_base: str
    tenant: TenantPath
    tags: tuple[str, ...]
    usage: Mapping[str, Any]
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    error_class: str
    error_code: str
    refused_by_us: bool
    attempt: int
    n: int
    trace_id: str
    session_id: str
    fallbacks: int = 0
    ends_operation: bool | None = None
    finish_reason: str = ""
    features: CallFeatures = NOTHING
    key_alias: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Labels the caller or the key's owner put on the call, and the caller's own headers: facts for identity rules."""
    policy: Mapping[str, Any] | None = None
    sold: str = ""
    """How the call asked to be sold (``service_tier``: flex, priority, batch …)."""
    upstream_usage: Mapping[str, Any] | None = None
    """A stream's usage as the upstream sent it, {} where it sent none; None where nobody looked."""


def is_read(call: Call) -> bool:
    """A call that fetched a stored answer: zero cost, no record."""
    return call.call_type.removeprefix("a") in READS


def request_id(call: Call) -> str:
    """The idempotency key of design 4.1."""
    if call.cache_hit or call.failed or not call.row_id or call.row_id == call.call_id:
        own = call.call_id or call.row_id
        if not own:
            raise BadRecord("is required", field="litellm_call_id", hint="the row has neither a response id nor a call id")
        return f"gateway:{short_id(own)}:{call.attempt}"
    return f"{short_id(call.row_id)}:{'read' if is_read(call) else 'generation'}"


def record_of(call: Call, options: SourceOptions) -> UsageRecord:
    """The record of one call that did (or tried) work. Raises BadRecord naming the field that is wrong."""
    status = _status(call)
    source = _usage_source(call, status)
    deployment, provider = _deployment(call, options)
    first = call.completion_start
    in_order = first is not None and call.started_at <= first < call.finished_at
    return UsageRecord(
        request_id=request_id(call),
        started_at=call.started_at,
        finished_at=call.finished_at,
        first_token_at=first if in_order else None,
        deployment=deployment,
        tenant=_tenant(call.tenant, options.tenant),
        tokens=_tokens(call, source),
        requested_model=call.requested_group or ("" if call.fallbacks else call.model_group),
        usage_source=source,
        status=status,
        policy=without_texts(call.policy) if call.policy else None,
        service_tier=_tier(call.tags),
        http_status=int(call.error_code) if call.error_code.isdecimal() and len(call.error_code) == 3 else _default_code(call),
        finish_reason=call.finish_reason,
        stream=call.stream,
        n=call.n,
        attempt=call.attempt,
        trace_id=call.trace_id,
        operation_id=short_id(call.call_id),
        ends_operation=call.ends_operation,
        session_id=call.session_id,
        tools=call.features.tools,
        repeat_ratio=call.features.repeat_ratio,
        prefix_sketch=call.features.prefix_sketch,
        provider=provider,
        vendor_cost=_vendor_cost(call, provider),
        raw=_raw(call),
    )


def short_id(name: str) -> str:
    """An id as it is when it is short and plain, else its head and hash."""
    if len(name) <= LONGEST_ID and name.isprintable() and not set(name) & {'"', "\\"}:
        return name
    return f"h:{blake2b(name.encode('utf-8', 'replace'), digest_size=16).hexdigest()}"


def _status(call: Call) -> Status:
    if call.error_class in ABORTS or call.error_code == "499":
        return "aborted"
    if not call.failed:
        return "ok"
    return "refused" if call.error_class in REFUSALS or call.refused_by_us else "error"


def _usage_source(call: Call, status: Status) -> UsageSource:
    if call.cache_hit or status == "refused":
        return "exact"
    usage = call.upstream_usage or call.usage
    if not (call.prompt_tokens or call.completion_tokens or _counts_any(usage)):
        return "missing"
    if call.failed or status == "aborted" or not usage:
        return "estimated"
    return "exact" if not call.stream or call.upstream_usage or _from_upstream(call) else "estimated"


def _counts_any(usage: Mapping[str, Any]) -> bool:
    return any(type(value) is int and value > 0 for value in usage.values())


def _from_upstream(call: Call) -> bool:
    return call.upstream_usage is None and bool(call.usage.get("prompt_tokens_details"))


def _tokens(call: Call, source: UsageSource) -> TokenCounts:
    if call.cache_hit or source == "missing":
        return TokenCounts()
    if call.upstream_usage:
        return tokens_from_usage(call.upstream_usage)
    if call.usage:
        return _counted_tokens(call)
    return TokenCounts.from_inclusive(call.prompt_tokens, call.completion_tokens)


def _counted_tokens(call: Call) -> TokenCounts:
    """LiteLLM's usage object, with the reasoning where it belongs."""
    details = call.usage.get("completion_tokens_details")
    reasoning = details.get("reasoning_tokens") if isinstance(details, dict) else None
    output = call.usage.get("completion_tokens")
    if not (call.stream and isinstance(details, dict) and type(reasoning) is type(output) is int):
        return tokens_from_usage(call.usage)
    own_count = call.upstream_usage == {} or (reasoning > output and not _from_upstream(call))
    if own_count:
        whole = {"completion_tokens": output + reasoning, "total_tokens": None}
        return tokens_from_usage({**call.usage, **whole})
    if reasoning > output:
        return tokens_from_usage({**call.usage, "completion_tokens_details": {**details, "reasoning_tokens": None}})
    return tokens_from_usage(call.usage)


def _deployment(call: Call, options: SourceOptions) -> tuple[Deployment, str]:
    model = _served_model(call)
    host = urlsplit(call.api_base).netloc if call.api_base else ""
    for name in (*call.upstream, host, model):
        if name and name in options.pools:
            return options.pools[name], SELF_HOSTED
    provider = call.provider
    bought = provider not in OWN_PROVIDERS and not (provider in OPENAI_LIKE and host and not host.endswith(VENDOR_HOSTS))
    if bought and model:
        return Deployment("vendor", provider, model), provider
    place = options.deployment or Deployment("default", "default", model)
    return Deployment(place.cluster, place.namespace, model or place.model_id), SELF_HOSTED


def _served_model(call: Call) -> str:
    prefix = f"{call.provider}/"
    return call.model.removeprefix(prefix) if call.provider else call.model


def _tenant(said: TenantPath, given: TenantPath) -> TenantPath:
    return TenantPath(
        said.org or given.org, said.team or given.team, said.project or given.project, said.user or given.user,
        said.key_id or given.key_id,
    )  # fmt: skip


def _tier(tags: tuple[str, ...]) -> Any:
    named = tag(tags, "service_tier")
    return named if named in SERVICE_TIERS else "P1"


def tag(tags: tuple[str, ...], name: str) -> str:
    """The value of a request tag ``name:value``, else ''."""
    return next((text.split(":", 1)[1].strip() for text in tags if text.startswith(f"{name}:")), "")


def _default_code(call: Call) -> int | None:
    return None if call.failed else 200


def _vendor_cost(call: Call, provider: str) -> Money | None:
    cost = call.cost_usd
    if cost is None or provider == SELF_HOSTED:
        return None
    amount = Decimal(repr(cost)) if isinstance(cost, float) else Decimal(cost)
    if not amount.is_finite():
        raise BadRecord("is not a finite number", field="response_cost", value=cost)
    return Money(amount, "USD")


def _raw(call: Call) -> dict[str, Any]:
    said = {"call_type": call.call_type, "error_class": call.error_class, "error_code": call.error_code}
    said["service_tier"] = call.sold
    kept = {name: value for name, value in said.items() if value}
    if call.cache_hit:
        kept["cache_hit"] = "true"
    said = identity_facts(
        key_alias=call.key_alias, gateway="litellm", tags=call.tags, headers=call.headers, metadata=call.metadata
    )
    return {IDENTITY: said} | without_texts(call.upstream_usage or call.usage) | {"litellm": without_texts(kept)}

"""The guard inside a LiteLLM proxy: ``litellm_settings: {callbacks: tokenfuse_guard.litellm_hook.handler}``.

Before routing it refuses, caps, reroutes, delays; after each call it hands the usage (never the texts) to the sender. A refusal
is raised before any deployment is chosen, so nothing is cooled down and no fallback is tried. LiteLLM calls the log hooks by
keyword: the parameter names must be exactly ``kwargs, response_obj, start_time, end_time``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from tokenfuse_guard.call_facts import charge_of, logged_headers
from tokenfuse_guard.entries import Decision, Match, Refusal, RequestFacts
from tokenfuse_guard.features import CallTexts, FeatureWorker
from tokenfuse_guard.fetch import Fetcher
from tokenfuse_guard.guard import Guard
from tokenfuse_guard.identity import is_self_hosted, key_of, labelled, served_deployment
from tokenfuse_guard.meters import NO_HOLD, Hold
from tokenfuse_guard.operations import Operations
from tokenfuse_guard.prompt import bound, output_field
from tokenfuse_guard.running_calls import unheard_of
from tokenfuse_guard.settings import GuardSettings, from_env
from tokenfuse_guard.store import USAGE_FOLDER
from tokenfuse_guard.stream_usage import StreamUsage
from tokenfuse_guard.tenant_header import HEADER, sign_tenant
from tokenfuse_guard.tokenizer import tokenize_request
from tokenfuse_guard.truncate import truncate
from tokenfuse_guard.usage_sender import Kept, UsageSender

try:
    from litellm.integrations.custom_logger import CustomLogger
    from litellm.proxy._types import ProxyException
except ImportError:  # the rest of the package works without LiteLLM

    class CustomLogger:  # type: ignore[no-redef]
        """Stands in where LiteLLM is not installed."""

    class ProxyException(Exception):  # type: ignore[no-redef]
        """Stands in where LiteLLM is not installed."""

        def __init__(self, message: str, type: str, param: str | None, code: int, headers: dict[str, str]) -> None:
            super().__init__(message)
            self.headers = headers


UNGUARDED_WORDS = ("retrieve", "list", "delete", "cancel", "get", "vector_store", "mcp", "moderation", "skill")
"""A call type that holds one of these runs no model; every other does, also those of a newer LiteLLM."""
TEXTS = frozenset(("messages", "response", "model_map_information", "standard_built_in_tools_params", "guardrail_information"))
"""Left out of what is sent: texts never leave the gateway, and the price table is the same in every payload."""
LONGEST_MODEL = 120
MAX_CALLS = 50_000
FORGET_AFTER_S = 3600.0
"""A call that LiteLLM never logged (a client that left at the wrong moment) frees what it held after this long."""


class Refused(ProxyException):
    """The refusal as LiteLLM's proxy answers it: its error handler writes ``to_dict()`` under "error", with these headers."""

    def __init__(self, refusal: Refusal) -> None:
        body = refusal.error_body()["error"]
        super().__init__(message=body["message"], type=body["type"], param=body["param"], code=503, headers=refusal.headers())
        self._body = body

    def to_dict(self) -> dict[str, Any]:
        return dict(self._body)


class _Call(NamedTuple):
    """What was decided on a call at ``at_s``, until it is logged."""

    hold: Hold
    note: str
    policy: dict[str, Any] | None
    at_s: float


class GuardHandler(CustomLogger):  # type: ignore[misc]
    """One per proxy process."""

    def __init__(self, settings: GuardSettings | None = None, guard: Guard | None = None) -> None:
        super().__init__()
        self._settings = settings or (guard.settings if guard is not None else from_env(os.environ))
        self.guard = guard or Guard(self._settings)
        folder = os.path.join(self._settings.state_dir, USAGE_FOLDER) if self._settings.state_dir else ""
        url = f"{self._settings.url}/v1/usage/litellm"
        self.sender = UsageSender(
            url, self._settings.token, folder, lambda lost: self.guard.counts.add("dropped", lost), before=self._settle
        )
        self._operations = Operations()
        self._streams = StreamUsage()
        self.features = FeatureWorker(self._settings.features_percent, self.sender.offer)
        self._fetcher = Fetcher(self.guard, self._stats)
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._lock = threading.Lock()
        self._started = False

    def start(self) -> None:
        """Start the background threads; a second call does nothing."""
        if self._started or not self._settings.url:
            return
        self._started = True
        self._fetcher.start()
        if self._settings.usage:
            self.sender.start()
            self.features.start()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Refuse (raises), or change ``data`` as the policy says."""
        self.start()
        kind = str(getattr(call_type, "value", call_type))
        if any(word in kind for word in UNGUARDED_WORDS):
            return None
        posture = self.guard.posture()
        if not posture.obey:
            self.guard.count_posture(posture)
            if posture.refusal is not None:
                raise Refused(posture.refusal)
            self._remember(data, _Call(NO_HOLD, posture.note, None, self.guard.now_s()))
            return None
        return await self._obey(user_api_key_dict, data)

    async def _obey(self, user: Any, data: dict[str, Any]) -> dict[str, Any] | None:
        model = str(data.get("model") or "")
        deployment = served_deployment(model, self._settings)
        tenant, tier = charge_of(self.guard, user, data, model, deployment)
        facts = RequestFacts(model=model, deployment=deployment, tenant=tenant, service_tier=tier)
        match = self.guard.match(facts)
        if match.needs_body:
            facts = await self._measured(match, facts, data)
        decision, hold = self.guard.decide(match, facts, can_truncate=self._settings.allow_truncate)
        if decision.refusal is not None:
            self._remember(data, _Call(NO_HOLD, "", _policy_json(decision, self.guard, facts), self.guard.now_s()))
            raise Refused(decision.refusal)
        if not decision.notes and hold is NO_HOLD:
            return None
        return await self._apply(decision, hold, facts, data)

    async def _measured(self, match: Match, facts: RequestFacts, data: dict[str, Any]) -> RequestFacts:
        found = bound(data, self._settings.template_allowance_tokens, self._settings.media_tokens)
        facts = facts._replace(prompt_tokens_at_most=found.tokens, max_output_tokens=found.max_output_tokens)
        if self._settings.tokenize and match.needs_prompt and (found.tokens is None or found.tokens > match.prompt_cap):
            loop = asyncio.get_running_loop()
            exact = await loop.run_in_executor(None, tokenize_request, self._settings.tokenize, data)
            facts = facts._replace(prompt_tokens=exact)
        return facts

    async def _apply(self, decision: Decision, hold: Hold, facts: RequestFacts, data: dict[str, Any]) -> dict[str, Any]:
        said: list[str] = []
        if decision.delay_s:
            said.append(f"delayed_s={decision.delay_s:g}")
            await asyncio.sleep(decision.delay_s)
        if decision.max_output_tokens is not None:
            data[output_field(data, "")] = decision.max_output_tokens
            said.append(f"max_output_tokens={decision.max_output_tokens}")
        if decision.truncate_to_tokens is not None:
            left = decision.truncate_to_tokens - self._settings.template_allowance_tokens
            if not truncate(data, left):
                self.guard.trouble("a prompt could not be cut to its limit and was passed whole")
            said.append(f"truncated_to={decision.truncate_to_tokens}")
        if decision.reroute_to:
            data["model"] = decision.reroute_to
            said.append(f"rerouted_to={decision.reroute_to}")
        self._remember(data, _Call(hold, "; ".join(said), _policy_json(decision, self.guard, facts), self.guard.now_s()))
        return data

    def _remember(self, data: Mapping[str, Any], call: _Call) -> None:
        call_id = str(data.get("litellm_call_id") or "")
        if not call_id:
            self.guard.meters.settle(call.hold, 0, self.guard.now_s())
            return
        with self._lock:
            self._calls[call_id] = call
            gone = []
            while self._calls:
                oldest = next(iter(self._calls.values()))
                if len(self._calls) <= MAX_CALLS and call.at_s - oldest.at_s <= FORGET_AFTER_S:
                    break
                gone.append(self._calls.popitem(last=False)[1])
        for old in gone:
            self.guard.meters.settle(old.hold, 0, self.guard.now_s())

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Vouch for the tenant towards an engine of ours, whose own guard then obeys tenant scopes; never towards a vendor."""
        known = labelled(kwargs)
        if self._settings.usage and self._settings.url:
            call_id = str(kwargs.get("litellm_call_id") or "")
            kind = str(getattr(call_type, "value", call_type))
            self.sender.began(call_id, unheard_of(call_id, kind, kwargs, known, self.guard.now_s()))
        keys = self._settings.tenant_keys
        if not keys or not is_self_hosted(str(kwargs.get("model") or "")):
            return None
        model = str(known.get("original_model_group") or known.get("model_group") or "")
        tenant, tier = charge_of(self.guard, key_of(known), kwargs, model, served_deployment(model, self._settings))
        if not tenant:
            return None
        signed = sign_tenant(tenant, tier, keys[0][1], self.guard.now_s())
        return {**kwargs, "extra_headers": {**(kwargs.get("extra_headers") or {}), HEADER: signed}}

    async def async_post_call_response_headers_hook(
        self, data: dict[str, Any], user_api_key_dict: Any = None, response: Any = None, **_: Any
    ) -> dict[str, str] | None:
        """Tell the client what was done to its request; note what it is given, a stream to look through or a failure."""
        call_id = str(data.get("litellm_call_id") or "")
        if response is None:
            self._operations.given_up(call_id, self.guard.now_s())
            self.sender.ended(call_id, every=True)
        else:
            self._streams.watch(call_id, response)
        call = self._calls.get(call_id)
        return {"x-tokenfuse-policy": call.note} if call is not None and call.note else None

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._log(kwargs)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._log(kwargs)

    def _log(self, kwargs: Any) -> None:
        """Hand the payload to the sender and free what the call held."""
        payload = kwargs.get("standard_logging_object")
        if not isinstance(payload, dict):
            self.guard.counts.add("dropped")
            self.guard.trouble("LiteLLM logged a call without a standard logging payload")
            return
        with self._lock:
            call = self._calls.pop(str(payload.get("litellm_call_id") or ""), None)
        if call is not None:
            self.guard.meters.settle(call.hold, int(payload.get("total_tokens") or 0), self.guard.now_s())
        if self._settings.usage and self._settings.url:
            found = {name: value for name, value in payload.items() if name not in TEXTS}
            if call is not None and call.policy is not None:
                found["tokenfuse_policy"] = call.policy
            self.start()
            self._hand_over(self.sender.keep(self._explained(found, kwargs)), payload)

    def _explained(self, found: dict[str, Any], kwargs: Any) -> dict[str, Any]:
        """With what LiteLLM's payload leaves out: the model the caller named, a header that identity rules look at, and a
        stream's usage as the upstream sent it."""
        headers = logged_headers(self.guard, kwargs.get("litellm_params"))
        if headers:
            metadata = found.get("metadata") or {}
            known = metadata.get("requester_custom_headers") or {}
            found["metadata"] = {**metadata, "requester_custom_headers": {**known, **headers}}
        asked = ((kwargs.get("litellm_params") or {}).get("proxy_server_request") or {}).get("body") or {}
        if isinstance(asked.get("model"), str) and len(asked["model"]) <= LONGEST_MODEL:
            found["tokenfuse_requested_model"] = asked["model"]
        seen = self._streams.seen(str(found.get("litellm_call_id") or ""), str(found.get("id") or ""))
        if seen is not None and found.get("status") == "success":
            found["tokenfuse_upstream_usage"] = seen
        return found

    def _hand_over(self, kept: Kept, payload: dict[str, Any]) -> None:
        """Failures wait until it is known whether another attempt followed."""
        call_id = str(payload.get("litellm_call_id") or "")
        if payload.get("status") == "failure":
            self.sender.ended(call_id, every=False)
            ready = self._operations.failed(call_id, kept, self.guard.now_s())
        else:
            self.sender.ended(call_id, every=True)
            ready = self._operations.answered(call_id)
            offered = (payload.get("model_parameters") or {}).get("tools")
            self.features.offer(kept, CallTexts(payload.get("messages"), payload.get("response"), offered))
        for failure in ready:
            self.sender.offer(failure)

    def _settle(self) -> None:
        for failure in self._operations.due(self.guard.now_s()):
            self.sender.offer(failure)

    def _stats(self) -> dict[str, Any]:
        return {**self.sender.stats(), **self.features.stats(), **self.guard.meters.overshoots(self.guard.now_s())}

    def stop(self) -> None:
        """Send or keep what is left."""
        self.features.stop()
        for failure in self._operations.due(self.guard.now_s(), everything=True):
            self.sender.offer(failure)
        self.sender.stop()
        self._fetcher.stop()


def _policy_json(decision: Decision, guard: Guard, facts: RequestFacts) -> dict[str, Any] | None:
    """What the usage record's ``policy`` says: the first acting entry's breaker, the policy's version, what was done."""
    acted = next(((entry, what) for entry, what in decision.notes if not what.startswith("would_")), None)
    if acted is None or guard.policy is None:
        return None
    entry, what = acted
    before = facts.prompt_tokens if facts.prompt_tokens is not None else facts.prompt_tokens_at_most
    return {"breaker": entry.breaker, "version": guard.policy.version, "action": what, "prompt_tokens_before": before}


_HANDLERS: dict[str, GuardHandler] = {}


def __getattr__(name: str) -> Any:
    """``handler``: made from the environment when LiteLLM asks for it, and fetching at once: the first request meets a policy."""
    if name != "handler":
        raise AttributeError(name)
    if name not in _HANDLERS:
        _HANDLERS[name] = GuardHandler()
        _HANDLERS[name].start()
    return _HANDLERS[name]

"""The list of fleet checks, as data, and what they find in the facts. Pure: no network, no clock.

Each row says what is looked at, why it costs money, where it can be read, and a line to paste that mends it (``{value}`` is the
rule's own proposal). What could not be read is unknown, never passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from core import fleet_engine as engine
from core import fleet_gateway as gateway
from core.fleet_facts import EngineFacts, GatewayFacts, Judgement, Seen, SubjectKind, Verdict, unknown

PAGE = "/metrics"
CACHE = "/metrics (vllm:cache_config_info), then start arguments"
ARGUMENTS = "start arguments (pod, or --args-file); /server_info where it is open"
ADMIN = "LiteLLM /get/config/callbacks, /health/readiness, or --litellm-config"
TELL = "tokenfuse doctor fleet --args-file engines.yaml   # lines ADDRESS: START COMMAND; docs/doctor-fleet.md"
TELL_GATEWAY = "tokenfuse doctor fleet --litellm-config config.yaml   # or set litellm_key to an admin's key"


@dataclass(frozen=True, slots=True)
class Check:
    """One row. ``fix`` is given with a fail, ``to_know`` with an unknown."""

    id: str
    what: str
    why: str
    source: str
    fix: str
    to_know: str = TELL


@dataclass(frozen=True, slots=True)
class EngineCheck(Check):
    judge: Callable[[EngineFacts], Judgement] = field(kw_only=True)
    needs_vllm: bool = True


@dataclass(frozen=True, slots=True)
class GatewayCheck(Check):
    judge: Callable[[GatewayFacts], Judgement] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of one subject. ``seen`` is the value read and ``where`` its source, empty where it could not be read."""

    subject: str
    kind: SubjectKind
    check: str
    verdict: Verdict
    seen: str
    where: str
    reason: str
    fix: str


def _switch(name: str, wanted: bool, good: str, bad: str, facts: EngineFacts) -> Judgement:
    told = facts.switch(name)
    if told is None:
        return unknown(facts, name)
    seen: Seen = facts.seen[name]
    return Judgement("pass" if told is wanted else "fail", good if told is wanted else bad, seen.value, seen.where)


_PREFIX = partial(_switch, "prefix_caching", True, "on", "off: shared prompts are computed anew each time")
_CHUNKED = partial(
    _switch, "chunked_prefill", True, "on", "off: one long prompt stops the answers of all others while it is read"
)
_EAGER = partial(_switch, "enforce_eager", False, "off: CUDA graphs are used", "on: each step pays the launch of every kernel")
_DETAILS = partial(
    _switch, "prompt_tokens_details", True, "answers say how much of a prompt was cached", "off: answers hide what was cached"
)

ENGINE_CHECKS: tuple[EngineCheck, ...] = (
    EngineCheck(
        "answers", "the engine's page answers", "an engine that is not read is paid for and explains nothing", PAGE,
        "curl -sS {value}   # from the machine Tokenfuse runs on", "", judge=engine.answers, needs_vllm=False,
    ),
    EngineCheck(
        "stats", "engine counters are on (no --disable-log-stats)", "without them no token of this engine has a cost", PAGE,
        "take --disable-log-stats out of the start command", judge=engine.stats, needs_vllm=False,
    ),
    EngineCheck(
        "capacity", "GPU type and count are known", "cost is GPUs × hours × rate: without them it is unknown", "settings",
        'gpu = "A10G"   # and count = 1, in the target or discovery block; or `tokenfuse node declare`', "",
        judge=engine.capacity, needs_vllm=False,
    ),
    EngineCheck(
        "restart_stamp", "the page says when its counters began",
        "a restart between two scrapes hides tokens that were paid for", PAGE,
        "unset PROMETHEUS_DISABLE_CREATED_SERIES; use one API server per page; scrape every 5 s where neither can be",
        judge=engine.restart_stamp, needs_vllm=False,
    ),
    EngineCheck(
        "version", "vLLM counts cached prompt tokens apart (0.16 and later)",
        "work that was served from cache is else charged as computed", "GET /version",
        "use vLLM 0.16 or later, for example image vllm/vllm-openai:v0.33.0",
        "curl -sS http://ENGINE/version", judge=engine.version,
    ),
    EngineCheck(
        "max_model_len", "the KV cache holds at least two requests of full length",
        "one request that takes the whole cache throws the others out; their tokens are computed and paid twice",
        "GET /v1/models, then start arguments, against vllm:cache_config_info",
        "--max-model-len {value}   # or: tokenfuse limit set --scope platform --name max_prompt_tokens --value {value}",
        judge=engine.max_model_len,
    ),
    EngineCheck(
        "max_num_seqs", "the batch fits the KV cache, and the KV cache the batch",
        "too small: memory paid for stays empty; too large: requests are preempted and computed again", ARGUMENTS,
        "--max-num-seqs {value}   # unless a latency goal needs another", judge=engine.max_num_seqs,
    ),
    EngineCheck(
        "max_num_batched_tokens", "a step has room for prompts beside a full batch",
        "steps too small leave the GPU waiting for memory: fewer tokens from the same hour", ARGUMENTS,
        "--max-num-batched-tokens {value}   # larger steps make the gap between two tokens longer",
        judge=engine.max_num_batched_tokens,
    ),
    EngineCheck(
        "gpu_memory_utilization", "the GPU memory paid for can be used",
        "memory left out holds no KV cache: smaller batches, dearer tokens", CACHE,
        "--gpu-memory-utilization {value}   # unless another program shares the GPU", judge=engine.gpu_memory_utilization,
    ),
    EngineCheck(
        "tensor_parallel_size", "the GPUs used are the GPUs paid for",
        "a GPU no engine uses is idle cost; one that is not declared is cost nobody sees", ARGUMENTS,
        "--tensor-parallel-size {value}   # or mend count in the target block", judge=engine.tensor_parallel_size,
    ),
    EngineCheck(
        "block_size", "KV blocks are small against requests", "the rest of a last block is reserved, empty, never cached", CACHE,
        "--block-size {value}", judge=engine.block_size,
    ),
    EngineCheck(
        "kv_cache_dtype", "8-bit KV cache where KV room is short",
        "8 bits hold twice the requests in the same memory", CACHE,
        "--kv-cache-dtype fp8   # compare answers before and after", judge=engine.kv_cache_dtype,
    ),
    EngineCheck(
        "prefix_caching", "prefix caching is on", "what requests share (system prompts, sessions) is computed once", CACHE,
        "--enable-prefix-caching   # and take --no-enable-prefix-caching out", judge=_PREFIX,
    ),
    EngineCheck(
        "chunked_prefill", "chunked prefill is on", "prompts and answers share steps, so the GPU is busy with both", ARGUMENTS,
        "--enable-chunked-prefill   # and take --no-enable-chunked-prefill out", judge=_CHUNKED,
    ),
    EngineCheck(
        "enforce_eager", "CUDA graphs are used (no --enforce-eager)", "eager steps give fewer tokens from the same GPU hour",
        ARGUMENTS, "take --enforce-eager out of the start command", judge=_EAGER,
    ),
    EngineCheck(
        "prompt_tokens_details", "answers say how much of a prompt was cached",
        "without it cached tokens of a request are unknown, and it pays for work nobody did", ARGUMENTS,
        "--enable-prompt-tokens-details", judge=_DETAILS,
    ),
    EngineCheck(
        "stream_usage", "streams end with their usage",
        "a stream without usage is booked by a guess: a third of the money went missing in our run", ARGUMENTS,
        "--enable-force-include-usage", judge=engine.stream_usage,
    ),
    EngineCheck(
        "dev_endpoints", "development calls are shut", "who reaches them can stop a paid engine or empty its cache",
        "GET /server_info (whether it is open)",
        "start without VLLM_SERVER_DEV_MODE, or bind the port to 127.0.0.1", "curl -sS -o /dev/null -w '%{{http_code}}' http://ENGINE/server_info",
        judge=engine.dev_endpoints,
    ),
)  # fmt: skip

GATEWAY_CHECKS: tuple[GatewayCheck, ...] = (
    GatewayCheck(
        "gateway_answers", "the gateway is ready", "a gateway that is down sells nothing while GPUs are paid",
        "LiteLLM /health/readiness", "curl -sS {value}/health/readiness", "", judge=gateway.answers,
    ),
    GatewayCheck(
        "hook", "the guard's hook is installed", "without it no budget and no limit can refuse a request", ADMIN,
        'callbacks: ["tokenfuse_guard.handler"]   # under litellm_settings; deploy/litellm/', TELL_GATEWAY, judge=gateway.hook,
    ),
    GatewayCheck(
        "usage_reported", "every call is reported", "calls nobody reports are cost nobody owns", ADMIN,
        'callbacks: ["tokenfuse_guard.handler"]   # or generic_api with GENERIC_LOGGER_ENDPOINT=https://TOKENFUSE/v1/usage/litellm',
        TELL_GATEWAY, judge=gateway.usage_reported,
    ),
    GatewayCheck(
        "always_include_stream_usage", "every stream is asked for its usage",
        "LiteLLM books a stream without usage by its visible text: reasoning is missed",
        "LiteLLM /config/list (with a database), or --litellm-config",
        "always_include_stream_usage: true   # under general_settings; take stream_options out of litellm_params",
        TELL_GATEWAY, judge=gateway.always_stream_usage,
    ),
    GatewayCheck(
        "engines_read", "the engines behind the gateway are read", "tokens of an engine that is not read cannot be priced",
        "LiteLLM /model/info, or --litellm-config", "[[targets]]   # one for each engine named, with url, gpu, count and node",
        TELL_GATEWAY, judge=gateway.engines_read,
    ),
)  # fmt: skip

CHECKS: Mapping[str, Check] = {check.id: check for check in (*ENGINE_CHECKS, *GATEWAY_CHECKS)}


def check_engine(facts: EngineFacts) -> Iterator[Finding]:
    """Every engine check, in the list's order. Those that read vLLM's parameters are unknown for other engines."""
    foreign = facts.software not in ("", "vllm")
    for check in ENGINE_CHECKS:
        if foreign and check.needs_vllm:
            reason = f"this check reads vLLM's parameters, and the engine is {facts.software}"
            yield Finding(facts.target, "engine", check.id, "unknown", "", "", reason, "")
        else:
            yield _finding(facts.target, "engine", check, check.judge(facts))


def check_gateway(facts: GatewayFacts) -> Iterator[Finding]:
    """Every gateway check, in the list's order."""
    for check in GATEWAY_CHECKS:
        yield _finding(facts.url, "gateway", check, check.judge(facts))


def _finding(subject: str, kind: SubjectKind, check: Check, said: Judgement) -> Finding:
    lines = {"pass": "", "fail": check.fix, "unknown": "" if said.seen else check.to_know}
    fix = lines[said.verdict].format(value=said.value)
    return Finding(subject, kind, check.id, said.verdict, said.seen, said.where, said.reason, fix)


def exit_code(findings: list[Finding]) -> int:
    """1 with any fail, else 0: unknown is no fault."""
    return int(any(finding.verdict == "fail" for finding in findings))

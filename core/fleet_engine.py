"""Rules for one engine: what of its start parameters makes tokens dearer, or our numbers less true.

Values that depend on model and GPU are judged against each other (KV room against batch, step against batch, GPUs used against
GPUs paid for), never against one fixed number.
"""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal

from core.fleet_facts import EngineFacts, Judgement, Seen, unknown

LEAST_FULL_REQUESTS = 2
"""Requests of full length the KV cache must hold: with fewer, one request may push all others out."""
LEAST_UTILISATION, MOST_UTILISATION = Decimal("0.85"), Decimal("0.97")
"""Of GPU memory. Below, memory is paid for and cannot be used; above, nothing is left for what vLLM does not plan (CUDA graphs,
fragmentation), and a crash loses the whole cache."""
STEP_ROOM = 4
"""A step must take this many times the tokens a full batch decodes: the rest of a step is what prompts are read in."""
BIG_STEP = 8192
"""Tokens a step from which on the GPU computes rather than waits for memory; vLLM's tuning guide names it for throughput."""
STEP_FULL_PERCENT = 80
MOST_BLOCK_WASTE = Decimal("0.05")
KV_TIGHT_PPM = 800_000
SMALL_KV = ("fp8", "int8", "nvfp4", "turboquant")
FIRST_VERSION = (0, 16)
"""The first that counts cached prompt tokens apart (prompt_tokens_by_source)."""
HONEST_HITS = (0, 11, 1)
"""Before it, tokens computed again after a preemption were counted as cache hits (vllm#25780)."""


def _passed(facts: EngineFacts, name: str, reason: str) -> Judgement:
    found = facts.seen[name]
    return Judgement("pass", reason, found.value, found.where)


def _failed(facts: EngineFacts, name: str, reason: str, value: object = "") -> Judgement:
    found = facts.seen[name]
    return Judgement("fail", reason, found.value, found.where, str(value))


def _unsure(facts: EngineFacts, name: str, reason: str) -> Judgement:
    found = facts.seen.get(name, Seen("", ""))
    return Judgement("unknown", reason, found.value, found.where)


def answers(facts: EngineFacts) -> Judgement:
    if facts.down:
        return Judgement("fail", facts.down, where=facts.target, value=facts.target)
    return Judgement(
        "pass", f"its page was read: {facts.cores or 'no'} engine{'' if facts.cores == 1 else 's'}", where=facts.page
    )


def stats(facts: EngineFacts) -> Judgement:
    told = facts.seen.get("log_stats")
    if facts.cores:
        return Judgement("pass", "the page shows its counters", "on", facts.page)
    if told is not None and told.value == "false":
        return Judgement("fail", "started with --disable-log-stats: there is no counter to read", told.value, told.where)
    if facts.page:
        return Judgement("fail", "the page answers, without any counter of an engine", "off", facts.page)
    return unknown(facts, "its page")


def restart_stamp(facts: EngineFacts) -> Judgement:
    if not facts.cores:
        return unknown(facts, "its page")
    if facts.has_start:
        return Judgement("pass", "the page says when its counters began", "yes", facts.page)
    reason = "neither process_start_time_seconds nor _created: a restart that ends higher than before cannot be told"
    return Judgement("fail", reason, "no", facts.page)


def capacity(facts: EngineFacts) -> Judgement:
    if facts.gpu and facts.gpu_count:
        return Judgement("pass", "its GPUs are known", f"{facts.gpu_count} × {facts.gpu}", "settings or discovery")
    missing = [name for name, there in (("GPU type", facts.gpu), ("GPU count", facts.gpu_count)) if not there]
    return Judgement("fail", f"no {' and no '.join(missing)}: its cost is unknown", where="settings or discovery")


def version(facts: EngineFacts) -> Judgement:
    found = facts.seen.get("version")
    parts = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", found.value) if found else None
    if parts is None:
        return unknown(facts, "its version") if found is None else _unsure(facts, "version", "is no release number")
    number = tuple(int(part or 0) for part in parts.groups())
    if number < HONEST_HITS:
        return _failed(facts, "version", "counts tokens computed again after a preemption as cache hits")
    if number < FIRST_VERSION:
        return _failed(facts, "version", "does not count cached prompt tokens apart: the work of a prompt is not known")
    return _passed(facts, "version", "counts cached prompt tokens apart")


def _full_requests(facts: EngineFacts) -> Decimal | None:
    """Requests of full length the KV cache of one engine core holds."""
    told = facts.number("kv_cache_max_concurrency")
    length, kv = facts.whole("max_model_len"), _kv_tokens(facts)
    return told if told is not None else Decimal(kv) / length if kv and length else None


def _kv_tokens(facts: EngineFacts) -> int | None:
    """KV capacity of one engine core."""
    total = facts.numbers.get("kv_capacity_tokens")
    return total // facts.cores if total and facts.cores else None


def _mean_length(facts: EngineFacts) -> Decimal | None:
    """Tokens of a finished request, prompt and answer."""
    names = ("finished_prompt_tokens", "finished_generation_tokens", "requests_finished")
    if any(name not in facts.numbers for name in names) or not facts.numbers["requests_finished"]:
        return None
    tokens = facts.numbers["finished_prompt_tokens"] + facts.numbers["finished_generation_tokens"]
    return Decimal(tokens) / facts.numbers["requests_finished"] or None


def _down_to(value: Decimal, step: int) -> int:
    return max(step, int(value // step) * step)


def max_model_len(facts: EngineFacts) -> Judgement:
    if "max_model_len" not in facts.seen:
        return unknown(facts, "max_model_len")
    held, kv = _full_requests(facts), _kv_tokens(facts)
    if held is None:
        return _unsure(facts, "max_model_len", "the size of the KV cache is not known, so neither is what one long request takes")
    shown = f"{held.quantize(Decimal('0.1'), ROUND_DOWN)} requests of full length fit into the KV cache"
    if held < LEAST_FULL_REQUESTS:
        length = _down_to(Decimal(kv or facts.whole("max_model_len") or 0) / LEAST_FULL_REQUESTS, 1024)
        return _failed(facts, "max_model_len", f"{shown}: one may push all others out, which are computed again", length)
    return _passed(facts, "max_model_len", shown)


def max_num_seqs(facts: EngineFacts) -> Judgement:
    batch = facts.whole("max_num_seqs")
    if batch is None:
        return unknown(facts, "max_num_seqs")
    held, kv, length = _full_requests(facts), _kv_tokens(facts), _mean_length(facts)
    if held is not None and batch < int(held):
        reason = f"{int(held)} requests fit into the KV cache even at full length: the batch never fills the memory paid for"
        return _failed(facts, "max_num_seqs", reason, int(held))
    if kv is None or length is None:
        what = "the size of the KV cache" if kv is None else "how long requests are (none finished yet)"
        return _unsure(facts, "max_num_seqs", f"{what} is not known, so neither is whether a full batch fits")
    room = int(kv / length)
    again = facts.numbers.get("preemptions")
    if batch <= room:
        return _passed(facts, "max_num_seqs", f"a full batch fits: the KV cache holds {room} requests of the mean length")
    if again is None:
        return _unsure(facts, "max_num_seqs", f"only {room} requests of the mean length fit; preemptions are not shown")
    if again:
        reason = f"only {room} requests of the mean length fit, and {again} were preempted and computed again"
        return _failed(facts, "max_num_seqs", reason, max(1, room))
    return _passed(facts, "max_num_seqs", f"{room} requests of the mean length fit, and none was preempted since the start")


def max_num_batched_tokens(facts: EngineFacts) -> Judgement:
    name = "max_num_batched_tokens"
    step, batch = facts.whole(name), facts.whole("max_num_seqs")
    if step is None:
        return unknown(facts, name)
    length = facts.whole("max_model_len")
    if facts.switch("chunked_prefill") is False and length is not None and step < length:
        return _failed(facts, name, f"without chunked prefill a prompt of {length} tokens must fit into one step", length)
    if batch is not None and step < STEP_ROOM * batch:
        reason = f"a full batch of {batch} takes {batch} tokens of every step: too little is left to read prompts in"
        return _failed(facts, name, reason, _power_of_two(STEP_ROOM * batch))
    used, waiting = _step_percent(facts, step), facts.numbers.get("waiting")
    if used is None or waiting is None:
        return _unsure(facts, name, "the page does not show how full the steps are")
    if used >= STEP_FULL_PERCENT and waiting and step < BIG_STEP:
        return _failed(facts, name, f"steps are {used} % full and {waiting} requests wait", min(BIG_STEP, 2 * step))
    if batch is None:
        return _unsure(facts, name, "max_num_seqs is not known, so neither is what a full batch leaves of a step")
    return _passed(facts, name, f"steps are {used} % full on average; a full batch decodes {batch} tokens a step")


def _step_percent(facts: EngineFacts, step: int) -> int | None:
    steps, tokens = facts.numbers.get("steps"), facts.numbers.get("iteration_tokens")
    return 100 * tokens // (steps * step) if steps and tokens is not None else None


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def gpu_memory_utilization(facts: EngineFacts) -> Judgement:
    name = "gpu_memory_utilization"
    share, fixed = facts.number(name), facts.seen.get("kv_cache_memory_bytes")
    if fixed is not None:
        reason = f"is not used: kv_cache_memory_bytes={fixed.value} ({fixed.where}) sets the KV cache; compare it with the GPU's"
        return _unsure(facts, name, reason)
    if share is None:
        return unknown(facts, name)
    if share > MOST_UTILISATION:
        return _failed(facts, name, "leaves nothing for CUDA graphs and fragmentation: a crash loses the whole cache", "0.95")
    if share >= LEAST_UTILISATION:
        return _passed(facts, name, f"{(100 * share).normalize():f} % of the memory paid for can be used")
    held, batch = _full_requests(facts), facts.whole("max_num_seqs")
    if held is None or batch is None:
        what = "max_num_seqs" if batch is None else "the size of the KV cache"
        return _unsure(facts, name, f"is low, and {what} is not known, so neither is whether memory limits the batch")
    if held >= batch:
        return _passed(facts, name, "is low, but a full batch fits at full length: more memory would not be used")
    return _failed(facts, name, f"{(100 * (1 - share)).normalize():f} % of the memory paid for is never used", "0.92")


def tensor_parallel_size(facts: EngineFacts) -> Judgement:
    name = "tensor_parallel_size"
    tensor, paid = facts.whole(name), facts.gpu_count
    if tensor is None:
        return unknown(facts, name)
    if not paid:
        return _unsure(facts, name, "how many GPUs are paid for is not known")
    pipeline, copies = facts.whole("pipeline_parallel_size"), facts.whole("data_parallel_size") or facts.cores or None
    if pipeline is None or copies is None:
        what = "pipeline_parallel_size" if pipeline is None else "data_parallel_size"
        return _unsure(facts, name, f"{what} is not known, so neither is how many GPUs are used")
    used = tensor * pipeline * copies
    shown = f"{tensor} × {pipeline} (pipeline) × {copies} (data) = {used} GPUs used, {paid} paid for"
    return _passed(facts, name, shown) if used == paid else _failed(facts, name, shown, paid)


def block_size(facts: EngineFacts) -> Judgement:
    block, length = facts.whole("block_size"), _mean_length(facts)
    if block is None:
        return unknown(facts, "block_size")
    if length is None:
        return _unsure(facts, "block_size", "how long requests are is not known: none finished, or the page does not say")
    waste = Decimal(block - 1) / 2 / length
    shown = f"half a block is {(100 * waste).quantize(Decimal('0.1'))} % of a mean request of {int(length)} tokens"
    if waste > MOST_BLOCK_WASTE and block > 16:
        return _failed(facts, "block_size", f"{shown}: it is reserved and not used, and only whole blocks are cached", 16)
    return _passed(facts, "block_size", shown)


def kv_cache_dtype(facts: EngineFacts) -> Judgement:
    name = "kv_cache_dtype"
    found = facts.seen.get(name)
    if found is None:
        return unknown(facts, name)
    if found.value.lower().startswith(SMALL_KV):
        return _passed(facts, name, "a token takes half of what 16 bits take, or less")
    again, use, waiting = (facts.numbers.get(part) for part in ("preemptions", "kv_usage_ppm", "waiting"))
    if again:
        return _failed(facts, name, f"{again} requests were preempted for want of KV room, with 16 bits a value")
    if use is not None and waiting and use > KV_TIGHT_PPM:
        return _failed(facts, name, f"KV cache {use // 10_000} % full and {waiting} requests wait, with 16 bits a value")
    if again is None or use is None or waiting is None:
        return _unsure(facts, name, "the page does not show whether KV room is short")
    return _passed(facts, name, "KV room is not short: nothing was preempted since the start")


def dev_endpoints(facts: EngineFacts) -> Judgement:
    if "dev_mode" not in facts.seen:
        return unknown(facts, "GET /server_info")
    if facts.switch("dev_mode") is False:
        return _passed(facts, "dev_mode", "shut")
    reason = "whoever reaches the port may run any call on the workers, put the engine to sleep and empty its cache"
    if re.match(r"https?://(127\.|localhost[:/]|\[::1\])", facts.target):
        return _passed(facts, "dev_mode", f"open, and asked on this machine's own address: {reason}, so expose it nowhere")
    return _failed(facts, "dev_mode", reason)


def stream_usage(facts: EngineFacts) -> Judgement:
    forced = facts.switch("force_include_usage")
    if forced:
        return _passed(facts, "force_include_usage", "every stream ends with its usage")
    if facts.gateway_usage == "always":
        return Judgement("pass", "the gateway asks every stream for its usage", "by the gateway", "the gateway's settings")
    if forced is None:
        return unknown(facts, "--enable-force-include-usage")
    if facts.gateway_usage == "unknown":
        return _unsure(facts, "force_include_usage", "off here; whether the gateway asks for usage could not be read")
    who = "no gateway is set that asks" if facts.gateway_usage == "no gateway" else "the gateway does not always ask"
    return _failed(facts, "force_include_usage", f"off, and {who} for it: such streams are estimated")

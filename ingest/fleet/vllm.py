"""What one vLLM server tells of itself over HTTP, by source.

Shapes: ``vllm:cache_config_info`` has one label per attribute of its CacheConfig, all strings, other ones in each release;
``/v1/models`` bears ``max_model_len``; ``/version`` is ``{"version": …}``; ``/server_info`` is there in development mode alone,
its ``vllm_config`` an object (``config_format=json``) or, in older versions, a text of ``name=value`` pairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from core.fleet_facts import OFF, ON, Seen
from ingest.fleet.calls import get_json

NOT_SET = frozenset({"", "None", "none", "null"})
CACHE_LABELS: Mapping[str, str] = {
    "block_size": "block_size",
    "cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "prefix_caching",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_memory_bytes": "kv_cache_memory_bytes",
    "kv_cache_max_concurrency": "kv_cache_max_concurrency",
}
SERVER_INFO: Mapping[tuple[str, str], str] = {
    ("model_config", "max_model_len"): "max_model_len",
    ("model_config", "enforce_eager"): "enforce_eager",
    ("cache_config", "block_size"): "block_size",
    ("cache_config", "cache_dtype"): "kv_cache_dtype",
    ("cache_config", "gpu_memory_utilization"): "gpu_memory_utilization",
    ("cache_config", "kv_cache_memory_bytes"): "kv_cache_memory_bytes",
    ("cache_config", "enable_prefix_caching"): "prefix_caching",
    ("parallel_config", "tensor_parallel_size"): "tensor_parallel_size",
    ("parallel_config", "pipeline_parallel_size"): "pipeline_parallel_size",
    ("parallel_config", "data_parallel_size"): "data_parallel_size",
    ("scheduler_config", "max_num_seqs"): "max_num_seqs",
    ("scheduler_config", "max_num_batched_tokens"): "max_num_batched_tokens",
    ("scheduler_config", "enable_chunked_prefill"): "chunked_prefill",
    ("scheduler_config", "chunked_prefill_enabled"): "chunked_prefill",
}
SERVER_TEXT: Mapping[str, str] = {
    "max_seq_len": "max_model_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size",
    "enforce_eager": "enforce_eager",
    "kv_cache_dtype": "kv_cache_dtype",
    "enable_prefix_caching": "prefix_caching",
    "chunked_prefill_enabled": "chunked_prefill",
    "enable_chunked_prefill": "chunked_prefill",
}


@dataclass(frozen=True, slots=True)
class ServerTold:
    """``seen`` by parameter, first source first; ``silent`` by source; ``models`` it serves under."""

    seen: tuple[Mapping[str, Seen], ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()


def base_of(target: str) -> str:
    """The server's root: the metrics address without its last part, query and fragment."""
    url = httpx.URL(target)
    path = url.path.rpartition("/")[0] if url.path.rstrip("/") else ""
    return f"{url.scheme}://{url.netloc.decode()}{path}"


def cache_config(info: Mapping[str, str], where: str) -> dict[str, Seen]:
    """Parameters of ``cache_config_info``'s labels."""
    return _named({name: info[label] for label, name in CACHE_LABELS.items() if label in info}, where)


def ask_server(client: httpx.Client, target: str) -> ServerTold:
    """Asks ``/v1/models``, ``/version`` and ``/server_info``. Whether the last is open is the parameter ``dev_mode``."""
    base = base_of(target)
    silent: dict[str, str] = {}
    told: list[Mapping[str, Seen]] = []
    models = get_json(client, f"{base}/v1/models")
    if models.status == 0:
        return ServerTold(silent=dict.fromkeys(("GET /v1/models", "GET /version", "GET /server_info"), models.why))
    rows = _rows(models.body) if models.status == 200 else []
    if rows:
        told.append(_model_length(rows, f"GET {base}/v1/models"))
    else:
        silent["GET /v1/models"] = models.why or "lists no model"
    version = get_json(client, f"{base}/version")
    if version.status == 200 and isinstance(version.body, dict) and isinstance(version.body.get("version"), str):
        told.append({"version": Seen(version.body["version"], f"GET {base}/version")})
    else:
        silent["GET /version"] = version.why or "tells no version"
    info = get_json(client, f"{base}/server_info?config_format=json")
    where = f"GET {base}/server_info"
    if info.status == 200 and isinstance(info.body, dict) and "vllm_config" in info.body:
        told.append({"dev_mode": Seen(ON, where), **server_info(info.body["vllm_config"], where)})
    else:
        silent["GET /server_info"] = "shut, as it should be" if info.status == 404 else info.why or "is not vLLM's"
        told.append({"dev_mode": Seen(OFF, where)} if info.status == 404 else {})
    return ServerTold(tuple(told), silent, tuple(str(row["id"]) for row in rows))


def _rows(body: Any) -> list[Mapping[str, Any]]:
    rows = body.get("data") if isinstance(body, dict) else None
    return [row for row in rows if isinstance(row, dict) and "id" in row] if isinstance(rows, list) else []


def _model_length(rows: list[Mapping[str, Any]], where: str) -> dict[str, Seen]:
    """Of the base model: adapters (with a parent) repeat it or tell none."""
    lengths = [row["max_model_len"] for row in rows if type(row.get("max_model_len")) is int and not row.get("parent")]
    return {"max_model_len": Seen(str(lengths[0]), where)} if lengths else {}


def server_info(config: Any, where: str) -> dict[str, Seen]:
    """Parameters of ``vllm_config`` in either form; what is strange is passed over."""
    if isinstance(config, str):
        pairs = dict(re.findall(r"(?:^|[\s(,])(\w+)=('[^']*'|[^\s,()]+)", config))
        return _named({name: pairs[key].strip("'") for key, name in SERVER_TEXT.items() if key in pairs}, where)
    found: dict[str, Any] = {}
    for (part, key), name in SERVER_INFO.items():
        inner = config.get(part) if isinstance(config, dict) else None
        if isinstance(inner, dict) and isinstance(inner.get(key), (str, int, float, bool)):
            found.setdefault(name, inner[key])
    return _named(found, where)


def _named(values: Mapping[str, Any], where: str) -> dict[str, Seen]:
    texts = {name: str(value) for name, value in values.items()}
    words = {"True": ON, "False": OFF}
    return {name: Seen(words.get(text, text), where) for name, text in texts.items() if text not in NOT_SET}

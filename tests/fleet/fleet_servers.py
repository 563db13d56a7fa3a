"""Local HTTP servers that answer like vLLM and LiteLLM: shapes of vLLM 0.32 and 0.33 (its source and our recording) and of
LiteLLM 1.95.1 (tests/litellm compares them with a running proxy)."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Route = tuple[int, str | bytes | Mapping[str, Any] | list[Any]]
PLAIN = "text/plain; version=0.0.4"


class Server:
    """Answers GETs by path, with the query where a route names it; anything else is 404."""

    def __init__(self, routes: Mapping[str, Route], token: str = "") -> None:
        server = self
        self.routes, self.token = dict(routes), token
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                status, body = server.reply(self.path, self.headers.get("authorization", ""))
                text = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", PLAIN if isinstance(body, (str, bytes)) else "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._http.server_port}"
        self.url = f"http://{self.address}"

    def reply(self, path: str, authorization: str) -> Route:
        if self.token and authorization != f"Bearer {self.token}" and not path.startswith("/health/readiness"):
            return 401, {"error": {"message": "Authentication Error", "type": "auth_error", "code": "401"}}
        return self.routes.get(path) or self.routes.get(path.partition("?")[0]) or (404, {"detail": "Not Found"})

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


CACHE = (
    'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",'
    'gpu_memory_utilization="0.92",kv_cache_max_concurrency="17.3",kv_cache_memory_bytes="None",kv_cache_size_tokens="566944",'
    'num_gpu_blocks="35434",sliding_window="None"} 1.0'
)
PAGE = f"""# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="chat"}} 9000
vllm:prompt_tokens_by_source_total{{engine="0",model_name="chat",source="local_compute"}} 6000
vllm:generation_tokens_total{{engine="0",model_name="chat"}} 1000
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="chat"}} 10
vllm:request_prompt_tokens_sum{{engine="0",model_name="chat"}} 9000
vllm:request_generation_tokens_sum{{engine="0",model_name="chat"}} 1000
vllm:iteration_tokens_total_count{{engine="0",model_name="chat"}} 100
vllm:iteration_tokens_total_sum{{engine="0",model_name="chat"}} 7000
vllm:num_preemptions_total{{engine="0",model_name="chat"}} 0
vllm:num_requests_running{{engine="0",model_name="chat"}} 2
vllm:num_requests_waiting{{engine="0",model_name="chat"}} 0
vllm:kv_cache_usage_perc{{engine="0",model_name="chat"}} 0.1
{CACHE}
process_start_time_seconds 1.7960395e+09
"""
MODEL = {"id": "chat", "object": "model", "owned_by": "vllm", "root": "org/chat", "parent": None, "max_model_len": 32768}
SERVER_CONFIG = {
    "model_config": {"max_model_len": 32768, "enforce_eager": False},
    "cache_config": {"block_size": 16, "gpu_memory_utilization": 0.92, "cache_dtype": "auto", "enable_prefix_caching": True},
    "parallel_config": {"tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1},
    "scheduler_config": {"max_num_batched_tokens": 2048, "max_num_seqs": 56, "enable_chunked_prefill": True},
}


def _paths(more: Mapping[str, Route]) -> dict[str, Route]:
    return {f"/{name.replace('__', '/')}": route for name, route in more.items()}


def vllm(**more: Route) -> Server:
    """An engine in good order whose development calls are shut; ``more`` replaces routes (``v1__models``: /v1/models)."""
    routes: dict[str, Route] = {
        "/metrics": (200, PAGE),
        "/v1/models": (200, {"object": "list", "data": [MODEL]}),
        "/version": (200, {"version": "0.33.0"}),
    }
    return Server({**routes, **_paths(more)})


CALLBACK = {
    "name": "generic_api",
    "variables": {"GENERIC_LOGGER_ENDPOINT": "http://tokenfuse:8700/v1/usage/litellm", "GENERIC_LOGGER_HEADERS": None},
    "type": "success_and_failure",
}


def litellm(api_base: str, **more: Route) -> Server:
    """A proxy without a database that reports by the generic callback; its key is ``sk-admin``."""
    own = {"model_name": "chat", "litellm_params": {"model": "hosted_vllm/chat", "api_base": api_base}, "model_info": {"id": "1"}}
    bought = {"model_name": "vendor", "litellm_params": {"model": "openai/gpt-4o-mini"}, "model_info": {"id": "2"}}
    details = {"status": "healthy", "db": "Not connected", "litellm_version": "1.95.1", "success_callbacks": ["GenericAPILogger"]}
    routes: dict[str, Route] = {
        "/health/readiness": (200, {"status": "healthy", "db": "Not connected"}),
        "/health/readiness/details": (200, details),
        "/get/config/callbacks": (200, {"status": "success", "callbacks": [CALLBACK], "alerts": [], "router_settings": {}}),
        "/model/info": (200, {"data": [own, bought]}),
        "/config/list": (400, {"detail": {"error": "DB not connected. This endpoint needs a database"}}),
    }
    return Server({**routes, **_paths(more)}, token="sk-admin")

"""A LiteLLM in front of the truthful upstream, and what both books are compared by."""

from __future__ import annotations

import shutil
import sys
import time
import urllib.request
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path

import pytest
from litellm_world import AUTH, PROXY, ROOT
from tokenfuse_api import Api
from truth_upstream import Told, TruthUpstream

from core.tokens import TokenCounts
from core.usage import UsageRecord

sys.path.insert(0, str(ROOT / "tests" / "guard"))
from guard_servers import KEY, KEY_ID

NEVER_S = 3600
FLUSHING_KEY = "sk-flush-generic-api"
FLUSHING_AUTH = (
    AUTH
    + f'''

import litellm
from litellm.integrations.generic_api.generic_api_callback import GenericAPILogger

ordinary = auth


async def auth(request, api_key):
    """``generic_api`` forgets what LiteLLM logs while it posts: here it posts when it is told to."""
    if api_key == "{FLUSHING_KEY}":
        for logger in litellm.logging_callback_manager.get_custom_loggers_for_type(GenericAPILogger):
            await logger.flush_queue()
    return await ordinary(request, api_key)
'''
)
SETTLED_S = 3.0
CONFIG = """
model_list:
  - {{model_name: tiny, litellm_params: {{model: hosted_vllm/tiny-8b, {at}}}}}
  - {{model_name: asking, litellm_params: {{model: hosted_vllm/tiny-8b, {at}, stream_options: {{include_usage: true}}}}}}
  - {{model_name: broken, litellm_params: {{model: hosted_vllm/broken-8b, {at}}}}}
  - {{model_name: backup, litellm_params: {{model: hosted_vllm/backup-8b, {at}}}}}
  - {{model_name: native, litellm_params: {{model: openai/tiny-8b, {at}}}}}
  - {{model_name: chatonly, litellm_params: {{model: lm_studio/tiny-8b, {at}}}}}
  - {{model_name: embed, litellm_params: {{model: hosted_vllm/embed-8b, {at}}}}}
  - {{model_name: impatient, litellm_params: {{model: hosted_vllm/tiny-8b, {at}, timeout: 0.5, max_retries: 0}}}}
litellm_settings:
  callbacks: [{callbacks}]
  fallbacks: [{{"broken": ["backup"]}}]
router_settings: {{num_retries: 2, retry_after: 0, disable_cooldowns: true}}
general_settings: {{custom_auth: auth.auth, always_include_stream_usage: {asks}}}
"""


def set_up(
    folder: Path, upstream: TruthUpstream, callbacks: str = "tokenfuse_guard.handler, generic_api", asks: str = "false"
) -> None:
    if not PROXY.exists():
        pytest.skip("the LiteLLM environment is absent: run `make litellm-env`")
    shutil.copy(ROOT / "deploy" / "tokenfuse_guard.py", folder)
    (folder / "auth.py").write_text(FLUSHING_AUTH)
    (folder / "config.yaml").write_text(
        CONFIG.format(at=f'api_base: "{upstream.url}/v1", api_key: none', callbacks=callbacks, asks=asks)
    )


def environment(folder: Path, token: str, hook_url: str, generic_url: str) -> dict[str, str]:
    return {
        "TOKENFUSE_GUARD_URL": hook_url,
        "TOKENFUSE_GUARD_TOKEN": token,
        "TOKENFUSE_GUARD_NAME": "edge",
        "TOKENFUSE_GUARD_KEYS": f"{KEY_ID}:{KEY.hex()}",
        "TOKENFUSE_GUARD_STATE_DIR": str(folder / "state"),
        "GENERIC_LOGGER_ENDPOINT": f"{generic_url}/v1/usage/litellm",
        "GENERIC_LOGGER_HEADERS": f"Authorization=Bearer {token}",
        "DEFAULT_FLUSH_INTERVAL_SECONDS": str(NEVER_S),
    }


def flush_generic_api(url: str) -> None:
    """Have all posted that LiteLLM logged until now."""
    request = urllib.request.Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {FLUSHING_KEY}"})
    with urllib.request.urlopen(request, timeout=60):
        """Posted."""


def settle(apis: list[Api], rows: int, seconds: float) -> None:
    """Wait until every API has so many rows and for three seconds nothing more has come, or the time is up."""
    counted, since_s, deadline_s = [0], time.monotonic(), time.monotonic() + seconds
    while time.monotonic() < deadline_s and (min(counted) < rows or time.monotonic() - since_s < SETTLED_S):
        found = [len(api.records()) for api in apis]
        if found != counted:
            counted, since_s = found, time.monotonic()
        time.sleep(0.2)


def counts_of(told: Iterable[Told]) -> TokenCounts:
    """The upstream's own account."""
    all_told = list(told)
    return TokenCounts.from_inclusive(
        sum(one.prompt for one in all_told),
        sum(one.completion for one in all_told),
        cache_read=sum(one.cached for one in all_told),
        reasoning=sum(one.reasoning for one in all_told),
    )


def booked(records: Iterable[UsageRecord]) -> TokenCounts:
    """The sum of our records, bucket by bucket."""
    return TokenCounts(*(sum(counts) for counts in zip(*(astuple(record.tokens) for record in records), strict=True)))

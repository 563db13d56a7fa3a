"""The formats ``ingest usage`` and the API know, by name."""

from __future__ import annotations

from ingest.usage.azure_llm import AzureLlm
from ingest.usage.burstgpt import BurstGpt
from ingest.usage.litellm import LiteLlm
from ingest.usage.litellm_spendlog import SpendLog
from ingest.usage.mapped import Mapped
from ingest.usage.mooncake import Mooncake
from ingest.usage.openai_log import OpenAiLog
from ingest.usage.otel import Otel
from ingest.usage.rows import UsageAdapter
from ingest.usage.usage_json import UsageJson
from ingest.usage.vtc import Vtc

ADAPTERS: dict[str, UsageAdapter] = {
    "usage": UsageJson(),
    "litellm": LiteLlm(),
    "litellm-spendlog": SpendLog(),
    "openai-log": OpenAiLog(),
    "envoy-ai-gateway": Mapped("envoy-ai-gateway", (b"start_time", b"response_code", b"gen_ai.")),
    "apisix": Mapped("apisix", (b"llm_prompt_tokens",)),
    "higress": Mapped("higress", (b'"ai_log"',)),
    "kong": Mapped("kong", (b'"latencies"', b'"ai"')),
    "exgentic": Mapped("exgentic", (b'"span_id"', b'"start_time_iso"', b'"input_tokens"')),
    "otel": Otel(),
    "mapped": Mapped("mapped"),
    "azure-llm": AzureLlm(),
    "mooncake": Mooncake(),
    "burstgpt": BurstGpt(),
    "vtc": Vtc(),
}

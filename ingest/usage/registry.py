"""The formats ``ingest usage`` and the API know, by name."""

from __future__ import annotations

from ingest.usage.azure_llm import AzureLlm
from ingest.usage.litellm import LiteLlm
from ingest.usage.litellm_spendlog import SpendLog
from ingest.usage.mooncake import Mooncake
from ingest.usage.rows import UsageAdapter
from ingest.usage.usage_json import UsageJson
from ingest.usage.vtc import Vtc

ADAPTERS: dict[str, UsageAdapter] = {
    "usage": UsageJson(),
    "litellm": LiteLlm(),
    "litellm-spendlog": SpendLog(),
    "azure-llm": AzureLlm(),
    "mooncake": Mooncake(),
    "vtc": Vtc(),
}

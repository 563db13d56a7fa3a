"""Where a request was served that its sender says a vendor answered: the deployment ``vendor/VENDOR/MODEL``."""

from __future__ import annotations

from core.bought import CLUSTER, is_bought
from core.errors import BadRecord
from core.usage import Deployment

SELF_HOSTED = "self_hosted"
OWN_PROVIDERS = frozenset(
    {"", SELF_HOSTED, "hosted_vllm", "vllm", "sglang", "tgi", "triton", "infinity", "huggingface", "ollama", "ollama_chat",
     "lm_studio", "llama_cpp", "llamafile", "xinference", "litellm_proxy", "openai_like", "custom_openai"}
)  # fmt: skip
"""Words of gateways and SDKs for engines of one's own. Any other provider sells its tokens."""


def place_of_provider(provider: str, said: Deployment) -> Deployment:
    """The deployment of a record whose source names ``provider`` and says it was served at ``said``.

    A vendor's is ``vendor/VENDOR/MODEL`` whatever place was said: its tokens are bought, no GPU of ours did the work. Raises
    BadRecord where the provider's name cannot stand in a deployment.
    """
    vendor = provider.strip().lower()
    if vendor in OWN_PROVIDERS or is_bought(said):
        return said
    if not vendor.isprintable() or any(letter in vendor for letter in '/"\\'):
        hint = "name the vendor by one word, such as openai"
        raise BadRecord("holds a slash, quote, backslash or control character", field="provider", value=provider, hint=hint)
    return Deployment(CLUSTER, vendor, said.model_id.removeprefix(f"{vendor}/") or said.model_id)

"""What a running LiteLLM proxy tells of itself is what the fleet checks read."""

from __future__ import annotations

import pytest
from litellm_world import Proxy

from core.fleet_checks import check_gateway
from ingest.fleet.litellm import ask_litellm

pytestmark = pytest.mark.litellm
KEY = "sk-acme-search-ann"


def test_a_guarded_proxy_shows_its_hook_its_version_and_its_deployments(proxy: Proxy) -> None:
    facts = ask_litellm(proxy.url, KEY)
    assert facts.seen["version"].value == "1.95.1"
    findings = {one.check: one for one in check_gateway(facts)}
    assert (findings["gateway_answers"].verdict, findings["hook"].verdict) == ("pass", "pass")
    assert findings["usage_reported"].verdict == "pass"
    own = [model for model in facts.models or () if model.self_hosted]
    assert ("hosted_vllm/deepseek-tiny", f"{proxy.upstream.url}/v1") in [(model.model, model.api_base) for model in own]
    assert "GuardHandler" in facts.seen["active_callbacks"].value


def test_an_ordinary_proxy_reports_by_its_generic_callback_and_refuses_nothing(plain_proxy: Proxy) -> None:
    facts = ask_litellm(plain_proxy.url, KEY)
    findings = {one.check: one for one in check_gateway(facts)}
    assert (findings["usage_reported"].verdict, findings["hook"].verdict) == ("pass", "fail")
    assert findings["usage_reported"].seen.endswith("/v1/usage/litellm")
    assert "database" in findings["always_include_stream_usage"].reason

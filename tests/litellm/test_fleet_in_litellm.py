"""A real LiteLLM degraded by the ladder through the guard's hook; and what its admin API says without a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from litellm_world import Proxy

from control.fleet.litellm_admin import LiteLLMActuator
from core.breaker_values import Breaker
from core.errors import Refused
from core.ladder import LadderPolicy, ladder_entries

pytestmark = pytest.mark.litellm
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DEGRADED = Breaker(7, "deployment:default/default/deepseek-tiny", NOW, NOW, phase="degraded", rules_enforced=True,
                   culprits=("tenant:acme/search",))  # fmt: skip
POLICY = LadderPolicy(delay_s=1, max_prompt_tokens=600, max_output_tokens=5)
KEY, OTHER = "sk-acme-search-ann", "sk-acme-legal-bob"


def obey(proxy: Proxy, rung: int) -> None:
    found = ladder_entries(replace(DEGRADED, rung=rung), POLICY, lambda scope: (), NOW)
    proxy.obey(*(entry.as_json() for entry in found))


def test_the_culprit_is_delayed_then_capped_and_the_other_tenant_untouched(proxy: Proxy) -> None:
    """Requests without a tag are P1, one step behind the rung."""
    obey(proxy, 2)
    assert proxy.chat(KEY).headers["x-tokenfuse-policy"] == "delayed_s=1"
    obey(proxy, 3)
    capped = proxy.chat(KEY, max_tokens=50)
    assert capped.headers["x-tokenfuse-policy"] == "delayed_s=1; max_output_tokens=5"
    long = proxy.chat(KEY, text="contract " * 400)
    assert (long.status, long.error["code"]) == (503, "prompt_too_long")
    assert "max_prompt_tokens=600" in long.error["message"]
    for text in ("hello", "contract " * 400):
        other = proxy.chat(OTHER, text=text)
        assert (other.status, "x-tokenfuse-policy" in other.headers) == (200, False)
    proxy.obey()


def test_batch_work_of_the_culprit_is_refused_first_and_goes_to_no_vendor(proxy: Proxy) -> None:
    obey(proxy, 4)
    before = len(proxy.vendor.seen)
    refused = proxy.chat(KEY, metadata={"tags": ["service_tier:P2"]})
    assert (refused.status, refused.error["code"], refused.headers["x-should-retry"]) == (503, "policy_refused", "false")
    assert proxy.chat(KEY).status == 200, "P1 is a step behind"
    assert len(proxy.vendor.seen) == before
    proxy.obey()


def test_without_a_database_the_admin_api_blocks_nobody_and_that_is_said(plain_proxy: Proxy) -> None:
    actuator = LiteLLMActuator(plain_proxy.url, KEY)
    with pytest.raises(Refused, match="has no database"):
        actuator.read("key/" + "ab" * 32)

"""Identity rules in a real LiteLLM: a tenant that only rules make is refused, and metered under the facts that made it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from guard_servers import KEY_ID, reject, signed
from identity_world import rule, rule_set, told
from litellm_world import SECRET, Proxy, wait_for

from core.identity_codec import decode_rules, record_facts
from core.identity_match import Matcher
from ingest.usage.litellm import call_of
from ingest.usage.litellm_call import record_of
from ingest.usage.rows import SourceOptions, prepare

pytestmark = pytest.mark.litellm
RULES = rule_set(
    rule("header.x-cost-team", "regex", "([a-z]+)", name="ingress", team="ingress-$1"),
    rule("header.x-client-team", "regex", "([a-z]+)", name="client", team="client-$1"),
    rule("key_alias", "prefix", "sk-ruled-rag-", name="rag", project="rag"),
    gateway_sets=["header.x-cost-team"],
)


def obey(proxy: Proxy, *entries: dict[str, Any]) -> None:
    """Publish entries with the rules above and wait until the guard holds them."""
    version = proxy.versions[-1] + 1
    proxy.versions.append(version)
    now = datetime.now(UTC)
    identity = told((now - timedelta(minutes=1), RULES), now=now)
    proxy.centre.publish(signed(list(entries), version=version, keys={KEY_ID: SECRET.encode()}, identity=identity))
    kept = proxy.folder / "state" / "policy.json"
    wait_for(lambda: kept.exists() and json.loads(json.loads(kept.read_text())["body"])["version"] == version)


def chat(proxy: Proxy, key: str, headers: dict[str, str] | None = None) -> int:
    """The status a caller gets."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    sent = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", **(headers or {})}
    request = urllib.request.Request(f"{proxy.url}/v1/chat/completions", json.dumps(body).encode(), sent)
    try:
        with urllib.request.urlopen(request, timeout=60) as got:
            return int(got.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_tenant_that_only_rules_make_is_refused(proxy: Proxy) -> None:
    obey(proxy, reject("tenant:ruled/rag/rag"))
    assert chat(proxy, "sk-ruled-rag-ann") == 503
    assert chat(proxy, "sk-ruled-chat-ann") == 200


def test_a_header_counts_only_when_the_rules_say_that_the_gateway_sets_it(proxy: Proxy) -> None:
    obey(proxy, reject("tenant:ruled/ingress-ads"), reject("tenant:ruled/client-ads"))
    assert chat(proxy, "sk-ruled-chat-ann", {"x-cost-team": "ads"}) == 503
    assert chat(proxy, "sk-ruled-chat-ann", {"x-client-team": "ads"}) == 200


def test_the_ledger_sees_what_the_guard_judged_by(proxy: Proxy) -> None:
    obey(proxy)
    seen = len(proxy.centre.usage)
    assert chat(proxy, "sk-seen-chat-ann", {"x-cost-team": "ads"}) == 200
    wait_for(lambda: any(payload["metadata"]["user_api_key_org_id"] == "seen" for payload in proxy.centre.usage[seen:]))
    payload = next(p for p in proxy.centre.usage[seen:] if p["metadata"]["user_api_key_org_id"] == "seen")
    record = orjson.loads(prepare(record_of(call_of(payload), SourceOptions()), 0).record)
    found = Matcher(decode_rules(RULES)).resolve(record_facts(record, is_new=True))
    assert (found.tenant.org, found.tenant.team) == ("seen", "ingress-ads")

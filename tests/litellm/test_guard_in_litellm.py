"""The guard inside a real LiteLLM: who is refused, who is not, what the vendor sees, what usage arrives at the centre."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from guard_servers import KEY_ID, limit, reject, signed
from litellm_world import SECRET, Proxy, wait_for

from tokenfuse_guard.tenant_header import HEADER, read_tenant

pytestmark = pytest.mark.litellm


def test_a_refused_tenant_gets_503_with_our_body_and_nobody_upstream_sees_it(proxy: Proxy) -> None:
    proxy.obey(reject("tenant:acme/search", retry_after_s=40, breaker=7, epoch=2))
    before = len(proxy.upstream.seen), len(proxy.vendor.seen)
    answer = proxy.chat("sk-acme-search-ann")
    assert answer.status == 503
    assert answer.error == {
        "message": "Tokenfuse: refused by a cost policy (tenant:acme/search: 95 % of the cap is spent)",
        "type": "tokenfuse_policy",
        "param": None,
        "code": "budget_exceeded",
    }
    assert answer.headers["x-should-retry"] == "false"
    assert 40 <= int(answer.headers["retry-after"]) <= 50
    assert (len(proxy.upstream.seen), len(proxy.vendor.seen)) == before


def test_the_deployment_is_not_cooled_down_for_others(proxy: Proxy) -> None:
    proxy.obey(reject("tenant:acme/search"))
    before = len(proxy.vendor.seen)
    for _ in range(5):
        assert proxy.chat("sk-acme-search-ann").status == 503
        assert proxy.chat("sk-acme-ads-bob").status == 200
    assert len(proxy.vendor.seen) == before


def test_a_refused_stream_is_an_ordinary_503(proxy: Proxy) -> None:
    proxy.obey(reject("tenant:acme/search"))
    answer = proxy.chat("sk-acme-search-ann", stream=True)
    assert answer.status == 503
    assert answer.error["code"] == "budget_exceeded"


def test_a_deployment_scope_names_the_model_the_group_serves(proxy: Proxy) -> None:
    proxy.obey(reject("deployment:default/default/deepseek-tiny"))
    assert proxy.chat(model="tiny").status == 503
    assert proxy.chat(model="vendor").status == 200


def test_the_engine_gets_the_tenant_signed_and_the_vendor_does_not(proxy: Proxy) -> None:
    proxy.obey()
    assert proxy.chat("sk-acme-search-ann", model="tiny").status == 200
    assert proxy.chat("sk-acme-search-ann", model="vendor").status == 200
    vouched = read_tenant(proxy.upstream.headers[-1][HEADER], (("g1", SECRET.encode()),), time.time())
    assert vouched == ("acme/search", "P1")
    assert HEADER not in proxy.vendor.headers[-1]


def test_shadow_passes_and_is_reported(proxy: Proxy) -> None:
    proxy.centre.reports.clear()
    proxy.obey(reject("tenant:acme", shadow=True, breaker=3, epoch=1))
    assert proxy.chat("sk-acme-search-ann").status == 200
    wait_for(lambda: any(report["shadow_refused"] for report in proxy.centre.reports))
    rows = [row for report in proxy.centre.reports for row in report["entries"] if row["what"] == "would_refuse"]
    assert (rows[0]["breaker"], rows[0]["epoch"], rows[0]["scope"]) == (3, 1, "tenant:acme")


def test_an_output_cap_is_written_into_the_request_and_said(proxy: Proxy) -> None:
    proxy.obey(limit("tenant:acme", {"max_output_tokens": 64}))
    answer = proxy.chat(max_tokens=500)
    assert (answer.status, proxy.upstream.seen[-1]["max_tokens"]) == (200, 64)
    assert answer.headers["x-tokenfuse-policy"] == "max_output_tokens=64"


def test_a_prompt_over_its_limit_is_refused_and_the_limit_named(proxy: Proxy) -> None:
    proxy.obey(limit("tenant:acme", {"max_prompt_tokens": 1000}))
    assert proxy.chat(text="short").status == 200
    answer = proxy.chat(text="x" * 5000)
    assert (answer.status, answer.error["code"]) == (503, "prompt_too_long")
    assert "max_prompt_tokens=1000" in answer.error["message"]


def test_truncation_by_opt_in_cuts_the_prompt_and_marks_it(proxy: Proxy) -> None:
    entry = {**limit("tenant:acme", {"max_prompt_tokens": 1000}), "action": "truncate", "tier": 2}
    proxy.obey(entry)
    answer = proxy.chat(text="a" * 3000 + "z" * 3000)
    sent = str(proxy.upstream.seen[-1]["messages"][0]["content"])
    assert answer.status == 200
    assert len(sent) < 1000
    assert (sent[0], sent[-1]) == ("a", "z")
    assert answer.headers["x-tokenfuse-policy"] == "truncated_to=1000"


def test_reroute_sends_the_request_to_the_other_group(proxy: Proxy) -> None:
    proxy.obey({"id": "r", "scope": "tenant:acme", "tier": 2, "action": "reroute", "reroute_to": "vendor", "reason": "x"})
    before = len(proxy.vendor.seen)
    assert proxy.chat(model="tiny").status == 200
    assert len(proxy.vendor.seen) == before + 1


def test_tokens_per_minute_let_the_crossing_request_pass_and_refuse_the_next(proxy: Proxy) -> None:
    proxy.obey({**limit("tenant:rate", {"tokens_per_min": 5}), "id": "tpm"})
    seen = len(proxy.centre.usage)
    assert proxy.chat("sk-rate-team-ann").status == 200
    proxy.usage(seen + 1)
    answer = proxy.chat("sk-rate-team-ann")
    assert (answer.status, answer.error["code"]) == (503, "tokens_per_min")


def test_b28_a_limit_that_acts_after_the_fact_overshoots_by_no_more_than_what_was_in_flight_and_says_so(proxy: Proxy) -> None:
    limit_tokens, in_flight, words = 1000, 6, 400
    proxy.obey({**limit("tenant:late", {"tokens_per_min": limit_tokens}), "id": "late"})
    proxy.centre.reports.clear()
    before, began_s = len(proxy.upstream.seen), time.monotonic()

    def ask_until_refused(_: int) -> str:
        while (answer := proxy.chat("sk-late-team-ann", text="x " * words)).status == 200:
            pass
        return str(answer.error["code"])

    with ThreadPoolExecutor(in_flight) as pool:
        assert set(pool.map(ask_until_refused, range(in_flight))) == {"tokens_per_min"}
    largest = words + 4 + 3
    refilled = limit_tokens * (time.monotonic() - began_s) / 60
    passed = largest * (len(proxy.upstream.seen) - before)
    assert 0 < passed - limit_tokens <= in_flight * largest + refilled
    wait_for(lambda: overshoots(proxy, "late"))
    said = overshoots(proxy, "late")[-1]
    assert (said["scope"], said["largest_request"]) == ("tenant:late", largest)
    assert 0 < said["tokens"] <= said["most_in_flight"] * largest
    assert said["most_in_flight"] <= in_flight


def overshoots(proxy: Proxy, entry: str) -> list[dict[str, Any]]:
    return [said for report in proxy.centre.reports for said in report["overshoots"] if said["entry"] == entry]


def test_usage_of_plain_streamed_failed_and_refused_calls_arrives_without_texts(proxy: Proxy) -> None:
    proxy.obey(reject("tenant:kinds/blocked", breaker=9, epoch=4))
    secret = "nobody must read this"
    assert proxy.chat("sk-kinds-open-ann", text=secret).status == 200
    assert proxy.chat("sk-kinds-open-ann", text=secret, stream=True, stream_options={"include_usage": True}).status == 200
    assert proxy.chat("sk-kinds-open-ann", model="failing", text=secret).status in (200, 500)
    assert proxy.chat("sk-kinds-blocked-eve", text=secret).status == 503
    wait_for(lambda: {"stream", "plain", "failed", "refused"} <= {kind(p) for p in of_org(proxy, "kinds")})
    by_kind = {kind(payload): payload for payload in of_org(proxy, "kinds") if payload["model_group"] != "vendor"}
    assert (by_kind["plain"]["prompt_tokens"], by_kind["plain"]["completion_tokens"]) == (8, 3)
    assert by_kind["stream"]["metadata"]["usage_object"]["prompt_tokens_details"]["cached_tokens"] == 4
    assert by_kind["plain"]["metadata"]["user_api_key_team_alias"] == "open"
    assert by_kind["refused"]["tokenfuse_policy"] == {
        "breaker": 9, "version": proxy.versions[-1], "action": "refused", "prompt_tokens_before": None,
    }  # fmt: skip
    assert secret not in json.dumps(proxy.centre.usage)


def of_org(proxy: Proxy, org: str) -> list[dict[str, Any]]:
    return [payload for payload in proxy.centre.usage if payload["metadata"]["user_api_key_org_id"] == org]


def kind(payload: dict[str, Any]) -> str:
    if payload["status"] == "failure":
        return "refused" if "Tokenfuse" in str(payload["error_information"]) else "failed"
    return "stream" if payload["stream"] else "plain"


def test_the_proxy_goes_on_while_the_centre_is_down_and_loses_no_usage(proxy: Proxy) -> None:
    proxy.obey(reject("tenant:down/blocked"))
    proxy.centre.status = 503
    try:
        assert [proxy.chat("sk-down-open-ann").status for _ in range(3)] == [200, 200, 200]
        assert proxy.chat("sk-down-blocked-eve").status == 503
    finally:
        proxy.centre.status = 200
    wait_for(lambda: len({payload["litellm_call_id"] for payload in of_org(proxy, "down")}) == 4)


def test_a_broken_policy_changes_nothing(proxy: Proxy) -> None:
    proxy.obey(reject("tenant:acme/blocked"))
    proxy.centre.reports.clear()
    forged = signed([], version=proxy.versions[-1] + 100, keys={KEY_ID: b"not the guard's key at all"})
    proxy.centre.publish(forged)
    wait_for(lambda: any("signature" in report["note"] for report in proxy.centre.reports))
    assert proxy.chat("sk-acme-blocked-eve").status == 503
    assert proxy.chat("sk-acme-search-ann").status == 200


def test_an_ordinary_litellm_reports_by_configuration_alone(plain_proxy: Proxy) -> None:
    """Each call until it is reported: ``generic_api`` forgets what LiteLLM logs while it posts."""
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    for user, more in (("buffered", {}), ("streamed", asked), ("unknown", {"model": "nosuch"})):
        for _ in range(5):
            plain_proxy.chat(user=user, **more)
            with suppress(AssertionError):
                wait_for(lambda user=user: reported(plain_proxy, user), 4)
                break
    found = {user: reported(plain_proxy, user)[0] for user in ("buffered", "streamed", "unknown")}
    assert [found[user]["status"] for user in found] == ["success", "success", "failure"]
    assert {found[user]["prompt_tokens"] for user in ("buffered", "streamed")} == {7}


def reported(proxy: Proxy, user: str) -> list[dict[str, Any]]:
    return [payload for payload in proxy.centre.usage if payload["end_user"] == user]

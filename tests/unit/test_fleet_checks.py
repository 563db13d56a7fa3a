"""Fleet checks: each rule as a table of facts, verdict and the line that mends it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.fleet_checks import CHECKS, ENGINE_CHECKS, GATEWAY_CHECKS, Finding, check_engine, check_gateway, exit_code
from core.fleet_facts import Callback, EngineFacts, GatewayFacts, GatewayModel, Seen, first_seen
from core.fleet_gateway import host_port, usage_asked

TARGET = "http://10.0.0.1:8000/metrics"
KNOWN = {
    "version": "0.33.0", "max_model_len": "32768", "max_num_seqs": "256", "max_num_batched_tokens": "2048",
    "gpu_memory_utilization": "0.92", "tensor_parallel_size": "1", "pipeline_parallel_size": "1", "data_parallel_size": "1",
    "block_size": "16", "kv_cache_dtype": "auto", "kv_cache_max_concurrency": "17.3", "prefix_caching": "true",
    "chunked_prefill": "true", "enforce_eager": "false", "prompt_tokens_details": "true", "force_include_usage": "true",
    "dev_mode": "false",
}  # fmt: skip
NUMBERS = {
    "kv_capacity_tokens": 566_944, "finished_prompt_tokens": 18_000, "finished_generation_tokens": 2_000,
    "requests_finished": 10, "preemptions": 0, "steps": 100, "iteration_tokens": 70_000, "waiting": 0, "running": 3,
    "kv_usage_ppm": 100_000,
}  # fmt: skip


T, S, U = "max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization"
C, K, TP = "kv_cache_max_concurrency", "kv_capacity_tokens", "tensor_parallel_size"


def engine(seen: dict[str, str | None] | None = None, numbers: dict[str, int | None] | None = None, **more: Any) -> EngineFacts:
    """An engine in good order, but for what is given; None takes a parameter away."""
    parameters = {**KNOWN, **(seen or {})}
    counts = {**NUMBERS, **(numbers or {})}
    facts: dict[str, Any] = {
        "target": TARGET, "page": TARGET, "software": "vllm", "cores": 1, "models": ("chat",), "has_start": True,
        "gpu": "A10G", "gpu_count": 1,
    }  # fmt: skip
    return EngineFacts(
        seen={name: Seen(value, f"where {name} is") for name, value in parameters.items() if value is not None},
        numbers={name: value for name, value in counts.items() if value is not None},
        **{**facts, **more},
    )


def found(facts: EngineFacts | GatewayFacts) -> dict[str, Finding]:
    findings = check_engine(facts) if isinstance(facts, EngineFacts) else check_gateway(facts)
    return {finding.check: finding for finding in findings}


def test_an_engine_in_good_order_passes_every_check_and_says_where_each_value_was_read() -> None:
    findings = found(engine())
    assert {name: one.reason for name, one in findings.items() if one.verdict != "pass"} == {}
    assert list(findings) == [check.id for check in ENGINE_CHECKS]
    assert (findings["max_num_seqs"].seen, findings["max_num_seqs"].where) == ("256", "where max_num_seqs is")
    assert not any(one.fix for one in findings.values())
    assert exit_code(list(findings.values())) == 0


@pytest.mark.parametrize(
    ("check", "seen", "numbers", "verdict", "says", "fix"),
    [
        ("version", {"version": "0.11.0"}, {}, "fail", "cache hits", "vLLM 0.16 or later"),
        ("version", {"version": "0.15.2"}, {}, "fail", "cached prompt tokens apart", "vLLM 0.16 or later"),
        ("version", {"version": "0.33.1.dev12+g0a1b"}, {}, "pass", "apart", ""),
        ("version", {"version": "nightly"}, {}, "unknown", "no release number", ""),
        ("max_model_len", {C: "1.4"}, {K: 45_875}, "fail", "1.4 requests", "--max-model-len 22528"),
        ("max_model_len", {C: None}, {}, "pass", "17.3 requests", ""),
        ("max_model_len", {C: None}, {K: None}, "unknown", "KV cache is not known", ""),
        (S, {S: "8"}, {}, "fail", "17 requests fit", "--max-num-seqs 17"),
        (S, {S: "17"}, {}, "pass", "a full batch fits", ""),
        (S, {S: "1024"}, {"preemptions": 3}, "fail", "3 were preempted", "--max-num-seqs 283"),
        (S, {S: "1024"}, {}, "pass", "none was preempted", ""),
        (S, {S: "1024"}, {"preemptions": None}, "unknown", "preemptions are not shown", ""),
        (S, {}, {"requests_finished": 0}, "unknown", "none finished yet", ""),
        (T, {T: "512"}, {}, "fail", "too little is left", "--max-num-batched-tokens 1024"),
        (T, {}, {"iteration_tokens": 190_000, "waiting": 5}, "fail", "92 % full and 5", "--max-num-batched-tokens 4096"),
        (T, {}, {"iteration_tokens": 190_000}, "pass", "92 % full", ""),
        (T, {"chunked_prefill": "false"}, {}, "fail", "32768 tokens must fit", "--max-num-batched-tokens 32768"),
        (T, {}, {"steps": None}, "unknown", "how full", ""),
        (T, {S: None}, {}, "unknown", "max_num_seqs is not known", ""),
        (U, {U: "0.99"}, {}, "fail", "leaves nothing", "0.95"),
        (U, {U: "0.5"}, {}, "fail", "50 % of the memory", "0.92"),
        (U, {U: "0.5", S: "16"}, {}, "pass", "would not be used", ""),
        (U, {U: "0.5", S: None}, {}, "unknown", "max_num_seqs is not", ""),
        (U, {"kv_cache_memory_bytes": "1073741824"}, {}, "unknown", "is not used: kv_cache_memory_bytes", ""),
        (TP, {TP: "2"}, {}, "fail", "= 2 GPUs used, 1 paid for", "--tensor-parallel-size 1"),
        (TP, {"pipeline_parallel_size": None}, {}, "unknown", "pipeline_parallel_size", ""),
        ("block_size", {"block_size": "256"}, {}, "fail", "6.4 % of a mean request of 2000 tokens", "--block-size 16"),
        ("block_size", {"block_size": "32"}, {}, "pass", "0.8 %", ""),
        ("block_size", {}, {"finished_prompt_tokens": None}, "unknown", "how long requests are", ""),
        ("kv_cache_dtype", {}, {"preemptions": 7}, "fail", "7 requests were preempted", "--kv-cache-dtype fp8"),
        ("kv_cache_dtype", {}, {"kv_usage_ppm": 910_000, "waiting": 4}, "fail", "91 % full and 4", "--kv-cache-dtype fp8"),
        ("kv_cache_dtype", {"kv_cache_dtype": "fp8_e4m3"}, {"preemptions": 7}, "pass", "half", ""),
        ("kv_cache_dtype", {}, {"kv_usage_ppm": None}, "unknown", "does not show", ""),
        ("prefix_caching", {"prefix_caching": "false"}, {}, "fail", "computed anew", "--enable-prefix-caching"),
        ("chunked_prefill", {"chunked_prefill": "false"}, {}, "fail", "one long prompt", "--enable-chunked-prefill"),
        ("enforce_eager", {"enforce_eager": "true"}, {}, "fail", "every kernel", "take --enforce-eager out"),
        ("prompt_tokens_details", {"prompt_tokens_details": "false"}, {}, "fail", "hide", "--enable-prompt-tokens-details"),
        ("stream_usage", {"force_include_usage": "false"}, {}, "fail", "no gateway is set", "--enable-force-include-usage"),
        ("dev_endpoints", {"dev_mode": "true"}, {}, "fail", "whoever reaches the port", "127.0.0.1"),
    ],
)  # fmt: skip
def test_a_rule(
    check: str, seen: dict[str, str | None], numbers: dict[str, int | None], verdict: str, says: str, fix: str
) -> None:
    finding = found(engine(seen, numbers))[check]
    assert (finding.verdict, says in finding.reason, fix in finding.fix) == (verdict, True, True), finding
    assert bool(finding.fix) == (verdict == "fail")


@pytest.mark.parametrize(
    ("state", "verdict"), [("always", "pass"), ("not always", "fail"), ("unknown", "unknown"), ("no gateway", "fail")]
)
def test_streams_end_with_their_usage_when_the_engine_or_its_gateway_sees_to_it(state: Any, verdict: str) -> None:
    assert found(engine({"force_include_usage": "false"}, gateway_usage=state))["stream_usage"].verdict == verdict
    assert found(engine({"force_include_usage": "true"}, gateway_usage=state))["stream_usage"].verdict == "pass"
    unread = found(engine({"force_include_usage": None}, gateway_usage=state))["stream_usage"].verdict
    assert unread == ("pass" if state == "always" else "unknown")


@pytest.mark.parametrize(
    "name", sorted(set(KNOWN) - {"kv_cache_max_concurrency", "pipeline_parallel_size", "data_parallel_size"})
)
def test_what_cannot_be_read_is_unknown_with_the_reason_of_each_source_and_never_passed(name: str) -> None:
    check = {"force_include_usage": "stream_usage", "dev_mode": "dev_endpoints"}.get(name, name)
    finding = found(engine({name: None}, silent={"GET /v1/models": "answers 401"}))[check]
    assert (finding.verdict, finding.seen, finding.where) == ("unknown", "", "")
    assert "GET /v1/models: answers 401" in finding.reason
    assert finding.fix


def test_an_engine_that_is_down_is_a_finding_and_what_its_arguments_tell_is_still_judged() -> None:
    facts = EngineFacts(TARGET, down="does not answer", seen={"enforce_eager": Seen("true", "arguments of pod ml/vllm-0")})
    findings = found(facts)
    assert (findings["answers"].verdict, findings["answers"].reason) == ("fail", "does not answer")
    assert (findings["stats"].verdict, findings["restart_stamp"].verdict) == ("unknown", "unknown")
    assert (findings["enforce_eager"].verdict, findings["enforce_eager"].where) == ("fail", "arguments of pod ml/vllm-0")
    assert exit_code(list(findings.values())) == 1


def test_a_page_without_engine_counters_fails_stats_and_one_without_a_start_fails_the_restart_stamp() -> None:
    bare = found(engine(cores=0, software="", has_start=False))
    assert (bare["answers"].verdict, bare["stats"].verdict, bare["restart_stamp"].verdict) == ("pass", "fail", "unknown")
    assert "--disable-log-stats" in bare["stats"].fix
    assert found(engine(has_start=False))["restart_stamp"].verdict == "fail"


@pytest.mark.parametrize(
    ("gpu", "count", "says"), [("", 1, "no GPU type"), ("A10G", 0, "no GPU count"), ("", 0, "no GPU type and no")]
)
def test_a_target_without_gpus_has_no_cost(gpu: str, count: int, says: str) -> None:
    finding = found(engine(gpu=gpu, gpu_count=count))["capacity"]
    assert (finding.verdict, says in finding.reason) == ("fail", True)


def test_gpus_used_are_the_product_of_all_three_sizes_and_copies_show_on_the_page() -> None:
    sizes = {"tensor_parallel_size": "2", "pipeline_parallel_size": "2", "data_parallel_size": None}
    assert found(engine(sizes, cores=2, gpu_count=8))["tensor_parallel_size"].verdict == "pass"
    assert "8 GPUs used, 4 paid for" in found(engine(sizes, cores=2, gpu_count=4))["tensor_parallel_size"].reason
    assert found(engine(sizes, gpu_count=0))["tensor_parallel_size"].verdict == "unknown"


def test_several_cores_are_judged_by_the_room_of_one() -> None:
    two = engine({"kv_cache_max_concurrency": None, "max_num_seqs": "8"}, {"kv_capacity_tokens": 2 * 566_944}, cores=2)
    assert found(two)["max_num_seqs"].fix.startswith("--max-num-seqs 17")


def test_another_engine_than_vllm_is_unknown_where_only_vllm_can_be_read() -> None:
    findings = found(engine(software="sglang"))
    assert {name for name, one in findings.items() if one.verdict == "pass"} == {"answers", "stats", "capacity", "restart_stamp"}
    assert all("sglang" in one.reason for one in findings.values() if one.verdict == "unknown")


def test_open_development_calls_on_a_loopback_address_pass_with_a_warning() -> None:
    finding = found(engine({"dev_mode": "true"}, target="http://127.0.0.1:8000/metrics"))["dev_endpoints"]
    assert (finding.verdict, "expose it nowhere" in finding.reason) == ("pass", True)


def test_no_line_ever_tells_anybody_to_open_the_development_calls() -> None:
    for check in CHECKS.values():
        assert "VLLM_SERVER_DEV_MODE=1" not in check.fix + check.to_know


def test_every_row_says_what_why_where_and_how() -> None:
    assert len(CHECKS) == len(ENGINE_CHECKS) + len(GATEWAY_CHECKS)
    for check in CHECKS.values():
        assert all((check.what, check.why, check.source, check.fix))
        assert "{" not in check.fix.format(value="1") + check.to_know.format(value="1").replace("%{http_code}", "")


def test_every_row_is_documented_as_it_is() -> None:
    text = (Path(__file__).parents[2] / "docs" / "doctor-fleet.md").read_text()
    for check in CHECKS.values():
        assert f"| `{check.id}` | {check.what} | {check.why} | {check.source} |" in text


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), max_size=4))
def test_the_first_source_that_tells_a_parameter_is_believed(sources: list[dict[str, int]]) -> None:
    told = [{name: Seen(str(value), f"source {n}") for name, value in one.items()} for n, one in enumerate(sources)]
    merged = first_seen(told)
    for name, seen in merged.items():
        assert seen == next(one[name] for one in told if name in one)


@given(st.sampled_from(sorted(KNOWN)), st.text(max_size=12))
def test_no_value_however_strange_breaks_a_rule(name: str, value: str) -> None:
    assert len(found(engine({name: value}))) == len(ENGINE_CHECKS)


OWN = GatewayModel("chat", "hosted_vllm/chat", "http://10.0.0.1:8000/v1", self_hosted=True, where="GET /model/info")
VENDOR = GatewayModel("gpt", "openai/gpt-4o-mini", where="GET /model/info")
GENERIC = Callback("generic_api", "success_and_failure", "callbacks", "http://tokenfuse:8700/v1/usage/litellm")
HOOK = Callback("tokenfuse_guard.handler", "success_and_failure", "callbacks")


ELSEWHERE = Callback("generic_api", "success_and_failure", "callbacks", "http://else/logs")
LOGGED = {"database": Seen("connected", "readiness"), "spend_log": Seen("true", "config.yaml")}
UNLOGGED = {**LOGGED, "spend_log": Seen("false", "config.yaml")}


def gateway(**more: Any) -> GatewayFacts:
    facts: dict[str, Any] = {
        "url": "http://litellm:4000", "callbacks": (HOOK,), "models": (OWN, VENDOR), "engines": frozenset({"10.0.0.1:8000"}),
        "seen": {"always_include_stream_usage": Seen("true", "config.yaml"), "database": Seen("not connected", "readiness")},
    }  # fmt: skip
    return GatewayFacts(**{**facts, **more})


def test_a_gateway_in_good_order_passes_every_check() -> None:
    assert {name: one.reason for name, one in found(gateway()).items() if one.verdict != "pass"} == {}


@pytest.mark.parametrize(
    ("check", "more", "verdict", "says"),
    [
        ("gateway_answers", {"down": "does not answer"}, "fail", "does not answer"),
        ("hook", {"callbacks": (GENERIC,)}, "fail", "not among them"),
        ("hook", {"callbacks": None}, "unknown", "its callbacks"),
        ("hook", {"callbacks": None, "seen": {"active_callbacks": Seen("X, GuardHandler", "details")}}, "pass", "hook"),
        ("usage_reported", {"callbacks": (GENERIC,)}, "pass", "every call"),
        ("usage_reported", {"callbacks": (Callback("generic_api", "success", "x", GENERIC.endpoint),)}, "fail", "success only"),
        ("usage_reported", {"callbacks": (ELSEWHERE,)}, "fail", "not post"),
        ("usage_reported", {"callbacks": (Callback("generic_api", "success_and_failure", "x"),)}, "unknown", "where it posts"),
        ("usage_reported", {"callbacks": ()}, "fail", "no call is reported"),
        ("usage_reported", {"callbacks": (), "seen": {"database": Seen("connected", "r")}}, "unknown", "disable_spend_logs"),
        ("usage_reported", {"callbacks": (), "seen": LOGGED}, "pass", "spend"),
        ("usage_reported", {"callbacks": (), "seen": UNLOGGED}, "fail", "no call"),
        ("usage_reported", {"callbacks": None, "seen": {}}, "unknown", "its callbacks or its database"),
        ("always_include_stream_usage", {"seen": {"always_include_stream_usage": Seen("false", "c")}}, "fail", "by a guess"),
        ("always_include_stream_usage", {"seen": {}}, "unknown", "could not be read"),
        ("engines_read", {"engines": frozenset({"10.9.9.9:8000"})}, "fail", "no engine that is read serves chat"),
        ("engines_read", {"engines": frozenset(), "served": frozenset({"chat"})}, "pass", "is read"),
        ("engines_read", {"engines": frozenset(), "unasked": 2}, "unknown", "2 engines that do not answer"),
        ("engines_read", {"models": None}, "unknown", "its deployments"),
        ("engines_read", {"models": (VENDOR,)}, "unknown", "no deployment on an engine of ours"),
    ],
)  # fmt: skip
def test_a_gateway_rule(check: str, more: dict[str, Any], verdict: str, says: str) -> None:
    finding = found(gateway(**more))[check]
    assert (finding.verdict, says in finding.reason) == (verdict, True), finding


def test_stream_options_of_a_deployment_do_not_stand_in_for_the_setting() -> None:
    """LiteLLM 1.95.1 throws away the usage it is sent for them; see ``askedbyconfig`` in tests/litellm/truth_cases.py."""
    asking = GatewayModel("chat", "hosted_vllm/chat", OWN.api_base, self_hosted=True, asks_usage=True)
    off = {"always_include_stream_usage": Seen("false", "c")}
    for seen, verdict in ((off, "fail"), ({}, "unknown")):
        finding = found(gateway(seen=seen, models=(asking, VENDOR)))["always_include_stream_usage"]
        assert (finding.verdict, "stream_options of chat do not help" in finding.reason) == (verdict, True)


def test_an_engines_streams_are_asked_when_every_gateway_in_front_of_it_asks() -> None:
    off = gateway(seen={"always_include_stream_usage": Seen("false", "c")})
    assert usage_asked(TARGET, frozenset(), [gateway()]) == "always"
    assert usage_asked(TARGET, frozenset(), [gateway(), off]) == "not always"
    assert usage_asked(TARGET, frozenset(), [gateway(), gateway(seen={})]) == "unknown"
    assert usage_asked(TARGET, frozenset(), [gateway(models=(VENDOR,))]) == "no gateway"
    assert usage_asked("http://10.8.8.8:1/metrics", frozenset({"chat"}), [gateway()]) == "always"
    assert usage_asked("http://10.8.8.8:1/metrics", frozenset(), [gateway()]) == "no gateway"
    assert usage_asked(TARGET, frozenset(), [gateway(models=None, seen={})]) == "unknown"


@pytest.mark.parametrize(
    ("url", "key"),
    [("http://a:8000/x", "a:8000"), ("https://a", "a:443"), ("http://[::1]:8/", "::1:8"), ("http://a:b", ""), ("chat", "")],
)
def test_host_and_port_of_an_address(url: str, key: str) -> None:
    assert host_port(url) == key


def test_the_mean_length_is_divided_last() -> None:
    room = found(engine(numbers={"finished_prompt_tokens": 1, "finished_generation_tokens": 0, "requests_finished": 3}))
    assert str(int(Decimal(566_944) * 3)) in room["max_num_seqs"].reason

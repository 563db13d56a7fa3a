"""Each source of the fleet checks over real HTTP: what is read, from where, and what a missing or strange answer costs."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fleet_servers import CACHE, CALLBACK, MODEL, PAGE, SERVER_CONFIG, Server, litellm, vllm

from core.errors import BadInput
from core.fleet_checks import ENGINE_CHECKS, Finding
from core.ports import FoundTarget, Page
from ingest.discovery.kube_access import KubeAccess
from ingest.discovery.kubernetes import KubernetesSettings, KubernetesTargets
from ingest.discovery.labels import TargetDefaults
from ingest.discovery.static import StaticTargets
from ingest.fleet.arguments import start_arguments
from ingest.fleet.calls import new_client
from ingest.fleet.gather import FleetPlan, StoredEngines, inspect
from ingest.fleet.litellm import ask_litellm, is_own, read_config
from ingest.fleet.pages import read_page
from ingest.fleet.pods import pod_arguments
from ingest.fleet.vllm import ask_server, base_of, server_info
from ingest.prometheus.settings import Access, PrometheusSettings

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
from target_places import KubernetesPlace, pod

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@contextmanager
def running(*servers: Server) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.close()


def plan(*engines: Server, **more: Any) -> FleetPlan:
    targets = [FoundTarget(f"{one.url}/metrics", "A10G", 1, "node-1") for one in engines]
    return FleetPlan({"settings": StaticTargets(targets)}, **more)


def by_check(findings: list[Finding], subject: str = "") -> dict[str, Finding]:
    return {one.check: one for one in findings if subject in one.subject}


ARGUMENTS = ("vllm", "serve", "chat", "--max-num-seqs=56", "--max-num-batched-tokens=2048", "--enable-prompt-tokens-details")


def test_every_source_together_judges_an_engine_and_its_gateway() -> None:
    engine = vllm()
    proxy = litellm(f"{engine.url}/v1")
    told = start_arguments([*ARGUMENTS, "--enable-force-include-usage"], "engines.yaml")
    with running(engine, proxy):
        whole = plan(engine, gateways=[(proxy.url, "sk-admin")], arguments={engine.address: told})
        findings = inspect(whole, lambda: NOW)
    engine_findings = by_check(findings, engine.url)
    assert {name: one.reason for name, one in engine_findings.items() if one.verdict != "pass"} == {}
    assert len(engine_findings) == len(ENGINE_CHECKS)
    assert engine_findings["max_model_len"].where == f"GET {engine.url}/v1/models"
    assert engine_findings["block_size"].where == f"{engine.url}/metrics, vllm:cache_config_info"
    assert engine_findings["chunked_prefill"].where == "not given: the default of vLLM 0.33.0"
    gateway = by_check(findings, proxy.url)
    assert {name: one.verdict for name, one in gateway.items()} == {
        "gateway_answers": "pass", "hook": "fail", "usage_reported": "pass", "always_include_stream_usage": "unknown",
        "engines_read": "pass",
    }  # fmt: skip
    assert "DB not connected" in gateway["always_include_stream_usage"].reason


def test_an_engine_and_a_gateway_that_are_down_are_findings() -> None:
    engine, proxy = vllm(), litellm("http://x")
    engine.close()
    proxy.close()
    findings = inspect(plan(engine, gateways=[(proxy.url, "")]), lambda: NOW)
    assert [one.check for one in findings if one.verdict == "fail"] == ["answers", "gateway_answers"]
    assert by_check(findings)["answers"].reason.startswith("does not answer")
    assert not any(one.verdict == "pass" for one in findings if one.check not in ("capacity",))


@pytest.mark.parametrize(
    ("page", "check", "verdict", "says"),
    [
        ((500, "broken"), "answers", "fail", "answers with an error: 500"),
        ((200, "<html>"), "answers", "fail", "not with a metrics page"),
        ((200, PAGE[:-40]), "answers", "fail", "cut short"),
        ((200, "process_start_time_seconds 1.7e+09\nhttp_requests_total 3\n"), "stats", "fail", "without any counter"),
        ((200, PAGE.replace(CACHE + "\n", "")), "block_size", "unknown", "could not be read"),
        ((200, PAGE.replace("process_start_time_seconds 1.7960395e+09\n", "")), "restart_stamp", "fail", "cannot be told"),
        ((200, PAGE.replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')), "prefix_caching", "fail", "anew"),
        ((200, 'sglang:num_running_reqs{model_name="m"} 1\n'), "max_num_seqs", "unknown", "the engine is sglang"),
        ((200, 'vllm:num_requests_running{server="http://a"} 1\n'), "answers", "fail", "router's page"),
    ],
)
def test_what_a_page_costs(page: tuple[int, str], check: str, verdict: str, says: str) -> None:
    engine = vllm(metrics=page)
    with running(engine):
        finding = by_check(inspect(plan(engine), lambda: NOW))[check]
    assert (finding.verdict, says in finding.reason) == (verdict, True), finding


@pytest.mark.parametrize(
    ("more", "name", "expected", "silent"),
    [
        ({}, "max_model_len", "32768", ""),
        ({"v1__models": (401, {"error": "Unauthorized"})}, "max_model_len", None, "answers 401"),
        ({"v1__models": (200, {"data": []})}, "max_model_len", None, "lists no model"),
        ({"v1__models": (200, "no json")}, "max_model_len", None, "does not answer in JSON"),
        ({"v1__models": (200, {"data": [{**MODEL, "parent": "chat", "max_model_len": 7}, MODEL]})}, "max_model_len", "32768", ""),
        ({"v1__models": (200, {"data": [{"id": "x"}]})}, "max_model_len", None, ""),
        ({}, "version", "0.33.0", ""),
        ({"version": (200, [])}, "version", None, "tells no version"),
        ({}, "dev_mode", "false", ""),
        ({"server_info": (200, {"vllm_config": SERVER_CONFIG})}, "dev_mode", "true", ""),
        ({"server_info": (200, {"vllm_config": SERVER_CONFIG})}, "max_num_seqs", "56", ""),
        ({"server_info": (403, {})}, "dev_mode", None, "answers 403"),
    ],
)
def test_what_a_server_tells(more: dict[str, Any], name: str, expected: str | None, silent: str) -> None:
    engine = vllm(**more)
    with running(engine), new_client() as client:
        told = ask_server(client, f"{engine.url}/metrics")
    values = [one[name].value for one in told.seen if name in one]
    assert values == ([expected] if expected else [])
    assert silent in "; ".join(told.silent.values())


def test_server_info_is_read_in_both_its_forms_and_the_first_source_wins() -> None:
    found = {name: seen.value for name, seen in server_info(SERVER_CONFIG, "x").items()}
    assert (found["enforce_eager"], found["chunked_prefill"], found["max_num_batched_tokens"]) == ("false", "true", "2048")
    text = (
        "model='org/chat', speculative_config=None, max_seq_len=4096, tensor_parallel_size=2, pipeline_parallel_size=1, "
        "enforce_eager=True, kv_cache_dtype=fp8, enable_prefix_caching=None, chunked_prefill_enabled=False, x=(1, 2)"
    )
    assert {name: seen.value for name, seen in server_info(text, "x").items()} == {
        "max_model_len": "4096", "tensor_parallel_size": "2", "pipeline_parallel_size": "1", "enforce_eager": "true",
        "kv_cache_dtype": "fp8", "chunked_prefill": "false",
    }  # fmt: skip
    assert [
        server_info(strange, "x") for strange in (None, [], {"cache_config": 3}, {"model_config": {"max_model_len": []}})
    ] == [{}] * 4
    engine = vllm(server_info=(200, {"vllm_config": {**SERVER_CONFIG, "model_config": {"max_model_len": 99}}}))
    with running(engine):
        findings = by_check(inspect(plan(engine), lambda: NOW))
    assert (findings["max_model_len"].seen, findings["max_num_seqs"].seen) == ("32768", "56")
    assert findings["max_num_seqs"].where == f"GET {engine.url}/server_info"


@pytest.mark.parametrize(
    ("target", "base"),
    [
        ("http://a:8000/metrics", "http://a:8000"),
        ("https://gw/engines/1/metrics?x=1", "https://gw/engines/1"),
        ("http://[::1]:8000/metrics", "http://[::1]:8000"),
        ("http://a:8000", "http://a:8000"),
    ],
)
def test_a_servers_root_is_its_metrics_address_without_the_last_part(target: str, base: str) -> None:
    assert base_of(target) == base


def kubernetes_source(place: KubernetesPlace) -> KubernetesTargets:
    defaults = TargetDefaults(cluster="west", model_id="chat")
    return KubernetesTargets(KubernetesSettings(KubeAccess(place.url, token=place.token), "app=vllm", ("ml",), defaults=defaults))


def engine_pod(host: str, container: Mapping[str, Any], *others: Mapping[str, Any]) -> dict[str, Any]:
    made = pod(host)
    made["spec"]["containers"] = [{**made["spec"]["containers"][0], **container}, *others]
    return made


def test_pods_tell_the_arguments_of_the_container_with_the_gpu(tmp_path: Path) -> None:
    place = KubernetesPlace(tmp_path)
    image = {"image": "vllm/vllm-openai:v0.33.0"}
    environment = [{"name": "SEQS", "value": "8"}, {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "x"}}}]
    place.pods = [
        engine_pod("10.0.0.1", {**image, "args": ["--model", "m", "--max-num-seqs", "$(SEQS)"], "env": environment}),
        engine_pod(
            "10.0.0.2", {**image, "command": ["sh", "-c", "vllm serve m --enforce-eager"]}, {"image": "proxy", "args": ["--x"]}
        ),
        engine_pod("10.0.0.3", {"image": "own", "command": ["./start.sh"]}),
        engine_pod("10.0.0.4", {**image, "args": ["serve", "m", "--block-size", "32"]}),
        engine_pod("10.0.0.5", {**image, "args": ["m", "--block-size", "32"]}),
    ]
    try:
        found, why = pod_arguments(kubernetes_source(place))
    finally:
        place.close()
    assert why == ""
    assert (found["10.0.0.1"].seen["max_num_seqs"].value, found["10.0.0.2"].seen["enforce_eager"].value) == ("8", "true")
    assert found["10.0.0.1"].seen["max_num_seqs"].where == "arguments of pod ml/vllm-10.0.0.1"
    assert found["10.0.0.3"].opaque == "no start command of vLLM is in it"
    assert [found[f"10.0.0.{n}"].seen["block_size"].value for n in (4, 5)] == ["32", "32"]


def test_pods_that_may_not_be_listed_are_the_reason_why_arguments_are_unknown(tmp_path: Path) -> None:
    place = KubernetesPlace(tmp_path)
    engine = vllm()
    source = kubernetes_source(place)
    place.token = "changed"
    try:
        with running(engine):
            sources = {**plan(engine).sources, "pool": source}
            findings = inspect(FleetPlan(sources), lambda: NOW)
    finally:
        place.close()
    lost = next(one for one in findings if one.subject == "discovery pool")
    assert (lost.verdict, "401" in lost.reason) == ("fail", True)
    assert "refuses us with 401" in by_check(findings, engine.url)["enforce_eager"].reason


USAGE = "always_include_stream_usage"
STRANGE = {"model": "hosted_vllm/x", "api_base": "http://b:1"}


@pytest.mark.parametrize(
    ("more", "check", "verdict"),
    [
        ({"get__config__callbacks": (200, {"callbacks": [{**CALLBACK, "name": "tokenfuse_guard.handler"}]})}, "hook", "pass"),
        ({"get__config__callbacks": (403, {"error": {"message": "not allowed"}})}, "hook", "unknown"),
        ({"get__config__callbacks": (200, {"callbacks": [{**CALLBACK, "type": "success"}]})}, "usage_reported", "fail"),
        ({"get__config__callbacks": (200, {"callbacks": []})}, "usage_reported", "fail"),
        ({"get__config__callbacks": (200, {"callbacks": "none"})}, "usage_reported", "unknown"),
        ({"config__list": (200, [{"field_name": USAGE, "field_value": True}])}, USAGE, "pass"),
        ({"config__list": (200, [{"field_name": USAGE, "field_value": None}])}, USAGE, "fail"),
        ({"model__info": (200, {"data": [{"model_name": "x", "litellm_params": STRANGE}]})}, "engines_read", "fail"),
        ({"model__info": (500, {})}, "engines_read", "unknown"),
        ({"health__readiness": (503, {"status": "unhealthy"})}, "gateway_answers", "fail"),
    ],
)  # fmt: skip
def test_what_a_gateway_tells(more: dict[str, Any], check: str, verdict: str) -> None:
    engine = vllm()
    proxy = litellm(f"{engine.url}/v1", **more)
    with running(engine, proxy):
        findings = by_check(inspect(plan(engine, gateways=[(proxy.url, "sk-admin")]), lambda: NOW), proxy.url)
    assert findings[check].verdict == verdict, findings[check]


def test_a_wrong_key_is_named_and_never_shown() -> None:
    proxy = litellm("http://engine:8000/v1")
    with running(proxy):
        facts = ask_litellm(proxy.url, "sk-wrong-secret")
    assert facts.silent["GET /model/info"] == "answers 401 (Authentication Error)"
    assert "sk-wrong-secret" not in repr(facts)


CONFIG = """
model_list:
  - model_name: chat
    litellm_params: {model: hosted_vllm/chat, api_base: "http://e:8000/v1", stream_options: {include_usage: true}}
litellm_settings: {success_callback: generic_api, failure_callback: [generic_api]}
general_settings: {always_include_stream_usage: true, disable_spend_logs: true}
environment_variables: {GENERIC_LOGGER_ENDPOINT: "http://tokenfuse:8700/v1/usage/litellm"}
"""


def test_a_gateways_configuration_file_tells_what_its_calls_do_not(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    engine = vllm()
    proxy = litellm(f"{engine.url}/v1")
    with running(engine, proxy):
        given = read_config(file, proxy.url)
        findings = inspect(plan(engine, gateways=[(proxy.url, "sk-admin")], gateway_config=given), lambda: NOW)
        alone = inspect(plan(gateway_config=given), lambda: NOW)
    found = by_check(findings, proxy.url)["always_include_stream_usage"]
    assert (found.verdict, found.where) == ("pass", str(file))
    assert by_check(findings, engine.url)["stream_usage"].verdict == "pass"
    verdicts = {one.check: one.verdict for one in alone if one.kind == "gateway"}
    assert (verdicts["usage_reported"], verdicts["always_include_stream_usage"], verdicts["hook"]) == ("pass", "pass", "fail")


@pytest.mark.parametrize("text", ["[]", "x: 1", "a: ["])
def test_a_wrong_configuration_file_is_bad_input(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"config\.yaml"):
        read_config(file, "")


@pytest.mark.parametrize(
    ("model", "base", "own"),
    [
        ("hosted_vllm/x", "", True),
        ("openai/x", "http://vllm:8000/v1", True),
        ("openai/gpt-4o", "", False),
        ("openai/gpt-4o", "https://api.openai.com/v1", False),
        ("azure/x", "https://x.openai.azure.com", False),
        ("anthropic/x", "", False),
    ],
)
def test_which_deployments_run_on_our_engines(model: str, base: str, own: bool) -> None:
    assert is_own(model, base) is own


def test_an_engine_found_twice_is_checked_once_and_a_wrong_address_is_a_finding() -> None:
    engine = vllm()
    with running(engine):
        sources = {
            "settings": StaticTargets([FoundTarget(f"{engine.url}/metrics", "A10G", 1), FoundTarget("ftp://x/metrics")]),
            "pool": StaticTargets([FoundTarget(f"{engine.url}/metrics"), FoundTarget("http://g:9400/metrics", kind="gpu")]),
        }
        findings = inspect(FleetPlan(sources), lambda: NOW)
    assert [one.subject for one in findings if one.check == "answers"] == ["ftp://x/metrics", f"{engine.url}/metrics"]


def test_gpus_declared_by_hand_are_known() -> None:
    engine = vllm()
    with running(engine):
        sources = {"settings": StaticTargets([FoundTarget(f"{engine.url}/metrics")])}
        lacking = inspect(FleetPlan(sources), lambda: NOW)
        given = inspect(FleetPlan(sources, declared={f"{engine.url}/metrics": ("H100-80GB", 8)}), lambda: NOW)
    assert by_check(lacking)["capacity"].verdict == "fail"
    assert by_check(given)["capacity"].seen == "8 × H100-80GB"


def test_an_engine_that_a_prometheus_stores_is_judged_by_its_newest_page() -> None:
    def row(name: str, value: str, **labels: str) -> dict[str, Any]:
        about = {"__name__": name, "job": "vllm", "instance": "10.0.0.7:8000", "engine": "0", "model_name": "chat", **labels}
        return {"metric": about, "values": [[NOW.timestamp() - 20, "1"], [NOW.timestamp() - 5, value]]}

    info = {
        "block_size": "16",
        "kv_cache_max_concurrency": "17.3",
        "kv_cache_size_tokens": "566944",
        "enable_prefix_caching": "True",
    }
    rows = [row("vllm:prompt_tokens_total", "9000"), row("vllm:cache_config_info", "1", **info)]
    names = [one["metric"]["__name__"] for one in rows]

    def ok(data: Any) -> tuple[int, dict[str, Any]]:
        return 200, {"status": "success", "data": data}

    stored = Server(
        {
            "/api/v1/query": ok({"resultType": "matrix", "result": rows}),
            "/api/v1/query?query=time%28%29": ok({"resultType": "scalar", "result": [NOW.timestamp(), str(NOW.timestamp())]}),
            "/api/v1/label/__name__/values": ok(names),
        }
    )
    real = stored.reply
    stored.reply = lambda path, token: real(  # type: ignore[method-assign]
        "/api/v1/query?query=time%28%29" if "query=time" in path else path, token
    )
    settings = PrometheusSettings("main", Access(stored.url, timeout_s=5))
    with running(stored):
        findings = inspect(FleetPlan({}, stored=[StoredEngines(settings, "A10G", 1)]), lambda: NOW)
    found = by_check(findings, "10.0.0.7")
    assert (found["prefix_caching"].verdict, found["capacity"].verdict) == ("pass", "pass")
    assert found["prefix_caching"].where == "http://10.0.0.7:8000/metrics, stored by prometheus main, vllm:cache_config_info"
    down = inspect(FleetPlan({}, stored=[StoredEngines(settings)]), lambda: NOW)
    assert [(one.subject, one.verdict) for one in down] == [("prometheus main", "fail")]


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("file", "software", "expected"),
    [
        (
            "metrics/vllm_0.33.0_dp2_generated.prom", "vllm",
            {"block_size": "16", "kv_cache_dtype": "auto", "gpu_memory_utilization": "0.92", "prefix_caching": "true",
             "kv_cache_max_concurrency": "17.3"},
        ),
        (
            "recordings/open/metrics", "vllm",
            {"block_size": "128", "kv_cache_dtype": "auto", "gpu_memory_utilization": "0.92", "prefix_caching": "true",
             "kv_cache_memory_bytes": "1073741824", "kv_cache_max_concurrency": "128.0"},
        ),
        ("metrics/vllm_0.33_rust_frontend_derived.prom", "vllm", {}),
    ],
)  # fmt: skip
def test_recorded_pages_tell_their_cache_configuration(
    realdata: Path, file: str, software: str, expected: Mapping[str, str]
) -> None:
    path = realdata / file
    body = gzip.decompress(sorted(path.iterdir())[-1].read_bytes()) if path.is_dir() else path.read_bytes()
    told = read_page(Page("http://e:8000/metrics", NOW, body, ""), "page")
    assert (told.software, {name: seen.value for name, seen in told.seen.items()}) == (software, expected)
    assert told.cores >= 1


@pytest.mark.realdata
def test_two_engine_cores_are_summed_and_their_room_is_that_of_one(realdata: Path) -> None:
    body = (realdata / "metrics/vllm_0.33.0_dp2_generated.prom").read_bytes()
    told = read_page(Page("http://e:8000/metrics", NOW, body, ""), "page")
    assert (told.cores, told.numbers["kv_capacity_tokens"]) == (2, 2 * 566_944)

"""Every recorded page of every kind as the table of canonical names it must give (``pages/NAME.json``, checked by hand)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from core.ports import Page
from ingest.engine.page_table import PageTable, page_table
from ingest.engine.parse import Origin

EXPECTED = Path(__file__).parent / "pages"
NAMES = sorted(path.stem for path in EXPECTED.glob("*.json"))


def table(body: bytes | str, content_type: str = "text/plain") -> PageTable:
    raw = body.encode() if isinstance(body, str) else body
    return page_table(Page("http://host:1/metrics", datetime(2026, 11, 30, tzinfo=UTC), raw, content_type), Origin())


def shown(found: PageTable) -> dict[str, Any]:
    values: dict[str, dict[str, int]] = {}
    for value in found.values:
        values.setdefault(f"{value.kind} {value.subject}", {})[value.name] = value.value
    faults = sorted(f"{fault.kind} {fault.subject}".strip() for fault in found.faults)
    return {"families": list(found.families), "values": values, "unmapped": list(found.unmapped), "faults": faults}


@pytest.mark.realdata
def test_every_recorded_page_has_its_expected_table(realdata: Path) -> None:
    assert [path.stem for path in sorted((realdata / "metrics").glob("*.prom"))] == NAMES


@pytest.mark.realdata
@pytest.mark.parametrize("name", NAMES)
def test_recorded_pages_give_their_known_values(realdata: Path, name: str) -> None:
    """B13 and B14 (vllm_0.33.0_dp2: two engines, 11480 metered where finished requests say 2480), B16 (vllm_0.10.0: one value),
    B01 (litellm_1.95.1: what the proxy booked of three streams, to the nano-dollar)."""
    found = shown(table((realdata / "metrics" / f"{name}.prom").read_bytes()))
    assert found == json.loads((EXPECTED / f"{name}.json").read_text())


def values(text: str, content_type: str = "text/plain") -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = shown(table(text, content_type))["values"]
    return found


def test_b26_a_total_beside_its_parts_is_not_added_to_them() -> None:
    lines = [f'kong_ai_llm_tokens_total{{ai_model="m",token_type="{kind}"}} {n}' for kind, n in
             (("prompt_tokens", 28), ("completion_tokens", 12), ("total_tokens", 40))]  # fmt: skip
    text = "\n".join([*lines, 'kong_ai_llm_cost_total{ai_model="m"} 0.00104']) + "\n"
    assert values(text) == {"gateway m": {"input_tokens": 28, "output_tokens": 12, "spend_nano_usd": 1_040_000}}


@pytest.mark.parametrize("series", ["gen_ai_client_token_usage", "gen_ai_client_token_usage_token"])
def test_cached_and_reasoning_tokens_are_parts_of_input_and_output(series: str) -> None:
    amounts = {"input": 100, "cached_input": 40, "output": 30, "reasoning": 20}
    text = "".join(f'{series}_sum{{gen_ai_response_model="m",gen_ai_token_type="{kind}"}} {n}\n' for kind, n in amounts.items())
    assert values(text)["gateway m"] == {
        "input_tokens": 100, "output_tokens": 30, "cached_input_tokens": 40,
        **({"reasoning_tokens": 20} if series.endswith("usage") else {}),
    }  # fmt: skip


def test_the_successor_counters_of_the_genai_conventions() -> None:
    prefix = "gen_ai_client_inference_usage_"
    text = (
        f'{prefix}input_tokens_total{{gen_ai_request_model="m"}} 7\n{prefix}output_tokens_total{{gen_ai_request_model="m"}} 3\n'
    )
    assert values(text) == {"gateway m": {"input_tokens": 7, "output_tokens": 3}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'apisix_llm_prompt_tokens{llm_model="m",consumer="a"} 3\napisix_llm_prompt_tokens{llm_model="m",consumer="b"} 4\n'
            'apisix_llm_completion_tokens{llm_model="m"} 2\n',
            {"gateway m": {"input_tokens": 7, "output_tokens": 2}},
        ),
        (
            'route_upstream_model_consumer_metric_input_token{ai_model="m"} 5\n'
            'route_upstream_model_consumer_metric_output_token{ai_model="m"} 6\n',
            {"gateway m": {"input_tokens": 5, "output_tokens": 6}},
        ),
        ('gateway_input_tokens_total{model="m"} 5\n', {"gateway m": {"input_tokens": 5}}),
        ('litellm_spend_metric_total{model="m"} 0.00047999999999999996\n', {"gateway m": {"spend_nano_usd": 480_000}}),
    ],
)
def test_other_gateways(text: str, expected: dict[str, dict[str, int]]) -> None:
    assert values(text) == expected


def test_a_router_in_vllms_namespace_is_a_gateway_and_never_an_engine() -> None:
    found = table(
        'vllm:num_requests_running{server="http://pod-1",model_name="m"} 3\n'
        'vllm:gpu_prefix_cache_hits_total{server="http://pod-1",model_name="m"} 4\n'
        'vllm:input_tokens_total{server="http://pod-1",model="m"} 5\n'
        'vllm:current_qps{server="http://pod-1"} 1.5\n'
    )
    assert {(value.kind, value.name, value.value) for value in found.values} == {("gateway", "input_tokens", 5)}
    assert [fault.kind for fault in found.faults] == ["router_page"]
    assert found.unmapped == ()


def test_a_gateways_unknown_names_are_listed_too() -> None:
    text = 'litellm_brand_new_metric_total{model="m"} 1\nlitellm_input_tokens_metric_total{model="m"} 2\nhttp_requests_total 3\n'
    assert table(text).unmapped == ("litellm_brand_new_metric_total",)

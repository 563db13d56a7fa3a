"""Engines other than vLLM, and what one page says of several engines."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from core.ports import Page
from ingest.engine.parse import Origin, ParsedPage, parse_page

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


def parse(text: str, origin: Origin | None = None) -> ParsedPage:
    return parse_page(Page("http://gpu-1:8000/metrics", AT, text.encode(), "text/plain"), origin or Origin())


def only(page: ParsedPage) -> dict[str, int]:
    [sample] = page.samples
    return {**sample.counters, **sample.gauges}


SGLANG = """\
sglang:prompt_tokens_total{engine_type="unified",is_streaming="True",model_name="m"} 100
sglang:prompt_tokens_total{engine_type="unified",is_streaming="False",model_name="m"} 20
sglang:generation_tokens_total{engine_type="unified",is_streaming="True",model_name="m"} 30
sglang:cached_tokens_total{cache_source="device",model_name="m"} 40
sglang:cached_tokens_total{cache_source="total",model_name="m"} 8
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m",pp_rank="0",tp_rank="0"} 72
sglang:realtime_tokens_total{mode="prefill_cache",model_name="m",pp_rank="0",tp_rank="0"} 48
sglang:realtime_tokens_total{mode="prefill_compute",model_name="m",pp_rank="0",tp_rank="1"} 72
sglang:forward_execution_seconds_total{category="extend",model_name="m",pp_rank="0",tp_rank="0"} 12.1
sglang:forward_execution_seconds_total{category="decode",model_name="m",pp_rank="0",tp_rank="0"} 367.2
sglang:num_running_reqs{dp_rank="0",model_name="m",priority="",pp_rank="0",tp_rank="0"} 3
sglang:num_running_reqs{dp_rank="0",model_name="m",priority="1",pp_rank="0",tp_rank="0"} 3
sglang:num_running_reqs{dp_rank="1",model_name="m",priority="",pp_rank="0",tp_rank="0"} 2
sglang:token_usage{dp_rank="0",model_name="m",pp_rank="0",tp_rank="0"} 0.9
sglang:token_usage{dp_rank="1",model_name="m",pp_rank="0",tp_rank="0"} 0.1
sglang:max_total_num_tokens{dp_rank="0",model_name="m",pp_rank="0",tp_rank="0"} 1000
sglang:max_total_num_tokens{dp_rank="1",model_name="m",pp_rank="0",tp_rank="0"} 1000
"""


def test_sglang_counts_each_rank_and_priority_once() -> None:
    """B13 for gauges: KV use of 0.9 and 0.1 is 0.5 in the mean, never 1.0; requests and capacity add up."""
    page = parse(SGLANG)
    assert only(page) == {
        "prompt_tokens": 120, "generation_tokens": 30, "prompt_tokens_cached": 48, "prompt_tokens_computed": 72,
        "forward_us": 379_300_000, "running": 5, "kv_usage_ppm": 500_000, "kv_capacity_tokens": 2000,
    }  # fmt: skip
    assert (page.faults, page.unmapped) == ((), ())


def test_old_sglang_has_the_model_label_alone() -> None:
    text = 'sglang:prompt_tokens_total{model_name="m"} 5\nsglang:num_running_reqs{model_name="m"} 1\n'
    assert only(parse(text)) == {"prompt_tokens": 5, "running": 1}


TGI = """\
tgi_request_input_length_sum 700
tgi_request_generated_tokens_sum 90
tgi_request_success 4
tgi_queue_size 2
tgi_batch_inference_duration_sum{method="prefill"} 1.5
tgi_batch_inference_duration_sum{method="decode"} 2.5
"""


def test_a_page_without_model_labels_takes_the_targets_model() -> None:
    expected = {"prompt_tokens": 700, "generation_tokens": 90, "requests_finished": 4, "waiting": 2, "forward_us": 4_000_000}
    assert only(parse(TGI, Origin(model_id="m"))) == expected
    nameless = parse(TGI)
    assert nameless.samples == ()
    assert {fault.kind for fault in nameless.faults} == {"no_model_label", "no_engine_metrics"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'trtllm_prompt_tokens_total{model_name="m"} 7\ntrtllm_kv_cache_utilization{model_name="m"} 0.25\n',
            {"prompt_tokens": 7, "kv_usage_ppm": 250_000},
        ),
        ('trtllm:generation_tokens_total{model_name="m"} 3\n', {"generation_tokens": 3}),
        (
            "llamacpp:prompt_tokens_total 9\nllamacpp:prompt_tokens_seconds 120.5\nllamacpp:tokens_predicted_seconds_total 1.5\n",
            {"prompt_tokens": 9, "decode_us": 1_500_000},
        ),
    ],
)
def test_engines_known_by_their_rows_alone(text: str, expected: dict[str, int]) -> None:
    assert only(parse(text, Origin(model_id="m"))) == expected


def test_a_series_without_an_engine_label_is_its_models_first_engines() -> None:
    """vLLM's admission_rejections has none; on a page of rank 3 it must not invent an engine 0."""
    page = parse(
        'vllm:prompt_tokens_total{engine="10",model_name="m"} 1\nvllm:prompt_tokens_total{engine="3",model_name="m"} 2\n'
        'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_reqs"} 5\n'
        'vllm:admission_rejections_total{model_name="m",reason="max_num_queued_tokens"} 6\n'
    )
    assert [(s.key.engine, s.counters.get("rejections")) for s in page.samples] == [("10", None), ("3", 11)]


def test_b29_prefill_and_decode_instances_each_say_what_they_computed() -> None:
    """The prompt of a split request stands on both pages; only one of them computed it, the other fetched it."""
    source = "vllm:prompt_tokens_by_source_total"
    prefill = parse(
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 1000\nvllm:generation_tokens_total{engine="0",model_name="m"} 1\n'
        f'{source}{{engine="0",model_name="m",source="local_compute"}} 1000\n'
    )
    decode = parse(
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 1000\nvllm:generation_tokens_total{engine="0",model_name="m"} 200\n'
        f'{source}{{engine="0",model_name="m",source="local_compute"}} 0\n'
        f'{source}{{engine="0",model_name="m",source="external_kv_transfer"}} 1000\n'
    )
    p, d = only(prefill), only(decode)
    assert (p["prompt_tokens_computed"], d["prompt_tokens_computed"]) == (1000, 0)
    assert (p.get("prompt_tokens_external"), d["prompt_tokens_external"]) == (None, 1000)
    fetched = d["prompt_tokens_external"]
    assert p["prompt_tokens"] + d["prompt_tokens"] - fetched == 1000, "the invoice's input"
    assert d["generation_tokens"] == 200, "the prefill instance's one token is not sold"


def test_b14_and_b15_what_finished_requests_say_stands_beside_what_was_metered() -> None:
    page = only(
        parse(
            'vllm:prompt_tokens_total{engine="0",model_name="m"} 3482\n'
            'vllm:request_prompt_tokens_sum{engine="0",model_name="m"} 59\n'
            'vllm:request_params_n_sum{engine="0",model_name="m"} 8\nvllm:request_params_n_count{engine="0",model_name="m"} 1\n'
        )
    )
    assert page == {"prompt_tokens": 3482, "finished_prompt_tokens": 59, "n_answers": 8, "n_requests": 1}

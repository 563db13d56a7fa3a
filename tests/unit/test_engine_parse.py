"""Metrics pages in canonical names: every vLLM generation, every way a page or a value can be wrong."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine import COUNTERS, GAUGES
from core.errors import BadInput
from core.gpu import GPU_COUNTERS, GPU_GAUGES
from core.ports import Page
from ingest.engine.names import canonical_names, name_table, parse_table
from ingest.engine.parse import Origin, ParsedPage, parse_page

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
ORIGIN = Origin(cluster="c1", namespace="prod", node="n1")
LABELS = '{engine="0",model_name="m"}'


def parse(text: str | bytes, content_type: str = "text/plain; version=0.0.4", origin: Origin = ORIGIN) -> ParsedPage:
    body = text.encode() if isinstance(text, str) else text
    return parse_page(Page("http://gpu-1:8000/metrics", AT, body, content_type), origin)


def only(page: ParsedPage) -> tuple[dict[str, int], dict[str, int]]:
    [sample] = page.samples
    return dict(sample.counters), dict(sample.gauges)


V0 = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 2.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{model_name="m"} 811227.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="m"} 7.4322e+04
# TYPE vllm:time_in_queue_requests histogram
vllm:time_in_queue_requests_bucket{le="+Inf",model_name="m"} 3.0
vllm:time_in_queue_requests_count{model_name="m"} 3.0
vllm:time_in_queue_requests_sum{model_name="m"} 1.5
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",num_gpu_blocks="1000",sliding_window="None"} 1.0
"""


def test_v0_without_an_engine_label() -> None:
    page = parse(V0)
    assert only(page) == (
        {"prompt_tokens": 811227, "generation_tokens": 74322, "queue_us": 1_500_000},
        {"running": 2, "kv_usage_ppm": 250_000, "kv_capacity_tokens": 16_000},
    )
    assert page.samples[0].key.engine == "0"
    assert (page.faults, page.unmapped) == ((), ())


V1 = f"""\
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79603946882e+09
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{LABELS} 301397.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{LABELS} 1.7960395122291539e+09
# TYPE vllm:prompt_tokens_by_source_total counter
vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="local_compute"}} 268885.0
vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="local_cache_hit"}} 32000.0
vllm:prompt_tokens_by_source_total{{engine="0",model_name="m",source="external_kv_transfer"}} 512.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} 51.0
vllm:request_success_total{{engine="0",finished_reason="length",model_name="m"}} 117.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{{engine="0",le="1.0",model_name="m"}} 8.0
vllm:iteration_tokens_total_bucket{{engine="0",le="+Inf",model_name="m"}} 298.0
vllm:iteration_tokens_total_count{LABELS} 298.0
vllm:iteration_tokens_total_sum{LABELS} 270723.0
# TYPE vllm:request_prefill_time_seconds histogram
vllm:request_prefill_time_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} 56.0
vllm:request_prefill_time_seconds_count{LABELS} 56.0
vllm:request_prefill_time_seconds_sum{LABELS} 70.88790175700069
"""


def test_v1_sums_the_series_of_one_counter_and_reads_stamps_as_stamps() -> None:
    page = parse(V1)
    assert only(page)[0] == {
        "prompt_tokens": 301397,
        "prompt_tokens_cached": 32512,
        "prompt_tokens_computed": 268885,
        "prompt_tokens_external": 512,
        "requests_finished": 168,
        "steps": 298,
        "iteration_tokens": 270723,
        "prefill_us": 70_887_902,
    }
    [sample] = page.samples
    assert sample.process_started_at == datetime.fromtimestamp(1796039468.82, UTC)
    assert sample.created_at == datetime.fromtimestamp(1796039512.2291539, UTC)
    assert (sample.key.target, sample.deployment.cluster, sample.node, sample.at) == ("http://gpu-1:8000/metrics", "c1", "n1", AT)


RUST = """\
# HELP vllm:prompt_tokens Number of prefill tokens processed.
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{model_name="m",engine="0"} 11480
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{model_name="m",engine="0",le="8.0"} 3
vllm:iteration_tokens_total_bucket{model_name="m",engine="0",le="+Inf"} 4
vllm:iteration_tokens_total_sum{model_name="m",engine="0"} 10178
vllm:iteration_tokens_total_count{model_name="m",engine="0"} 4
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{model_name="m",engine="0"} 0.031
# EOF
"""
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize("content_type", [OPEN, "text/plain"])
def test_the_rust_front_end_speaks_openmetrics(content_type: str) -> None:
    page = parse(RUST, content_type)
    assert only(page) == ({"prompt_tokens": 11480, "steps": 4, "iteration_tokens": 10178}, {"kv_usage_ppm": 31000})
    assert page.samples[0].created_at is None


@pytest.mark.parametrize("prefix", ["ray_vllm_", "vllm_", "ray_vllm:"])
def test_ray_replaces_the_colon_and_adds_a_replica(prefix: str) -> None:
    page = parse(
        f"# TYPE {prefix}prompt_tokens_total counter\n"
        f'{prefix}prompt_tokens_total{{ReplicaId="r1",engine="0",model_name="m"}} 5.0\n'
        f'{prefix}prompt_tokens_total{{ReplicaId="r2",engine="0",model_name="m"}} 7.0\n'
    )
    assert [(s.key.engine, s.counters["prompt_tokens"]) for s in page.samples] == [("0@r1", 5), ("0@r2", 7)]


def test_old_and_new_name_of_one_thing_give_one_value_the_new_one() -> None:
    """B16: vLLM 0.9.2 to 0.11 show both."""
    page = parse(
        f"# TYPE vllm:gpu_cache_usage_perc gauge\nvllm:gpu_cache_usage_perc{LABELS} 0.4\n"
        f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{LABELS} 0.5\n"
        f"# TYPE vllm:gpu_prefix_cache_hits_total counter\nvllm:gpu_prefix_cache_hits_total{LABELS} 32.0\n"
        f"# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total{LABELS} 33.0\n"
    )
    assert only(page) == ({"prompt_tokens_cached": 33, "prefix_hits": 33}, {"kv_usage_ppm": 500_000})


def test_neither_name_present_is_unknown_not_zero() -> None:
    assert "kv_usage_ppm" not in only(parse(f"vllm:prompt_tokens_total{LABELS} 1\n"))[1]


def test_each_data_parallel_engine_is_its_own_sample() -> None:
    """B13: 104 is the sum of two engines, 26 is only the last."""
    page = parse(
        'vllm:prompt_tokens_total{engine="0",model_name="m"} 78\nvllm:prompt_tokens_total{engine="1",model_name="m"} 26\n'
    )
    assert [(s.key.engine, s.counters["prompt_tokens"]) for s in page.samples] == [("0", 78), ("1", 26)]


def test_a_target_may_rename_the_only_model_of_its_page() -> None:
    [sample] = parse(V0, origin=Origin(model_id="gateway-name")).samples
    assert (sample.key.model_id, sample.deployment.model_id) == ("gateway-name", "gateway-name")
    two = parse(
        'vllm:prompt_tokens_total{model_name="a"} 1\nvllm:prompt_tokens_total{model_name="b"} 2\n', origin=Origin(model_id="x")
    )
    assert [s.key.model_id for s in two.samples] == ["a", "b"]


def test_kv_capacity_is_blocks_times_block_size_where_the_size_is_not_told() -> None:
    def capacity(labels: str) -> int | None:
        return only(parse(f'vllm:prompt_tokens_total{LABELS} 1\nvllm:cache_config_info{{engine="0",{labels}}} 1.0\n'))[1].get(
            "kv_capacity_tokens"
        )

    assert capacity('kv_cache_size_tokens="2097152",num_gpu_blocks="16384",block_size="16"') == 2_097_152
    assert capacity('kv_cache_size_tokens="None",num_gpu_blocks="100",block_size="16"') == 1600
    assert capacity('num_gpu_blocks="None",block_size="16"') is None
    assert capacity('num_gpu_blocks="0",block_size="16"') is None


@pytest.mark.parametrize(
    "value",
    ["NaN", "+Inf", "-Inf", "-1.0", "9223372036854775794", "9.223372036854776e+18", "1e16", "0.5"],
)
def test_a_value_that_is_no_count_is_absent_with_a_fault(value: str) -> None:
    page = parse(f"vllm:prompt_tokens_total{LABELS} {value}\nvllm:generation_tokens_total{LABELS} 3\n")
    assert only(page)[0] == {"generation_tokens": 3}
    [fault] = page.faults
    assert (fault.kind, fault.detail["name"]) == ("bad_value", "prompt_tokens")


def test_a_bad_value_is_not_replaced_by_an_older_name_nor_by_the_rest_of_its_sum() -> None:
    page = parse(
        f"vllm:kv_cache_usage_perc{LABELS} NaN\nvllm:gpu_cache_usage_perc{LABELS} 0.1\n"
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5\n'
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} NaN\n'
    )
    assert only(page) == ({}, {})
    assert {fault.detail["name"] for fault in page.faults} == {"kv_usage_ppm", "requests_finished"}


def test_kv_use_is_a_share_not_percent() -> None:
    page = parse(f"vllm:kv_cache_usage_perc{LABELS} 55.0\n")
    assert only(page)[1] == {}
    assert page.faults[0].kind == "bad_value"


@pytest.mark.parametrize(
    ("series", "value"),
    [("num_requests_running", "1e7"), ("num_requests_waiting", "NaN"), ("request_prefill_time_seconds_sum", "1e12")],
)
def test_what_no_engine_can_hold_is_absent_with_a_fault(series: str, value: str) -> None:
    page = parse(f"vllm:{series}{LABELS} {value}\n")
    assert only(page) == ({}, {})
    assert [fault.kind for fault in page.faults] == ["bad_value"]


def test_a_series_given_twice_is_absent_with_a_fault() -> None:
    page = parse(f"vllm:prompt_tokens_total{LABELS} 1\nvllm:prompt_tokens_total{LABELS} 2\n")
    assert only(page)[0] == {}
    assert page.faults[0].kind == "bad_value"


def test_three_digit_exponents_do_occur() -> None:
    page = parse(f"process_virtual_memory_bytes 2.894350336e+010\nvllm:prompt_tokens_total{LABELS} 1.7890568e+009\n")
    assert only(page)[0] == {"prompt_tokens": 1_789_056_800}


def test_unknown_engine_names_are_listed_known_unused_ones_and_buckets_are_not() -> None:
    page = parse(
        f"{V1}# TYPE vllm:brand_new_thing_total counter\nvllm:brand_new_thing_total{LABELS} 3\n"
        f"vllm:spec_decode_num_drafts_total{LABELS} 1\nhttp_requests_total 4\n"
    )
    assert page.unmapped == ("vllm:brand_new_thing_total",)


@pytest.mark.parametrize("text", ["python_gc_collections_total 3\n", "# only a comment\n"])
def test_a_page_without_engine_metrics_is_a_fault_not_a_zero(text: str) -> None:
    page = parse(text)
    assert page.samples == ()
    assert [fault.kind for fault in page.faults] == ["no_engine_metrics"]


def test_a_router_that_copies_engine_names_is_no_engine() -> None:
    page = parse('vllm:num_requests_running{server="http://pod-1"} 3\n')
    assert page.samples == ()
    assert {fault.kind for fault in page.faults} == {"router_page", "no_engine_metrics"}


# --- pages that are not whole -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "text", "content_type", "message"),
    [
        ("empty", "", "text/plain", "empty"),
        ("blank", "\n\n", "text/plain", "empty"),
        ("last line cut", V1[:-9], "text/plain", "cut short"),
        ("last line break cut", V1[:-1], "text/plain", "cut short"),
        (
            "cut inside a histogram's buckets",
            V1[: V1.index("vllm:request_prefill_time_seconds_count")],
            "text/plain",
            "cut short",
        ),
        ("cut before a histogram's sum", V1[: V1.index("vllm:request_prefill_time_seconds_sum")], "text/plain", "cut short"),
        ("OpenMetrics without its end", RUST[: -len("# EOF\n")], OPEN, "cut short"),
        ("the same, recorded without content type", RUST[: -len("# EOF\n")], "text/plain", "cut short"),
        ("a web page", "<!DOCTYPE html>\n<html><body>502</body></html>\n", "text/html", "not a metrics page"),
        ("JSON", '{"detail": "Not Found"}\n', "application/json", "not a metrics page"),
        ("a broken label", 'vllm:prompt_tokens_total{model_name="m} 3\n', "text/plain", "not a metrics page"),
    ],
)
def test_a_page_that_is_not_whole_is_refused_whole(what: str, text: str, content_type: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        parse(text, content_type)
    assert "http://gpu-1:8000/metrics" in str(caught.value), what


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(BadInput, match="UTF-8"):
        parse(b"\xff\xfe\x00")


@given(st.integers(0, len(V1) - 1))
def test_a_page_cut_anywhere_gives_whole_values_or_nothing(length: int) -> None:
    """A cut at a line break between two families cannot be seen in classic text: then the rest is absent, never partial."""
    whole = only(parse(V1))[0]
    try:
        page = parse(V1[:length])
    except BadInput:
        return
    for sample in page.samples:
        partial = {"prompt_tokens_cached", "requests_finished"}  # sums over several lines
        assert {n: v for n, v in sample.counters.items() if n not in partial and whole[n] != v} == {}


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)), st.sampled_from(["text/plain", OPEN, ""]))
def test_any_bytes_give_samples_or_a_refusal(body: bytes, content_type: str) -> None:
    try:
        parse(body, content_type)
    except BadInput:
        return


@given(st.data(), st.sampled_from([V0, V1, RUST]), st.sampled_from(["text/plain", OPEN]))
def test_a_damaged_page_gives_samples_or_a_refusal(data: st.DataObject, text: str, content_type: str) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.text(alphabet='{}",=#\\\n .e+-0123456789aN\t', max_size=6))
    try:
        parse(text[:at] + put + text[at + data.draw(st.integers(0, 8)) :], content_type)
    except BadInput:
        return


TORCH = """\
tokenfuse_torch_memory_reserved_bytes{device="0",process="7"} 3145728
tokenfuse_torch_memory_reserved_bytes{device="1",process="8"} 2097152
tokenfuse_torch_memory_allocated_bytes{device="0",process="7"} 1048576
tokenfuse_torch_memory_allocated_bytes{device="1",process="8"} 2097152
"""


def test_memory_of_the_pages_processes_is_its_first_engines() -> None:
    """The plugin's gauges say device and process, not which engine: added up they are the page's."""
    page = parse(TORCH + "".join(f'vllm:prompt_tokens_total{{engine="{n}",model_name="m"}} 1\n' for n in (1, 0)))
    assert [(sample.key.engine, dict(sample.gauges)) for sample in page.samples] == [
        ("0", {"torch_reserved_mib": 5, "torch_allocated_mib": 3}),
        ("1", {}),
    ]
    assert (page.faults, page.unmapped) == ((), ())


@pytest.mark.parametrize("models", ["", "ab"])
def test_memory_of_no_known_model_is_named_and_left_out(models: str) -> None:
    page = parse(TORCH + "".join(f'vllm:prompt_tokens_total{{engine="0",model_name="{name}"}} 1\n' for name in models))
    assert all(not sample.gauges for sample in page.samples)
    assert "no_model_label" in {fault.kind for fault in page.faults}


# --- the table ----------------------------------------------------------------------------------------------------


def test_the_canonical_names_are_what_the_fold_counts() -> None:
    assert canonical_names("engine", "counter") == COUNTERS
    assert canonical_names("engine", "gauge") == GAUGES
    assert canonical_names("gpu", "counter") == GPU_COUNTERS
    assert canonical_names("gpu", "gauge") == GPU_GAUGES


def test_every_canonical_name_has_a_source_in_some_family() -> None:
    table = name_table()
    told = {(f.kind, name) for f in table.families for name in (*f.counters, *f.gauges)}
    assert told == {(kind, name) for kind, names in table.canonical.items() for name in names}


GOOD = {
    "canonical.yaml": "engine: {steps: {unit: steps, type: counter}}\ngpu: {}\ngateway: {}\n",
    "x.yaml": "family: x\nkind: engine\nversion: 1\nprefixes: [x_]\nmodel: []\nmost: 1\ncounters: {}\ngauges: {}\nunused: []\n",
}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("x.yaml", "", "x.yaml"),
        ("x.yaml", "version: 1\n", "x.yaml"),
        ("x.yaml", "{", "x.yaml"),
        ("x.yaml", GOOD["x.yaml"].replace("counters: {}", "counters: {nonsense: []}"), "nonsense"),
        ("x.yaml", GOOD["x.yaml"].replace("gauges: {}", "gauges: {steps: []}"), "steps"),
        ("x.yaml", GOOD["x.yaml"].replace("counters: {}", "counters: {steps: [{series: a, wher: {}}]}"), "wher"),
        ("canonical.yaml", "engine: {}\n", "canonical.yaml"),
    ],
)
def test_a_broken_table_is_refused_with_its_file(file: str, text: str, message: str) -> None:
    assert parse_table(GOOD).families[0].name == "x"
    with pytest.raises(BadInput, match=message):
        parse_table({**GOOD, file: text})

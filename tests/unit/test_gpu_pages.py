"""GPU exporters' pages: one sample per physical GPU, units and blanks told apart, whatever pods share it."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from core.engine_line import is_gpu_line, parse_gpu_line, parse_line
from core.ports import Page
from eventlog.spool import SpoolLog, SpoolSettings
from ingest.engine.memory import PageMemory
from ingest.engine.parse import Origin, ParsedPage, parse_page
from ingest.engine.service import EngineIngest

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
ORIGIN = Origin(cluster="c1", kind="gpu")


def parse(text: str, target: str = "http://dcgm:9400/metrics") -> ParsedPage:
    return parse_page(Page(target, AT, text.encode(), "text/plain"), ORIGIN)


def dcgm(name: str, value: str, uuid: str = "GPU-1", **labels: str) -> str:
    known = {"gpu": "0", "UUID": uuid, "modelName": "NVIDIA A100", "Hostname": "node-1", **labels}
    inside = ",".join(f'{k}="{v}"' for k, v in known.items())
    return f"DCGM_FI_{name}{{{inside}}} {value}\n"


def test_b21_a_shared_gpu_is_counted_once_and_its_pods_are_listed() -> None:
    """Time slicing repeats the device's value for each pod: 300 W three times are 300 W."""
    page = parse("".join(dcgm("DEV_POWER_USAGE", "300", pod=pod, namespace="prod", container="c") for pod in "cab"))
    [gpu] = page.gpus
    assert (gpu.gpu, gpu.node, gpu.gpu_model, gpu.pods) == ("GPU-1", "node-1", "NVIDIA A100", ("prod/a", "prod/b", "prod/c"))
    assert gpu.gauges == {"power_mw": 300_000}
    assert page.faults == ()


def test_a_number_that_differs_between_the_pods_of_one_gpu_is_unknown() -> None:
    page = parse(dcgm("DEV_GPU_UTIL", "10", pod="a") + dcgm("DEV_GPU_UTIL", "20", pod="b"))
    assert page.gpus[0].gauges == {}
    assert [fault.kind for fault in page.faults] == ["bad_value"]


def test_behind_a_prometheus_the_workloads_labels_are_the_exported_ones() -> None:
    exporter = {"pod": "dcgm-exporter-x", "namespace": "monitoring"}
    page = parse(
        dcgm("DEV_GPU_UTIL", "10", exported_pod="vllm-0", exported_namespace="prod", **exporter)
        + dcgm("DEV_GPU_UTIL", "0", uuid="GPU-2", **exporter)
    )
    assert {gpu.gpu: gpu.pods for gpu in page.gpus} == {"GPU-1": ("prod/vllm-0",), "GPU-2": ()}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DEV_TOTAL_ENERGY_CONSUMPTION", "128996013", {"energy_uj": 128_996_013_000}),
        ("DEV_POWER_USAGE", "8.969000", {"power_mw": 8969}),
        ("DEV_GPU_UTIL", "37", {"util_ppm": 370_000}),
        ("PROF_GR_ENGINE_ACTIVE", "0.714", {"engine_active_ppm": 714_000}),
        ("PROF_SM_ACTIVE", "1.000000", {"sm_active_ppm": 1_000_000}),
        ("DEV_FB_TOTAL", "15109", {"memory_total_mib": 15_109}),
    ],
)
def test_units_of_dcgm(name: str, value: str, expected: dict[str, int]) -> None:
    [gpu] = parse(dcgm(name, value)).gpus
    assert {**gpu.counters, **gpu.gauges} == expected


@pytest.mark.parametrize(
    "name", ["DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_POWER_USAGE", "DEV_GPU_UTIL", "PROF_GR_ENGINE_ACTIVE", "DEV_FB_USED"]
)
@pytest.mark.parametrize("value", ["9223372036854775794", "2147483632", "140737488355328", "NaN", "-1"])
def test_blank_values_are_gaps_with_a_fault_never_numbers(name: str, value: str) -> None:
    page = parse(dcgm(name, value))
    assert {**page.gpus[0].counters, **page.gpus[0].gauges} == {}
    assert [fault.kind for fault in page.faults] == ["bad_value"]


def test_total_memory_is_what_is_told_else_used_free_and_reserved() -> None:
    used, free, reserved = dcgm("DEV_FB_USED", "10"), dcgm("DEV_FB_FREE", "80"), dcgm("DEV_FB_RESERVED", "5")
    assert parse(used + free + reserved).gpus[0].gauges["memory_total_mib"] == 95
    assert parse(used + free).gpus[0].gauges["memory_total_mib"] == 90
    assert parse(used).gpus[0].gauges == {"memory_used_mib": 10}


def test_mig_instances_share_one_gpus_power_and_have_their_own_activity() -> None:
    text = "".join(
        dcgm("DEV_POWER_USAGE", "300", GPU_I_ID=mig, GPU_I_PROFILE="3g.20gb")
        + dcgm("PROF_GR_ENGINE_ACTIVE", share, GPU_I_ID=mig, GPU_I_PROFILE="3g.20gb")
        for mig, share in (("1", "0.5"), ("2", "0.25"))
    )
    assert {gpu.mig: dict(gpu.gauges) for gpu in parse(text).gpus} == {
        "": {"power_mw": 300_000}, "1": {"engine_active_ppm": 500_000}, "2": {"engine_active_ppm": 250_000},
    }  # fmt: skip
    assert all("util_ppm" not in gpu.gauges for gpu in parse(text).gpus), "MIG has no GPU_UTIL: unknown, not 0"


def test_amd_tells_microjoules_and_triton_joules() -> None:
    amd = 'gpu_energy_consumed{gpu_id="0",serial_number="S1",hostname="n"} 1500000\ngpu_package_power{serial_number="S1"} 41\n'
    [gpu] = parse(amd).gpus
    assert ({**gpu.counters, **gpu.gauges}, gpu.node) == ({"energy_uj": 1_500_000, "power_mw": 41_000}, "n")
    triton = 'nv_energy_consumption{gpu_uuid="GPU-1"} 1.5\nnv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1048576\n'
    [gpu] = parse(triton).gpus
    assert {**gpu.counters, **gpu.gauges} == {"energy_uj": 1_500_000, "memory_used_mib": 1}


def test_amd_partitions_are_instances_and_the_first_is_the_gpu() -> None:
    rows = "".join(f'amd_gpu_gfx_activity{{gpu_uuid="U",gpu_partition_id="{n}"}} {n}0\n' for n in (0, 1))
    assert {gpu.mig: gpu.gauges["util_ppm"] for gpu in parse(rows).gpus} == {"": 0, "1": 100_000}


def test_a_gpu_without_an_identity_and_a_page_without_gpus_are_faults() -> None:
    assert {f.kind for f in parse("DCGM_FI_DEV_GPU_UTIL 3\n").faults} == {"no_gpu_id", "no_gpu_metrics"}
    assert [f.kind for f in parse("python_info 1\n").faults] == ["no_gpu_metrics"]


def test_unknown_dcgm_names_are_listed() -> None:
    page = parse(dcgm("DEV_GPU_UTIL", "1") + dcgm("DEV_BRAND_NEW", "1") + dcgm("DEV_XID_ERRORS", "0"))
    assert page.unmapped == ("DCGM_FI_DEV_BRAND_NEW",)


def test_a_prefix_that_others_use_too_claims_known_names_only() -> None:
    row = 'gpu_package_power{serial_number="S1"} 41\n'
    assert parse(row + "gpu_operator_reconciliation_status 1\namd_gpu_brand_new 1\n").unmapped == ("amd_gpu_brand_new",)


# --- into the log -------------------------------------------------------------------------------------------------


def test_gpus_and_engines_of_one_page_become_lines_of_one_topic(tmp_path: Path) -> None:
    log = SpoolLog(tmp_path, SpoolSettings(reserve_bytes=1, reserve_percent=0), lambda: AT)
    text = dcgm("DEV_GPU_UTIL", "10", pod="a", namespace="prod") + 'vllm:prompt_tokens_total{engine="0",model_name="m"} 1\n'
    page = Page("http://node-1/federate", AT, text.encode(), "text/plain")
    taken = EngineIngest(log, lambda: AT, lambda _: None).take([(page, Origin(cluster="c1"))])
    log.flush()
    assert (taken.samples, taken.faults) == (2, 0)
    lines = [next(csv.reader([one.line])) for one in log.read("engine")]
    engine, gpu = sorted(lines, key=is_gpu_line)
    assert parse_line(engine).counters == {"prompt_tokens": 1}
    assert parse_gpu_line(gpu) == parse_page(page, Origin(cluster="c1")).gpus[0]
    [record] = [body for one in log.read("engine") if (body := json.loads(one.record or b"{}"))["schema"] == "gpu/1"]
    assert (record["pods"], record["gauges"]) == (["prod/a"], {"util_ppm": 100_000})
    assert "dcgm.1" in record["name_table"]
    log.close()


# --- from page to page --------------------------------------------------------------------------------------------

FIRST, SECOND = "http://dcgm:9400/metrics", "http://other:9400/metrics"


def test_a_gpu_shown_by_two_exporters_is_counted_at_one() -> None:
    memory, page = PageMemory(), dcgm("DEV_TOTAL_ENERGY_CONSUMPTION", "1")
    assert len(memory.check(FIRST, AT, parse(page)).gpus) == 1
    twice = memory.check(SECOND, AT + timedelta(seconds=5), parse(page, SECOND))
    assert (twice.gpus, [f.kind for f in twice.faults]) == ([], ["gpu_seen_twice"])
    later = memory.check(SECOND, AT + timedelta(seconds=61), parse(page, SECOND))
    assert len(later.gpus) == 1, "its exporter went silent: the other one takes over"


def test_a_name_that_vanishes_and_a_gpu_that_goes_are_faults() -> None:
    memory = PageMemory()
    memory.check(
        FIRST, AT, parse(dcgm("DEV_GPU_UTIL", "1") + dcgm("DEV_POWER_USAGE", "1") + dcgm("DEV_GPU_UTIL", "1", uuid="GPU-2"))
    )
    faults = memory.check(FIRST, AT + timedelta(seconds=15), parse(dcgm("DEV_GPU_UTIL", "1"))).faults
    assert {(f.kind, f.subject) for f in faults} == {("metric_vanished", "GPU-1//power_mw"), ("gpu_vanished", "GPU-2/")}


def test_unknown_names_are_listed_when_first_seen_and_every_hour() -> None:
    memory, page = PageMemory(), parse(dcgm("DEV_GPU_UTIL", "1") + dcgm("DEV_BRAND_NEW", "1"))
    said = [bool(memory.check(FIRST, AT + timedelta(minutes=m), page).faults) for m in (0, 1, 59, 60, 61, 120)]
    assert said == [True, False, False, True, False, True]
